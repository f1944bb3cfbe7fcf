// Backend `nccl` for tensors of the device. Gloo carries what they exchange over the fabric: all sizes
// as they are, contents where these are real. A collective runs on a stream, as NCCL's does: it begins
// when what was launched before it is done, and who waits for it is a stream, not the host.
#include "process_group.hpp"

#include <fcntl.h>
#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <sys/mman.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
#include <ATen/ATen.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <map>
#include <numeric>

#include "call.hpp"
#include "carried.hpp"
#include "carrier.hpp"
#include "clock.hpp"
#include "memory.hpp"
#include "ring.hpp"
#include "settings.hpp"
#include "shapes.hpp"
#include "simulated.hpp"
#include "timeline.hpp"
#include "versions.hpp"
#include "watchdog.hpp"

namespace groundwire {
namespace {

using namespace c10d;
using at::Tensor;
using Tensors = std::vector<Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

constexpr int64_t first_stream = 1000;  // of process groups; torch's pools are below
std::atomic<int64_t> next_stream{first_stream};
std::atomic<int> next_group{0};
constexpr int64_t large_bytes = 1 << 16;
PyObject* programs = nullptr;  // makes what runs the programs of a group; never freed

// A buffer of zeros on the host, which takes no memory before it is written.
Tensor zeros(int64_t elements, c10::ScalarType type) {
  int64_t bytes = elements * c10::elementSize(type);
  if (bytes < large_bytes) return at::zeros({elements}, type);
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                  -1, 0);
  TORCH_CHECK(at != MAP_FAILED, "no memory for a collective of ", bytes, " bytes");
  return at::from_blob(at, {elements}, [bytes](void* at) { munmap(at, bytes); },
                       at::TensorOptions().dtype(type));
}

bool gloo_has(c10::ScalarType type) {
  switch (type) {
    case at::kFloat: case at::kDouble: case at::kHalf: case at::kBFloat16:
    case at::kChar: case at::kByte: case at::kInt: case at::kLong:
      return true;
    default:
      return false;
  }
}

// How a tensor goes on the wire: a line of elements of a type that Gloo has.
struct Wire {
  c10::ScalarType type;
  int64_t each;  // of them for an element of the tensor
};

Wire wire_of(c10::ScalarType type, bool reduces) {
  if (gloo_has(type)) return {type, 1};
  if (at::isComplexType(type)) return {c10::toRealValueType(type), 2};
  if (type == at::kBool) return {at::kByte, 1};
  TORCH_CHECK(!reduces, "nccl on a virtual GPU cannot reduce ", type);
  return {at::kByte, int64_t(c10::elementSize(type))};
}

// How much of a message without contents is sent (`payload_share`), in elements of its wire.
int64_t sent_of(int64_t elements, c10::ScalarType type) {
  int64_t least = settings.payload_least_bytes / int64_t(c10::elementSize(type));
  return std::max(std::min(elements, least), elements / settings.payload_share);
}

std::vector<int64_t> sent_of(std::vector<int64_t> parts, c10::ScalarType type) {
  for (auto& each : parts) each = sent_of(each, type);
  return parts;
}

// Bytes of a tensor on the device as a CPU tensor, by what is known of it without holding it.
struct Place {
  void* at;
  std::vector<int64_t> sizes, strides;
  c10::ScalarType type;

  explicit Place(const Tensor& tensor)
      : at(tensor.numel() ? static_cast<char*>(tensor.storage().mutable_data()) +
                                tensor.storage_offset() * tensor.element_size()
                          : nullptr),
        sizes(tensor.sizes().vec()), strides(tensor.strides().vec()), type(tensor.scalar_type()) {}

  void write(const Tensor& line, bool reduced) const {
    auto to = at::from_blob(at, sizes, strides, at::TensorOptions().dtype(type));
    if (reduced && type == at::kBool)
      to.copy_(line.ne(0).view(sizes));
    else
      to.copy_(line.view(type).view(sizes));
  }
};

struct DeviceWork final : c10d::Work {
  CollectivePtr collective = std::make_shared<Collective>();
  int device = 0;
  StreamKey stream;
  MomentPtr end;
  Tensors outputs, held;
  bool host_waits = false;
  c10::intrusive_ptr<c10::ivalue::Future> future;
  std::vector<std::function<void(std::vector<WorkPtr>&)>> posts;
  std::shared_ptr<Watchdog> watchdog;

  void attach() {
    if (end) wait_for(current_stream(device), end);
    held.clear();
  }
  bool wait(std::chrono::milliseconds timeout) override {
    attach();
    if (watchdog) watchdog->await(collective, end, timeout == kNoTimeout ? 0 : timeout.count());
    if (host_waits) await_stream(current_stream(device));
    return true;
  }
  void synchronize() override { attach(); }
  void blockCurrentStream() { attach(); }
  bool isCompleted() override { return end && has_come(end); }
  bool isSuccess() const override { return collective->error.empty(); }
  Tensors result() override { return outputs; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    TORCH_CHECK(end, "a coalesced collective has a future only when all are posted");
    if (future) return future;
    future = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()),
        std::vector<c10::Device>{c10::Device(c10::kCUDA, device)});
    auto before = current_stream(device);
    set_current_stream(device, stream.second);
    future->markCompleted(c10::IValue(outputs));
    set_current_stream(device, before.second);
    return future;
  }
};
using DeviceWorkPtr = c10::intrusive_ptr<DeviceWork>;

struct ProcessGroupNCCL final : Backend {
  struct Options : Backend::Options, OwnNames {
    Options() : Backend::Options("nccl") {}
    bool is_high_priority_stream = false;
    int split_color = 0;
    // Never freed: options die without the interpreter's lock.
    PyObject *split_from = Py_None, *config = Py_None;
  };

  c10::intrusive_ptr<Backend> gloo;
  c10::intrusive_ptr<Options> options;
  std::shared_ptr<Carrier> carrier = std::make_shared<Carrier>();
  std::map<int, std::shared_ptr<Carrier>> pair_carriers;
  std::map<int, int64_t> pair_streams;
  std::map<int64_t, int64_t> messages;  // between two ranks, so far
  int64_t own_stream = next_stream++;
  DeviceWorkPtr batch;                  // while several are coalesced
  uint64_t sequence = 0, exchanged = 0, collectives = 0;  // of all ranks' operations, messages; of all that are named
  std::shared_ptr<Watchdog> watchdog;
  std::string key;                      // of the group, among all of the run

  ProcessGroupNCCL(c10::intrusive_ptr<Backend> carried_by, int rank, int size,
                   c10::intrusive_ptr<Options> given)
      : Backend(rank, size), gloo(std::move(carried_by)), options(std::move(given)) {
    key = key_of(*options);
    watchdog = std::make_shared<Watchdog>(GroupName{next_group++, rank, options->group_name});
  }

  const std::string getBackendName() const override { return "nccl"; }
  c10::intrusive_ptr<Backend::Options> getBackendOptions() {
    return c10::static_intrusive_pointer_cast<Backend::Options>(options);
  }
  bool supportsCoalescing() const { return true; }
  bool supportsSplitting() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) {
    options->timeout = timeout;
    if (settings.simulated.empty()) set_timeout(*gloo, timeout);
  }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence; }

  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Backend::Options>& given) {
    auto found = std::find(ranks.begin(), ranks.end(), rank_);
    if (found == ranks.end()) return nullptr;
    int rank = found - ranks.begin();
    pybind11::gil_scoped_acquire lock;
    auto own = c10::make_intrusive<Options>();
    own->timeout = given->timeout;
    take_names(*own, *given);
    auto made = carrying(pybind11::cast(store), rank, int(ranks.size()), *own);
    return c10::make_intrusive<ProcessGroupNCCL>(made, rank, int(ranks.size()), own);
  }

  // Whoever carries what a group exchanges.
  static c10::intrusive_ptr<Backend> carrying(pybind11::object store, int rank, int size, const Options& given) {
    std::vector<int64_t> ranks;
    for (auto each : given.global_ranks_in_group) ranks.push_back(int64_t(each));
    if (ranks.empty())
      for (int64_t each = 0; each < size; each++) ranks.push_back(each);
    auto timeout = pybind11::cast(given.timeout);
    auto gloo = pybind11::module_::import("torch._C._distributed_c10d")
                    .attr("ProcessGroupGloo")(store, rank, size, timeout);
    if (!settings.simulated.empty())
      return simulated_backend(key_of(given), ranks, rank, given.timeout,
                               gloo.cast<c10::intrusive_ptr<Backend>>());
    pybind11::object own = pybind11::none();
    if (programs && size > 1)
      own = pybind11::reinterpret_borrow<pybind11::object>(programs)(
          gloo, store, pybind11::cast(ranks), rank, timeout, key_of(given));
    return carried_by(gloo.cast<c10::intrusive_ptr<Backend>>(), own);
  }
  // The name of a group, among all of the run.
  static std::string key_of(const Options& given) {
    auto key = given.group_name;
    for (auto each : given.global_ranks_in_group) key += "-" + std::to_string(each);
    for (auto& letter : key)
      if (letter == '/' || letter == '\0') letter = '_';
    return key.size() > 200 ? std::to_string(std::hash<std::string>()(key)) : key;
  }

  // -- what all operations have in common --------------------------------------------------------

  struct Operation {
    const char* kind;
    Tensors in, out;      // on the device; a tensor in both is changed in place
    bool reduces = false, asynchronous = true, any_size = false;
    int peer = -1;        // of a message
    std::string message;  // its name among the run's
    // In how many equal parts a tensor of either list is sent; or the elements of the parts, on the wire.
    int64_t in_parts = 1, out_parts = 1;
    std::vector<int64_t> in_splits = {}, out_splits = {};
  };

  // Whether contents are carried at all: by type and size.
  static bool carries(const Operation& operation) {
    if (settings.contents == Contents::full) return true;
    for (auto* list : {&operation.in, &operation.out})
      for (auto& tensor : *list) {
        bool integers = at::isIntegralType(tensor.scalar_type(), true);
        if (operation.any_size ? !integers : tensor.numel() > limit_of(tensor.scalar_type()))
          return false;
      }
    return true;
  }

  std::string mark(const std::string& name) const { return settings.marks + "/" + name; }

  // `post` gets a line of numbers for each of `in` and `out`, and starts Gloo; `finish` is called
  // when that is over, before results are written.
  using Post = std::function<std::vector<WorkPtr>(Tensors&, Tensors&)>;
  WorkPtr launch(Operation operation, Post post, std::function<void(Tensors&)> finish = {}) {
    auto& all = operation.in.empty() ? operation.out : operation.in;
    TORCH_CHECK(!all.empty(), "a collective of no tensors");
    int device = all[0].get_device();
    for (auto* list : {&operation.in, &operation.out})
      for (auto& tensor : *list) {
        TORCH_CHECK(tensor.is_cuda(), "No backend type associated with device type ",
                    tensor.device().type());
      }
    watchdog->expect_alive();
    (operation.peer < 0 ? sequence : exchanged)++;
    bool carried = carries(operation), known = carried;
    if (carried)
      for (auto& tensor : operation.in) known = is_known(tensor) && known;
    std::string name = operation.message.empty() ? key + "." + std::to_string(collectives++)
                                                 : key + "." + operation.message;
    bool shares = settings.contents == Contents::small && !settings.marks.empty();
    if (carried && !known && shares) {
      int file = open(mark(name).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
      if (file >= 0) close(file);
    }
    auto line = [&](const Tensor& tensor, bool filled, int64_t parts, const std::vector<int64_t>& splits) {
      auto wire = wire_of(tensor.scalar_type(), operation.reduces);
      if (!filled) {
        int64_t elements = tensor.numel() * wire.each;
        if (carried) return zeros(elements, wire.type);
        if (splits.empty()) return zeros(sent_of(elements / parts, wire.type) * parts, wire.type);
        return zeros(std::accumulate(splits.begin(), splits.end(), int64_t{0}), wire.type);
      }
      auto copy = on_host(tensor).clone(at::MemoryFormat::Contiguous).view(-1);
      if (operation.reduces && tensor.scalar_type() == at::kBool) return copy.to(at::kByte);
      return copy.view(wire.type);
    };
    Tensors in, out;
    for (auto& tensor : operation.in) in.push_back(line(tensor, known, operation.in_parts, operation.in_splits));
    for (auto& tensor : operation.out) {
      size_t i = 0;
      while (i < operation.in.size() && !operation.in[i].is_same(tensor)) i++;
      out.push_back(i < operation.in.size()
                        ? in[i]
                        : line(tensor, false, operation.out_parts, operation.out_splits));
    }
    auto work = batch ? batch : c10::make_intrusive<DeviceWork>();
    auto& about = work->collective->about;
    about.type = c10::toString(all[0].scalar_type());
    about.peer = operation.peer;
    std::pair<int64_t, int64_t> size{0, 0};
    for (auto& tensor : all) size.first += tensor.nbytes();
    for (auto& each : operation.in.empty() ? out : in) size.second += each.nbytes();
    work->collective->sizes.push_back(size);
    for (auto& tensor : operation.in) about.in_elements += tensor.numel();
    for (auto& tensor : operation.out) about.out_elements += tensor.numel();
    work->device = device;
    for (auto& tensor : operation.out) work->outputs.push_back(tensor);
    for (auto* list : {&operation.in, &operation.out})
      work->held.insert(work->held.end(), list->begin(), list->end());
    auto buffers = std::make_shared<Tensors>(out);
    work->posts.push_back([in, buffers, post, carried](std::vector<WorkPtr>& started) mutable {
      hand_over_contents(carried);
      for (auto& each : post(in, *buffers)) started.push_back(each);
    });
    bool agrees = carried && shares;
    for (size_t i = 0; i < operation.out.size(); i++) {
      auto* block = block_of(operation.out[i].storage().unsafeGetStorageImpl());
      if (!block) continue;
      if (!carried) {
        block->known = false;
        continue;
      }
      block->writers.push_back(
          {work->collective,
           [i, buffers, finish, done = std::make_shared<bool>(false), place = Place(operation.out[i]),
            reduced = operation.reduces, file = agrees ? mark(name) : ""](Block& own) {
             own.known = file.empty() || access(file.c_str(), F_OK) != 0;
             if (!own.known) return;
             Tensors one{(*buffers)[i]};
             if (finish) finish(one);
             place.write(one[0], reduced);
           }});
    }
    if (batch) return batch;
    auto by = carrier;
    StreamKey stream{device, own_stream};
    if (operation.peer >= 0) {
      auto& own = pair_carriers[operation.peer];
      if (!own) {
        own = std::make_shared<Carrier>();
        pair_streams[operation.peer] = next_stream++;
      }
      by = own;
      stream.second = pair_streams[operation.peer];
    }
    if (!operation.asynchronous) stream = current_stream(device);
    begin(work, by, stream, operation.kind, operation.peer < 0 ? sequence : exchanged);
    return work;
  }

  void begin(const DeviceWorkPtr& work, const std::shared_ptr<Carrier>& by, StreamKey stream,
             std::string kind, uint64_t number) {
    auto collective = work->collective;
    auto now = current_stream(work->device);
    if (stream != now) wait_for(stream, record_moment(now));
    collective->carrier = by;
    collective->about.kind = kind;
    collective->about.group = options->group_name;
    for (auto each : options->global_ranks_in_group) collective->about.ranks.push_back(each);
    for (int each = 0; options->global_ranks_in_group.empty() && each < size_; each++)
      collective->about.ranks.push_back(each);
    by->post(*collective);
    collective->carry = [posts = std::move(work->posts), of = collective.get()]() mutable {
      std::vector<WorkPtr> started, first;
      for (auto& post : posts) {
        size_t before = started.size();
        post(started);
        first.push_back(before < started.size() ? started[before] : nullptr);
      }
      for (auto& each : started) each->wait();
      for (auto& each : first) {
        auto* told = each ? dynamic_cast<ToldWork*>(each.get()) : nullptr;
        of->told.push_back(told ? told->told : "");
      }
    };
    work->posts.clear();
    collective->posted_ns = host_now_ns();
    collective->stream = stream.second;
    work->stream = stream;
    work->watchdog = watchdog;
    watchdog->watch(collective, number, options->timeout.count(), getGroupDesc());
    run_collective(stream, collective);
    work->end = record_moment(stream);
  }

  void startCoalescing() override { batch = c10::make_intrusive<DeviceWork>(); }
  WorkPtr endCoalescing() override {
    auto work = std::move(batch);
    batch = nullptr;
    if (!work || work->posts.empty()) return work;
    begin(work, carrier, {work->device, own_stream}, "COALESCED", sequence);
    return work;
  }

  // -- operations --------------------------------------------------------------------------------

  static ReduceOp sum_for(const ReduceOp& op) {
    bool scaled = op.op_ == ReduceOp::AVG || op.op_ == ReduceOp::PREMUL_SUM;
    return scaled ? ReduceOp(ReduceOp::SUM) : op;
  }
  std::function<void(Tensors&)> scaling(const ReduceOp& op) const {
    double factor = 1;
    if (op.op_ == ReduceOp::AVG) factor = 1.0 / size_;
    if (op.op_ == ReduceOp::PREMUL_SUM && op.supplement_) {
      auto* given = static_cast<NCCLPreMulSumSupplement*>(op.supplement_.get());
      factor = given->tensor_factor.defined() ? given->tensor_factor.cpu().item<double>()
                                              : given->double_factor;
    }
    if (factor == 1) return {};
    return [factor, integers = op.op_ == ReduceOp::AVG, size = size_](Tensors& lines) {
      for (auto& line : lines) {
        if (line.is_floating_point())
          line = line * factor;
        else if (integers)
          line = line.div(size, "trunc");
        else
          line = line.mul(int64_t(factor));
      }
    };
  }

  WorkPtr allreduce(Tensors& tensors, const AllreduceOptions& given) override {
    auto opts = given;
    opts.reduceOp = sum_for(given.reduceOp);
    return launch({"ALLREDUCE", tensors, tensors, true, is_asynchronous(given)},
                  [gloo = gloo, opts](Tensors& in, Tensors&) {
                    std::vector<WorkPtr> works;
                    for (auto& line : in) {
                      Tensors one{line};
                      works.push_back(gloo->allreduce(one, opts));
                    }
                    return works;
                  },
                  scaling(given.reduceOp));
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const AllreduceCoalescedOptions& given) override {
    AllreduceOptions opts;
    opts.reduceOp = given.reduceOp;
    return allreduce(tensors, opts);
  }
  WorkPtr broadcast(Tensors& tensors, const BroadcastOptions& opts) override {
    bool root = rank_ == opts.rootRank;  // what others had does not matter
    return launch({"BROADCAST", root ? tensors : Tensors{}, tensors, false, is_asynchronous(opts)},
                  [gloo = gloo, opts](Tensors&, Tensors& out) {
                    return std::vector<WorkPtr>{gloo->broadcast(out, opts)};
                  });
  }
  WorkPtr reduce(Tensors& tensors, const ReduceOptions& given) override {
    auto opts = given;
    opts.reduceOp = sum_for(given.reduceOp);
    bool root = rank_ == given.rootRank;
    return launch({"REDUCE", tensors, root ? tensors : Tensors{}, true, is_asynchronous(given)},
                  [gloo = gloo, opts](Tensors& in, Tensors&) {
                    return std::vector<WorkPtr>{gloo->reduce(in, opts)};
                  },
                  root ? scaling(given.reduceOp) : std::function<void(Tensors&)>());
  }
  WorkPtr allgather(std::vector<Tensors>& out, Tensors& in, const AllgatherOptions& opts) override {
    return launch({"ALLGATHER", in, out[0], false, is_asynchronous(opts)},
                  [gloo = gloo, opts](Tensors& in, Tensors& out) {
                    std::vector<Tensors> all{out};
                    return std::vector<WorkPtr>{gloo->allgather(all, in, opts)};
                  });
  }
  WorkPtr _allgather_base(Tensor& out, Tensor& in, const AllgatherOptions& opts) override {
    TORCH_CHECK(out.numel() == in.numel() * size_,
                "output tensor size must be equal to world_size times input tensor size");
    Operation operation{"_ALLGATHER_BASE", {in}, {out}, false, is_asynchronous(opts)};
    operation.out_parts = size_;
    return launch(std::move(operation),
                  [gloo = gloo, opts, size = size_](Tensors& in, Tensors& out) {
                    std::vector<Tensors> all(1);
                    for (auto& part : out[0].chunk(size)) all[0].push_back(part);
                    return std::vector<WorkPtr>{gloo->allgather(all, in, opts)};
                  });
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& out, Tensors& in,
                                          const AllgatherOptions& opts) override {
    return together(in.size(), [&](size_t i) { _allgather_base(out[i], in[i], opts); });
  }
  WorkPtr gather(std::vector<Tensors>& out, Tensors& in, const GatherOptions& opts) override {
    auto to = out.empty() ? Tensors{} : out[0];
    return launch({"GATHER", in, to, false, is_asynchronous(opts)},
                  [gloo = gloo, opts](Tensors& in, Tensors& out) {
                    std::vector<Tensors> all;
                    if (!out.empty()) all.push_back(out);
                    return std::vector<WorkPtr>{gloo->gather(all, in, opts)};
                  });
  }
  WorkPtr scatter(Tensors& out, std::vector<Tensors>& in, const ScatterOptions& opts) override {
    auto from = in.empty() ? Tensors{} : in[0];
    return launch({"SCATTER", from, out, false, is_asynchronous(opts)},
                  [gloo = gloo, opts](Tensors& in, Tensors& out) {
                    std::vector<Tensors> all;
                    if (!in.empty()) all.push_back(in);
                    return std::vector<WorkPtr>{gloo->scatter(out, all, opts)};
                  });
  }
  WorkPtr _reduce_scatter_base(Tensor& out, Tensor& in, const ReduceScatterOptions& given) override {
    TORCH_CHECK(in.numel() == out.numel() * size_,
                "input tensor must be the same size as output size times world size");
    auto opts = given;
    opts.reduceOp = sum_for(given.reduceOp);
    Operation operation{"_REDUCE_SCATTER_BASE", {in}, {out}, true, is_asynchronous(given)};
    operation.in_parts = size_;
    return launch(std::move(operation),
                  [gloo = gloo, opts](Tensors& in, Tensors& out) {
                    return std::vector<WorkPtr>{gloo->_reduce_scatter_base(out[0], in[0], opts)};
                  },
                  scaling(given.reduceOp));
  }
  WorkPtr reduce_scatter(Tensors& out, std::vector<Tensors>& in,
                         const ReduceScatterOptions& opts) override {
    Tensors parts;
    for (auto& tensor : in[0]) parts.push_back(tensor.reshape(-1));
    auto whole = at::cat(parts);
    return _reduce_scatter_base(out[0], whole, opts);
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& out, Tensors& in,
                                          const ReduceScatterOptions& opts) override {
    return together(in.size(), [&](size_t i) { _reduce_scatter_base(out[i], in[i], opts); });
  }

  static std::vector<int64_t> in_line(const std::vector<int64_t>& splits, const Tensor& tensor) {
    auto found = splits;
    if (found.empty() || tensor.size(0) == 0) return found;
    int64_t row = tensor.numel() / tensor.size(0) * wire_of(tensor.scalar_type(), false).each;
    for (auto& each : found) each *= row;
    return found;
  }
  WorkPtr alltoall_base(Tensor& out, Tensor& in, std::vector<int64_t>& out_splits,
                        std::vector<int64_t>& in_splits, const AllToAllOptions& opts) override {
    Operation operation{"ALLTOALL_BASE", {in}, {out}, false, is_asynchronous(opts), true};
    operation.in_parts = operation.out_parts = size_;
    auto to = in_line(out_splits, out), from = in_line(in_splits, in);
    if (!carries(operation) && settings.payload_share > 1) {
      auto wire = wire_of(in.scalar_type(), false);
      operation.out_splits = to = sent_of(std::move(to), wire.type);
      operation.in_splits = from = sent_of(std::move(from), wire.type);
    }
    return launch(std::move(operation),
                  [gloo = gloo, opts, to, from](Tensors& in, Tensors& out) mutable {
                    return std::vector<WorkPtr>{gloo->alltoall_base(out[0], in[0], to, from, opts)};
                  });
  }
  WorkPtr alltoall(Tensors& out, Tensors& in, const AllToAllOptions& opts) override {
    return launch({"ALLTOALL", in, out, false, is_asynchronous(opts), true},
                  [gloo = gloo, opts](Tensors& in, Tensors& out) {
                    std::vector<int64_t> to, from;
                    int64_t count = 0;
                    for (auto& line : out) to.push_back(line.numel()), count += line.numel();
                    for (auto& line : in) from.push_back(line.numel());
                    auto sent = at::cat(in), got = zeros(count, sent.scalar_type());
                    // The parts that come are views of what comes.
                    int64_t at = 0;
                    for (auto& line : out) {
                      int64_t size = line.numel();
                      line = got.narrow(0, at, size);
                      at += size;
                    }
                    return std::vector<WorkPtr>{gloo->alltoall_base(got, sent, to, from, opts)};
                  });
  }

  std::string message(int from, int to) {
    int64_t pair = int64_t(from) * size_ + to;
    return "m" + std::to_string(pair) + "." + std::to_string(messages[pair]++);
  }
  WorkPtr send(Tensors& tensors, int to, int tag) override {
    return launch({"SEND", tensors, {}, false, true, false, to, message(rank_, to)},
                  [gloo = gloo, to, tag](Tensors& in, Tensors&) {
                    return std::vector<WorkPtr>{gloo->send(in, to, tag)};
                  });
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    return launch({"RECV", {}, tensors, false, true, false, from, message(from, rank_)},
                  [gloo = gloo, from, tag](Tensors&, Tensors& out) {
                    return std::vector<WorkPtr>{gloo->recv(out, from, tag)};
                  });
  }
  WorkPtr barrier(const BarrierOptions& opts) override {
    auto token = at::zeros({1}, at::TensorOptions().dtype(at::kByte).device(
                                    c10::Device(c10::kCUDA, current_device())));
    auto work = launch({"BARRIER", {token}, {}, false, is_asynchronous(opts)},
                       [gloo = gloo](Tensors&, Tensors&) {
                         return std::vector<WorkPtr>{gloo->barrier(BarrierOptions())};
                       });
    static_cast<DeviceWork*>(work.get())->host_waits = true;
    return work;
  }
  void monitoredBarrier(const BarrierOptions& opts, bool all) override {
    gloo->monitoredBarrier(opts, all);
  }

 private:
  template <class Function>
  WorkPtr together(size_t count, Function function) {
    bool own = !batch;
    if (own) startCoalescing();
    for (size_t i = 0; i < count; i++) function(i);
    return own ? endCoalescing() : WorkPtr(batch);
  }
};

// DDP's reducer asks for one for its device.
struct ReducerTimer final : c10d::Timer {
  explicit ReducerTimer(c10::Device) {}
  std::optional<int64_t> measureDifference(Event begin, Event end) override {
    auto from = getTimeRef(begin), to = getTimeRef(end);
    return to < from ? std::nullopt : std::optional<int64_t>(to - from);
  }
};

struct Registered {
  Registered() {
    TimerRegistry()->Register(
        c10::kCUDA,
        [](c10::Device device) -> std::unique_ptr<c10d::Timer> {
          return std::make_unique<ReducerTimer>(device);
        },
        c10::REGISTRY_PREFERRED);
  }
} registered;

}  // namespace

void install_process_group(pybind11::module_& module) {
  namespace py = pybind11;
  using Group = ProcessGroupNCCL;
  using Options = Group::Options;
  auto base = py::module_::import("torch._C._distributed_c10d");
  // All that an observer keeps of a work: the work itself keeps its results, and their memory.
  py::class_<Collective, CollectivePtr>(module, "Collective")
      .def_readonly("begin_ns", &Collective::begin_ns)
      .def_readonly("end_ns", &Collective::end_ns)
      .def_readonly("stream", &Collective::stream)
      .def_readonly("posted_ns", &Collective::posted_ns)
      .def_readonly("number", &Collective::number)
      .def_readonly("sizes", &Collective::sizes)
      .def_readonly("stalls", &Collective::stalls)
      .def_readonly("told", &Collective::told);
  module.def("run_programs", [](py::object make) { programs = make.release().ptr(); });
  py::class_<DeviceWork, DeviceWorkPtr>(module, "DeviceWork", base.attr("Work"))
      .def_property_readonly("collective", [](DeviceWork& work) { return work.collective; });
  py::class_<Group, c10::intrusive_ptr<Group>> group(module, "ProcessGroupNCCL",
                                                     base.attr("Backend"));
  auto hold = [](py::object value) { return value.release().ptr(); };
  py::class_<Options, c10::intrusive_ptr<Options>> options(
      group, "Options", base.attr("Backend").attr("Options"));
  bind_names<Options>(options);
  options
      .def(py::init([](bool high) {
             auto made = c10::make_intrusive<Options>();
             made->is_high_priority_stream = high;
             return made;
           }),
           py::arg("is_high_priority_stream") = false)
      .def("__deepcopy__", [](const Options& own, py::dict) { return c10::make_intrusive<Options>(own); })
      .def("__copy__", [](const Options& own) { return c10::make_intrusive<Options>(own); })
      .def_readwrite("is_high_priority_stream", &Options::is_high_priority_stream)
      .def_readwrite("split_color", &Options::split_color)
      .def_property(
          "split_from",
          [](Options& own) { return py::reinterpret_borrow<py::object>(own.split_from); },
          [hold](Options& own, py::object value) { own.split_from = hold(value); })
      .def_property(
          "config", [](Options& own) { return py::reinterpret_borrow<py::object>(own.config); },
          [hold](Options& own, py::object value) { own.config = hold(value); });
  group
      .def(py::init([](py::object store, int rank, int size, c10::intrusive_ptr<Options> given) {
        return c10::make_intrusive<Group>(Group::carrying(store, rank, size, *given), rank, size, given);
      }))
      .def("tell_handshakes",
           [](Group& own, const std::vector<std::array<int64_t, 3>>& given) {
             std::vector<Handshake> found;
             for (auto& [peer, handshake_us, greeting_us] : given) found.push_back({peer, handshake_us, greeting_us});
             tell_handshakes(*own.gloo, found);
           })
      .def("_group_start", [](Group& own) { own.startCoalescing(); })
      .def("_group_end", [](Group& own) { own.endCoalescing(); })
      .def("comm_split_count", [](Group&) { return 0; })
      .def("perform_nocolor_split", [](Group&, py::object) {})
      .def("_is_initialized", [](Group&) { return true; })
      .def("_set_default_timeout",
           [](Group& own, std::chrono::milliseconds timeout) { own.setTimeout(timeout); })
      .def("_add_ephemeral_timeout", [](Group&, py::object) {})
      .def("_verify_work_timeout", [](Group&, py::object, py::object) { return true; })
      .def("abort", [](Group&) {})
      .def("_shutdown", [](Group&) {})  // before 2.7
      .def("get_error", [](Group&) { return 0; })
      .def_property_readonly("options", [](Group& own) { return own.options; });
}

}  // namespace groundwire
