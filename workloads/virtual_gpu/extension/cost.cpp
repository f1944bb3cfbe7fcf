#include "cost.hpp"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "memory.hpp"
#include "settings.hpp"

namespace groundwire {
namespace {

using at::Tensor;

std::mutex mutex;
std::unordered_map<std::string, int64_t> table;
std::map<std::string, int64_t> lacked;
std::atomic<bool> optimizing{false};
std::map<int64_t, int64_t> lookups;

// Those of the device: a number is a tensor of the CPU's.
template <class Function>
void each_tensor(const c10::IValue& value, Function function) {
  auto take = [&](const Tensor& tensor) {
    if (tensor.defined() && tensor.is_cuda()) function(tensor);
  };
  if (value.isTensor()) {
    take(value.toTensor());
  } else if (value.isTensorList()) {
    for (const Tensor& tensor : value.toTensorVector()) take(tensor);
  } else if (value.isOptionalTensorList()) {
    for (auto&& tensor : value.toOptionalTensorVector())
      if (tensor) take(*tensor);
  }
}

// Bytes that an operator touches of a tensor: of one that repeats its elements, these once.
int64_t bytes_of(const Tensor& tensor) {
  int64_t elements = 1;
  for (int64_t i = 0; i < tensor.dim(); i++)
    if (tensor.stride(i) != 0 || tensor.size(i) == 0) elements *= tensor.size(i);
  return elements * tensor.element_size();
}

int64_t product(at::IntArrayRef sizes) {
  int64_t result = 1;
  for (auto size : sizes) result *= size;
  return result;
}

int64_t matrices(const Tensor& a, const Tensor& b) {
  if (a.dim() < 2 || b.dim() < 2) return 0;
  int64_t batch = a.dim() == 3 ? a.size(0) : 1;
  return 2 * batch * a.size(-2) * a.size(-1) * b.size(-1);
}

int64_t attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  if (q.dim() != 4) return 0;
  int64_t scores = q.size(0) * q.size(1) * q.size(2) * k.size(2);
  return 2 * scores * (q.size(3) + v.size(3));
}

int64_t convolution(const Tensor& x, const Tensor& w, const Tensor& out, bool transposed) {
  auto places = (transposed ? x : out).sizes().slice(2);
  return 2 * x.size(0) * product(places) * product(w.sizes());
}

// The rules are those of torch.utils.flop_counter.
int64_t flops_of(const std::string& name, Values a, Values results) {
  auto t = [&](size_t i) { return a[i].toTensor(); };
  auto is = [&](const char* end) { return name == std::string("aten::") + end; };
  if (is("mm") || is("bmm") || is("_scaled_mm") || is("_int_mm")) return matrices(t(0), t(1));
  if (is("addmm") || is("baddbmm") || is("_addmm_activation")) return matrices(t(1), t(2));
  if (is("linear")) return 2 * t(0).numel() * t(1).size(0);
  if (name.find("scaled_dot_product") != name.npos || name.find("flash_attention") != name.npos) {
    bool backward = name.find("backward") != name.npos;
    int first = backward ? 1 : 0;
    // A backward pass computes the scores again: five products for two.
    int64_t forward = attention(t(first), t(first + 1), t(first + 2));
    return backward ? forward / 2 * 5 : forward;
  }
  if (is("convolution") || is("_convolution") || is("convolution_overrideable"))
    return convolution(t(0), t(1), results[0].toTensor(), a[6].toBool());
  if (is("cudnn_convolution") || is("cudnn_convolution_relu"))
    return convolution(t(0), t(1), results[0].toTensor(), false);
  if (is("convolution_backward")) {
    bool transposed = a[7].toBool();
    auto mask = a[10].toBoolList();
    int64_t each = convolution(t(1), t(2), t(0), transposed);
    return each * (int(mask[0]) + int(mask[1]));
  }
  return 0;
}

// Lookups read the rows that they give.
bool looks_up(const std::string& name) {
  static const std::unordered_set<std::string> names{
      "aten::embedding", "aten::index_select", "aten::gather", "aten::index"};
  return names.count(name) > 0;
}

bool overwrites(const std::string& name) {
  static const std::unordered_set<std::string> names{
      "aten::zero_", "aten::fill_", "aten::copy_", "aten::normal_", "aten::uniform_",
      "aten::random_", "aten::bernoulli_", "aten::exponential_"};
  return names.count(name) > 0;
}

bool is_free(const std::string& name) {
  static const std::unordered_set<std::string> names{
      "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::empty_permuted",
      "aten::new_empty", "aten::new_empty_strided", "aten::resize_", "aten::set_",
      "aten::_local_scalar_dense", "aten::record_stream", "aten::_resize_output_",
      "aten::is_pinned", "aten::_pin_memory"};
  return names.count(name) > 0;
}

void append(std::string& text, const Tensor& tensor) {
  text += '[';
  for (auto size : tensor.sizes()) (text += std::to_string(size)) += ',';
  text += ']';
}

std::string key_of(const std::string& name, const std::string& shapes, const std::string& types) {
  return name + '|' + shapes + '|' + types;
}

// By its time in the table; -1 where that lacks it, or where there is none.
int64_t table_ns(const std::string& name, Values arguments) {
  if (table.empty()) return -1;
  std::string shapes, types;
  for (auto& value : arguments)
    each_tensor(value, [&](const Tensor& tensor) {
      if (tensor.dim() == 0) return;  // a trace does not tell them from numbers
      append(shapes, tensor);
      types += types.empty() ? "" : ";";
      types += c10::toString(tensor.scalar_type());
    });
  std::lock_guard<std::mutex> guard(mutex);
  for (auto& key : {key_of(name, shapes, types), key_of(name, shapes, "")}) {
    auto found = table.find(key);
    if (found != table.end()) return found->second;
  }
  lacked[name + " of " + shapes]++;
  return -1;
}

// The share of the peak of arithmetic that a kernel reaches.
double share_of(const std::string& name, Values arguments, int64_t flops) {
  bool scaled = name.find("scaled_dot_product") != name.npos;
  if (!scaled && name.find("flash_attention") == name.npos) return settings.matrix.at(flops);
  bool backward = name.find("backward") != name.npos;
  auto& steps = backward ? settings.attention_backward : settings.attention;
  if (arguments.size() <= size_t(backward) || !arguments[backward].isTensor()) return settings.matrix.at(flops);
  auto query = arguments[backward].toTensor();
  if (query.dim() != 4) return settings.matrix.at(flops);
  return steps.at(query.size(scaled ? 2 : 1));
}

int64_t roofline_ns(int64_t flops, int64_t bytes, int64_t item_bytes, double share) {
  double peak = item_bytes <= 2 ? settings.flops_16bit_per_s : settings.flops_32bit_per_s;
  double seconds = 0;
  if (peak > 0)
    seconds = std::max(flops / peak / share, bytes / settings.memory_bytes_per_s / settings.memory.at(bytes));
  return std::llround(seconds * 1e9) + settings.overhead_ns;
}

int phase_now() {
  return optimizing ? 2 : torch::autograd::get_current_graph_task_id() != -1 ? 1 : 0;
}

}  // namespace

void charge_operator(const c10::FunctionSchema& schema, Values arguments, Values results,
                     int device) {
  const std::string& name = schema.name();
  if (is_free(name)) return;
  bool writes = false, is_floating = false;
  int64_t bytes = 0, item_bytes = 0;  // of the first tensor, of floating-point numbers if there is one
  std::vector<const c10::StorageImpl*> read;
  bool lookup = looks_up(name), over = overwrites(name);
  for (size_t i = 0; i < arguments.size(); i++) {
    auto* alias = schema.arguments()[i].alias_info();
    bool written = alias && alias->isWrite();
    writes = writes || written;
    each_tensor(arguments[i], [&](const Tensor& tensor) {
      if (!item_bytes || (!is_floating && tensor.is_floating_point())) item_bytes = tensor.element_size();
      is_floating = is_floating || tensor.is_floating_point();
      read.push_back(tensor.storage().unsafeGetStorageImpl());
      if (lookup && i == 0) return;
      bool only_written = written && (over || schema.arguments()[i].is_out());
      bytes += bytes_of(tensor) * (written && !only_written ? 2 : 1);
    });
  }
  bool makes = false;
  for (auto& value : results)
    each_tensor(value, [&](const Tensor& tensor) {
      auto* storage = tensor.storage().unsafeGetStorageImpl();
      if (std::find(read.begin(), read.end(), storage) != read.end()) return;
      makes = true;
      if (!item_bytes) item_bytes = tensor.element_size();
      bytes += bytes_of(tensor) * (lookup ? 2 : 1);
    });
  if (!writes && !makes) return;  // a view
  int64_t flops = flops_of(name, arguments, results);
  int64_t ns = table_ns(name, arguments);
  if (ns < 0) ns = roofline_ns(flops, bytes, item_bytes, share_of(name, arguments, flops));
  if (name == "aten::embedding_dense_backward") {
    std::lock_guard<std::mutex> guard(mutex);
    lookups[arguments[2].toInt()] += arguments[1].toTensor().numel();
  }
  run_kernel(current_stream(device), ns * settings.slowdown,
             {schema.name().c_str(), flops, bytes, phase_now(), false});
}

void charge_foreign(const std::string& name, const std::vector<Tensor>& read,
                    const std::vector<Tensor>& written) {
  static std::set<std::string> names;  // which stay where they are
  std::vector<c10::IValue> arguments;
  int64_t bytes = 0, item_bytes = 4;
  int device = current_device();
  for (auto* list : {&read, &written})
    for (auto& tensor : *list) {
      bytes += bytes_of(tensor);
      item_bytes = tensor.element_size();
      device = tensor.get_device();
      arguments.emplace_back(tensor);
    }
  for (auto& tensor : written) set_known(tensor, false);
  int64_t ns = table_ns(name, arguments);
  if (ns < 0) ns = roofline_ns(0, bytes, item_bytes, 1);
  const char* kept;
  {
    std::lock_guard<std::mutex> guard(mutex);
    kept = names.insert(name).first->c_str();
  }
  run_kernel(current_stream(device), ns * settings.slowdown, {kept, 0, bytes, phase_now(), false});
}

void charge_link(int device, int64_t bytes, bool to_host, bool host_waits) {
  double seconds = settings.link_bytes_per_s > 0 ? bytes / settings.link_bytes_per_s : 0;
  auto stream = current_stream(device);
  run_kernel(stream, std::llround(seconds * 1e9) * settings.slowdown,
             {to_host ? "copy to host" : "copy to device", 0, bytes, 0, true});
  if (host_waits) await_stream(stream);
}

void add_time(const std::string& name, const std::vector<std::vector<int64_t>>& shapes,
              const std::string& types, int64_t ns) {
  std::string text;
  for (auto& shape : shapes) {
    text += '[';
    for (auto size : shape) (text += std::to_string(size)) += ',';
    text += ']';
  }
  table[key_of(name, text, types)] = ns;
}

std::map<std::string, int64_t> not_in_table() {
  std::lock_guard<std::mutex> guard(mutex);
  return lacked;
}

std::map<int64_t, int64_t> take_lookups() {
  std::lock_guard<std::mutex> guard(mutex);
  return std::exchange(lookups, {});
}

void set_optimizing(bool value) { optimizing = value; }

}  // namespace groundwire
