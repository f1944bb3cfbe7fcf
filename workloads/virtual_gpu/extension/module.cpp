// The device, as Python sees it.
#include <ATen/ATen.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "attention.hpp"
#include "clock.hpp"
#include "cost.hpp"
#include "device.hpp"
#include "memory.hpp"
#include "operators.hpp"
#include "process_group.hpp"
#include "profiler.hpp"
#include "settings.hpp"
#include "timeline.hpp"

namespace groundwire {
namespace {

namespace py = pybind11;

Steps steps_of(const py::dict& shares, const char* kind) {
  Steps found;
  if (!shares.contains(kind)) return found;
  for (auto each : shares[kind]) {
    auto step = each.cast<py::sequence>();
    found.emplace_back(step[0].cast<double>(), step[1].cast<double>());
  }
  return found;
}

void configure(const py::dict& plan) {
  settings.contents = plan["contents"].cast<std::string>() == "full" ? Contents::full : Contents::small;
  settings.devices = plan["devices"].cast<int>();
  settings.memory_bytes = plan["memory_bytes"].cast<int64_t>();
  settings.float_elements = plan["float_elements"].cast<int64_t>();
  settings.integer_elements = plan["integer_elements"].cast<int64_t>();
  settings.flops_16bit_per_s = plan["flops_16bit_per_s"].cast<double>();
  settings.flops_32bit_per_s = plan["flops_32bit_per_s"].cast<double>();
  settings.memory_bytes_per_s = plan["memory_bytes_per_s"].cast<double>();
  auto shares = plan["shares"].cast<py::dict>();
  settings.matrix = steps_of(shares, "matrix");
  settings.attention = steps_of(shares, "attention");
  settings.attention_backward = steps_of(shares, "attention_backward");
  settings.memory = steps_of(shares, "memory");
  settings.link_bytes_per_s = plan["link_bytes_per_s"].cast<double>();
  settings.overhead_ns = plan["overhead_ns"].cast<int64_t>();
  settings.launch_ns = plan["launch_ns"].cast<int64_t>();
  settings.slowdown = plan["slowdown"].cast<int64_t>();
  settings.payload_share = plan["payload_share"].cast<int64_t>();
  settings.payload_least_bytes = plan["payload_least_bytes"].cast<int64_t>();
  settings.routing_skew = plan["routing_skew"].cast<double>();
  settings.steps_clock = plan["steps_clock"].cast<bool>();
  settings.marks = plan["marks"].cast<std::string>();
  settings.simulated = plan["simulated"].cast<std::string>();
  keep_kernels(plan["kept_kernels"].cast<int64_t>());
}

py::dict counter(const Statistics::Counter& of) {
  py::dict found;
  found["current"] = of.current;
  found["peak"] = of.peak;
  found["allocated"] = of.added;
  found["freed"] = of.removed;
  return found;
}

py::dict counters(const Statistics::Counter* of) {
  py::dict found;
  found["all"] = counter(of[0]);
  found["small_pool"] = counter(of[1]);
  found["large_pool"] = counter(of[2]);
  return found;
}

// In torch's form: torch.cuda.memory_stats flattens it.
py::dict memory_statistics(int device) {
  auto counts = statistics(device);
  py::dict found;
  found["num_alloc_retries"] = counts.retries;
  found["num_ooms"] = counts.out_of_memory;
  found["max_split_size"] = -1;
  found["num_sync_all_streams"] = counts.retries;
  found["num_device_alloc"] = counts.device_allocations;
  found["num_device_free"] = counts.device_frees;
  found["allocation"] = counters(counts.allocations);
  found["segment"] = counters(counts.segments);
  found["active"] = counters(counts.active);
  found["inactive_split"] = counters(counts.inactive_splits);
  found["allocated_bytes"] = counters(counts.allocated);
  found["reserved_bytes"] = counters(counts.reserved);
  found["active_bytes"] = counters(counts.active_bytes);
  found["inactive_split_bytes"] = counters(counts.inactive_split_bytes);
  found["requested_bytes"] = counters(counts.requested);
  found["oversize_allocations"] = counter({});
  found["oversize_segments"] = counter({});
  return found;
}

// Changes what a storage holds, which torch compiles for CPUs only.
void resize_storage(size_t address, size_t bytes) {
  auto* storage = reinterpret_cast<c10::StorageImpl*>(address);
  auto* block = block_of(storage);
  bool full = settings.contents == Contents::full;
  bool known = block ? block->known : full;
  auto taken = take_memory(storage->device().index(), bytes, known);
  if (known && block && bytes)
    memcpy(taken.get(), storage->data(), std::min(bytes, storage->nbytes()));
  storage->set_data_ptr_noswap(std::move(taken));
  storage->set_nbytes(bytes);
}

}  // namespace
}  // namespace groundwire

PYBIND11_MODULE(_groundwire_gpu, m) {
  using namespace groundwire;
  using release = py::call_guard<py::gil_scoped_release>;
  install_device();
  install_memory();
  install_attention();
  install_profiler();
  m.def("configure", &configure);
  m.def("install_process_group", [m]() mutable { install_process_group(m); });
  m.def("take_over", [](const std::vector<std::string>& names) { take_over(names); });
  m.def("add_time", &add_time);
  m.def("not_in_table", &not_in_table);
  m.def("set_optimizing", &set_optimizing);
  m.def("take_lookups", &take_lookups);
  m.def("launch", &charge_foreign);
  m.def("use", &use_device);
  m.def("is_forked", &is_forked);

  m.def("device_count", [] { return settings.devices; });
  m.def("current_device", &current_device);
  m.def("set_device", &set_current_device);
  m.def("exchange_device", [](int device) {
    int before = current_device();
    if (device >= 0) set_current_device(device);
    return before;
  });
  m.def("generator", [](int device) { return default_generator(device); });

  m.def("current_stream", [](int device) { return current_stream(device).second; });
  m.def("set_stream", [](int64_t stream, int device) {
    set_current_stream(device, stream);
    set_current_device(device);
  });
  m.def("record", [](int device) { return record_moment(current_stream(device)); });
  py::class_<Moment, MomentPtr>(m, "Moment")
      .def_property_readonly("known", [](Moment& own) { return own.known; })
      .def_property_readonly("ns", [](Moment& own) { return own.ns; });
  m.def("event_moment", [](size_t event) { return moment_of(reinterpret_cast<void*>(event)); });
  m.def("await_moment", &await_moment, release());
  m.def("synchronize", [](int device) { await_device(device < 0 ? current_device() : device); },
        release());
  m.def("synchronize_stream", [](int64_t stream) { await_stream({current_device(), stream}); },
        release());
  m.def("sleep", [](int64_t cycles) { run_kernel(current_stream(), cycles, {"spin_kernel"}); });
  m.def("kernel", [](int64_t ns) { run_kernel(current_stream(), ns, {"kernel"}); });
  m.def("host_now_ns", &host_now_ns);

  m.def("memory_statistics", &memory_statistics);
  m.def("highest_bytes", [](int device) {
    auto counts = statistics(device);
    return std::make_tuple(counts.allocated[0].highest, counts.reserved[0].highest);
  });
  m.def("reset_peaks", &reset_peaks);
  m.def("reset_sums", &reset_sums);
  m.def("empty_cache", &empty_cache, release());
  m.def("set_fraction", &set_fraction);
  m.def("total_memory", [] { return settings.memory_bytes; });
  m.def("resize_storage", &resize_storage);
  m.def("is_known", [](const at::Tensor& tensor) { return is_known(tensor); }, release());

  m.def("stretches", [] {
    py::list found;
    for (auto& s : stretches())
      found.append(py::make_tuple(s.stream.first, s.stream.second, s.phase, s.begin_ns, s.end_ns,
                                  s.flops, s.bytes, s.kernels));
    return found;
  });
  m.def("kernels", [] {
    py::list found;
    for (auto& k : kernels())
      found.append(py::make_tuple(k.stream.first, k.stream.second, k.name, k.phase, k.launched_ns,
                                  k.begin_ns, k.end_ns, k.flops, k.bytes, k.number));
    return found;
  });
  m.def("next_number", &next_number);
  m.def("dependencies", &dependencies);
  m.def("profiles_streams", &profiles_streams);
  m.def("communications", [] {
    py::list found;
    for (auto& c : communications())
      found.append(py::make_tuple(c.stream.first, c.stream.second, c.about.kind, c.about.group,
                                  c.about.ranks, c.about.type, c.about.in_elements,
                                  c.about.out_elements, c.launched_ns, c.begin_ns, c.end_ns));
    return found;
  });
  m.def("totals", [] {
    py::dict found;
    for (auto& [name, total] : totals())
      found[py::str(name)] = py::make_tuple(total.kernels, total.ns, total.flops, total.bytes);
    return found;
  });
  m.def("told", [] {
    auto found = told();
    return py::make_tuple(found.read, found.invented, found.unshaped);
  });
}
