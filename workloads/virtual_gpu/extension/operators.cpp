// Every operator of the device: run by the CPU's kernel over the device's own bytes where these are
// real, or by shapes alone. In either case its kernel takes its time on the current stream.
#include "operators.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
#include <ATen/ATen.h>

#include <mutex>
#include <unordered_set>

#include "attention.hpp"
#include "call.hpp"
#include "clock.hpp"
#include "cost.hpp"
#include "memory.hpp"
#include "settings.hpp"
#include "shapes.hpp"

namespace groundwire {
namespace {

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

ShapeCache cache;
std::mutex mutex;
Told all_told;

void tell(std::map<std::string, int64_t>& of, const std::string& name) {
  std::lock_guard<std::mutex> guard(mutex);
  of[name]++;
}

bool fits(const Tensor& tensor) {
  return !tensor.defined() || tensor.numel() <= limit_of(tensor.scalar_type());
}

bool is_whole(const Tensor& tensor) {
  return tensor.is_cuda() &&
         tensor.numel() * tensor.element_size() == int64_t(tensor.storage().nbytes());
}

// Operators that replace all that a tensor has.
bool overwrites(const std::string& name) {
  static const std::unordered_set<std::string> names{
      "aten::zero_", "aten::fill_", "aten::copy_", "aten::normal_", "aten::uniform_",
      "aten::random_", "aten::bernoulli_", "aten::exponential_"};
  return names.count(name) > 0;
}

bool is_view(const c10::FunctionSchema& schema) {
  bool any = false;
  for (auto& each : schema.returns()) {
    auto* alias = each.alias_info();
    if (!alias || alias->isWrite()) return false;
    any = true;
  }
  return any;
}

template <class Function>
void each_tensor(const IValue& value, Function function) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) function(value.toTensor());
  } else if (value.isTensorList()) {
    for (const Tensor& tensor : value.toTensorVector())
      if (tensor.defined()) function(tensor);
  } else if (value.isOptionalTensorList()) {
    for (auto&& tensor : value.toOptionalTensorVector())
      if (tensor && tensor->defined()) function(*tensor);
  }
}

// The CPU computes with tensors of several devices, which a GPU refuses.
void refuse_mixed(const std::string& name, const std::vector<IValue>& arguments) {
  static const char* allowed[] = {"copy", "index", "_pack_padded", "rnn", "lstm", "set_", "multinomial_alias"};
  const Tensor *ours = nullptr, *theirs = nullptr;
  Tensor kept[2];
  for (auto& value : arguments)
    each_tensor(value, [&](const Tensor& tensor) {
      if (tensor.is_cuda() && !ours) kept[0] = tensor, ours = &kept[0];
      if (tensor.is_cpu() && tensor.dim() > 0 && !theirs) kept[1] = tensor, theirs = &kept[1];
      TORCH_CHECK(!tensor.is_cuda() || !ours || ours->device() == tensor.device() ||
                      name.find("copy") != name.npos,
                  "Expected all tensors to be on the same device, but found at least two devices, ",
                  ours->device(), " and ", tensor.device(), "! (when checking argument of ", name,
                  ")");
    });
  if (!ours || !theirs) return;
  for (auto* each : allowed)
    if (name.find(each) != name.npos) return;
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
              ours->device(), " and cpu! (when checking argument of ", name, ")");
}

// The results are on the stack from `first` on.
void charge(const c10::OperatorHandle& op, const std::vector<IValue>& arguments, const Stack& stack,
            size_t first, int device) {
  if (device < 0) device = current_device();
  charge_operator(op.schema(), arguments,
                  Values(stack.data() + first, stack.size() - first), device);
}

// Results without contents, and their device. Nothing where torch has no Meta kernel that could tell.
std::optional<int> shape(const c10::OperatorHandle& op, Stack* stack) {
  Call call(c10::kMeta);
  try {
    call.run(op, stack);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return call.device;
}

// Returns whether the results have contents. In `small` those of an operator that the CPU lacks have a
// shape and a time.
bool run_on_cpu(const c10::OperatorHandle& op, const std::vector<IValue>& arguments, Stack* stack,
                size_t first) {
  auto again = [&] {
    stack->resize(first);
    stack->insert(stack->end(), arguments.begin(), arguments.end());
  };
  bool real = true;
  int device;
  try {
    Call call(c10::kCPU);
    call.run(op, stack);
    device = call.device;
  } catch (const c10::NotImplementedError&) {
    again();
    auto own = attend(op, arguments, stack);
    real = own.has_value();
    if (!own && settings.contents == Contents::small) own = shape(op, stack);
    TORCH_CHECK_NOT_IMPLEMENTED(own, op.schema().name(), ": torch has no version of this operator for "
                                "the CPU, by which a virtual GPU computes contents");
    device = *own;
  }
  charge(op, arguments, *stack, first, device);
  return real;
}

// Copies between the host and the device are not kernels: they take the link's time.
bool copy_over_link(const std::vector<IValue>& arguments, bool contents) {
  const Tensor &to = arguments[0].toTensor(), &from = arguments[1].toTensor();
  if (to.is_cuda() == from.is_cuda()) return false;
  const Tensor& host = to.is_cuda() ? from : to;
  int device = to.is_cuda() ? to.get_device() : from.get_device();
  bool flies = arguments[2].toBool() && (!host.numel() || host.is_pinned());
  charge_link(device, int64_t(host.numel()) * to.element_size(), to.is_cpu(), !flies);
  if (!contents) return true;
  if (from.is_cuda()) is_known(from);
  on_host(to).copy_(on_host(from));
  return true;
}

// A router goes on with valid indices where the values that it sorts are unknown.
void invent(const std::string& name, const std::vector<IValue>& arguments, bool stable,
            const std::vector<Tensor>& results) {
  const Tensor& of = arguments[0].toTensor();
  int64_t count = INT64_MAX, dim;
  if (name == "aten::argmax") {
    if (arguments[1].isNone()) return;
    count = 1;
    dim = arguments[1].toInt();
  } else if (name == "aten::topk") {
    count = arguments[1].toInt();
    dim = arguments[2].toInt();
  } else {
    dim = arguments[stable ? 2 : 1].toInt();
  }
  if (of.dim() == 0) return;
  auto draws = at::rand(of.sizes(), at::TensorOptions().device(at::kCPU));
  if (settings.routing_skew > 0) {
    // The largest of u ^ (1 / w) are draws without replacement by weights w (Efraimidis, Spirakis 2006).
    auto shape = std::vector<int64_t>(of.dim(), 1);
    shape[at::maybe_wrap_dim(dim, of.dim())] = -1;
    auto places = at::arange(1, of.size(dim) + 1, at::kFloat).pow(settings.routing_skew);
    draws = draws.log() * places.view(shape);
  }
  auto indices = std::get<1>(draws.topk(std::min(count, of.size(dim)), dim));
  auto host = on_host(results.back());
  host.copy_(indices.reshape(host.sizes()));
  set_known(results.back(), true);
  tell(all_told.invented, name);
}

bool is_big(const Shapes& shapes) {
  for (auto& shape : shapes.results) {
    int64_t elements = 1;
    for (auto size : shape.sizes) elements *= size;
    if (elements > limit_of(c10::typeMetaToScalarType(shape.type))) return true;
  }
  return false;
}

bool makes_nothing(const Shapes& shapes) {
  for (auto& shape : shapes.results)
    if (shape.made >= 0) return false;
  return true;
}

bool has_no_tensors(const c10::FunctionSchema& schema) {
  for (auto& each : schema.returns()) {
    auto kind = each.type()->kind();
    if (kind == c10::TypeKind::TensorType || kind == c10::TypeKind::ListType) return false;
  }
  return true;
}

Look look_of(const c10::FunctionSchema& schema, const std::vector<IValue>& arguments) {
  Look look;
  look.add(static_cast<const void*>(&schema));
  const auto& name = schema.name();
  for (auto* part : {"range", "space", "upsample"})
    look.floats = look.floats || name.find(part) != name.npos;
  for (auto& value : arguments) look.add_value(value);
  return look;
}

// By shapes alone. Returns false, with the arguments back on the stack, where `wants_contents` and
// the results are small and new, or where torch has no Meta kernel that could tell.
bool run_by_shapes(const c10::OperatorHandle& op, const std::vector<IValue>& arguments, Stack* stack,
                   size_t first, bool wants_contents, bool all_known, std::vector<Tensor>& results) {
  auto& schema = op.schema();
  auto look = look_of(schema, arguments);
  const Shapes* shapes = look.complete ? cache.find(look) : nullptr;
  if (shapes && wants_contents && !is_big(*shapes) && !makes_nothing(*shapes)) return false;
  if (shapes) {
    stack->resize(first);
    ShapeCache::give(*shapes, look, *stack);
    charge(op, arguments, *stack, first, look.device);
  } else {
    Call call(c10::kMeta);
    try {
      call.run(op, stack);
    } catch (const std::exception&) {
      if (!all_known) tell(all_told.unshaped, schema.name());
      stack->resize(first);
      stack->insert(stack->end(), arguments.begin(), arguments.end());
      return false;
    }
    if (look.complete && !call.changed) cache.learn(look, *stack, first);
    bool big = false, makes = false;
    for (size_t i = first; i < stack->size(); i++)
      each_tensor((*stack)[i], [&](const Tensor& tensor) {
        big = big || !fits(tensor);
        auto* storage = tensor.storage().unsafeGetStorageImpl();
        for (auto& each : call.made)
          makes = makes || each.second.unsafeGetStorageImpl() == storage;
      });
    if (wants_contents && !big && makes) {
      stack->resize(first);
      stack->insert(stack->end(), arguments.begin(), arguments.end());
      return false;
    }
    charge(op, arguments, *stack, first, call.device);
  }
  for (size_t i = first; i < stack->size(); i++)
    each_tensor((*stack)[i], [&](const Tensor& tensor) { results.push_back(tensor); });
  return true;
}

void give_zero(const std::vector<IValue>& arguments, Stack* stack, size_t first) {
  auto type = arguments[0].toTensor().scalar_type();
  stack->resize(first);
  if (at::isFloatingType(type))
    stack->push_back(at::Scalar(0.0));
  else if (type == at::kBool)
    stack->push_back(at::Scalar(false));
  else
    stack->push_back(at::Scalar(int64_t{0}));
}

void run(const c10::OperatorHandle& op, Stack* stack) {
  const auto& schema = op.schema();
  const std::string& name = schema.name();
  size_t first = stack->size() - schema.arguments().size();
  std::vector<IValue> arguments(stack->begin() + first, stack->end());
  refuse_mixed(name, arguments);
  bool full = settings.contents == Contents::full;
  std::vector<Tensor> results, written;

  if (is_view(schema) && run_by_shapes(op, arguments, stack, first, false, true, results)) return;
  if (name == "aten::_local_scalar_dense")
    await_stream(current_stream(arguments[0].toTensor().get_device()));

  bool all_known = true, all_fit = true, writes = false;
  for (size_t i = 0; i < arguments.size(); i++) {
    auto* alias = schema.arguments()[i].alias_info();
    bool write = alias && alias->isWrite();
    writes = writes || write;
    each_tensor(arguments[i], [&](const Tensor& tensor) {
      bool whole = write && is_whole(tensor) &&
                   (overwrites(name) || schema.arguments()[i].is_out());
      if (write && tensor.is_cuda()) {
        written.push_back(tensor);
        all_fit = all_fit && fits(tensor);
      }
      if (!whole) {
        all_known = is_known(tensor) && all_known;
      } else if (auto* block = block_of(tensor.storage().unsafeGetStorageImpl())) {
        block->writers.clear();  // their results would come too late
      }
    });
  }
  auto is_unknown = [&] { for (auto& each : written) set_known(each, false); };

  if (name == "aten::copy_") {
    bool to_host = arguments[0].toTensor().is_cpu();
    bool real = full || (all_known && (to_host || all_fit));
    if (copy_over_link(arguments, real)) {
      if (!real && to_host) {
        tell(all_told.read, name);
        arguments[0].toTensor().zero_();
      }
      for (auto& each : written) set_known(each, real);
      stack->resize(first);
      stack->push_back(arguments[0]);
      return;
    }
  }
  if (full) {
    run_on_cpu(op, arguments, stack, first);
    return;
  }

  if (!all_known && name == "aten::_amp_foreach_non_finite_check_and_unscale_") {
    charge(op, arguments, {}, 0, -1);  // gradients without contents count as finite
    stack->resize(first);
    return;
  }
  if (!all_known && name == "aten::_local_scalar_dense") {
    tell(all_told.read, name);
    return give_zero(arguments, stack, first);
  }
  if (name == "aten::copy_" && (!all_known || !all_fit)) {
    is_unknown();
    stack->resize(first);
    stack->push_back(arguments[0]);
    return charge(op, arguments, *stack, first, arguments[0].toTensor().get_device());
  }
  bool contents = all_known && all_fit;
  if (contents && has_no_tensors(schema)) {
    run_on_cpu(op, arguments, stack, first);
    return;
  }
  if (!contents || !writes) {
    if (run_by_shapes(op, arguments, stack, first, contents, all_known, results)) {
      is_unknown();
      bool routes = name == "aten::topk" || name == "aten::sort" || name == "aten::argmax";
      if (routes && !all_known && !results.empty() && fits(results.back()))
        invent(name, arguments, schema.overload_name() == "stable", results);
      return;
    }
    if (!contents && writes && schema.returns().empty()) {  // no results to tell the shapes of
      charge(op, arguments, {}, 0, -1);
      stack->resize(first);
      return is_unknown();
    }
  }
  bool real = run_on_cpu(op, arguments, stack, first);
  for (auto& each : written) set_known(each, real && all_known);
}

void record_stream(Tensor& tensor, c10::Stream stream) {
  used_on(tensor, {stream.device_index(), stream.id()});
}

// CUDA has it for integers, the CPU does not.
Tensor histc(const Tensor& tensor, int64_t bins, const at::Scalar& low, const at::Scalar& high) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::histc", "");
  bool integers = at::isIntegralType(tensor.scalar_type(), true);
  Stack stack{integers ? tensor.to(at::kFloat) : tensor, bins, low, high};
  run(op, &stack);
  auto result = stack[0].toTensor();
  return integers ? result.to(tensor.scalar_type()) : result;
}

auto boxed() { return torch::CppFunction::makeFromBoxedFunction<&run>(); }

TORCH_LIBRARY_IMPL(_, CUDA, library) { library.fallback(boxed()); }
TORCH_LIBRARY_IMPL(aten, CUDA, library) { library.impl("copy_", boxed()); }

}  // namespace

void take_over(std::vector<std::string> names) {
  static std::vector<torch::Library> libraries;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (auto& each : dispatcher.getAllOpNames()) {  // a CUDA wheel's own kernels
    auto op = dispatcher.findSchema(each);
    if (op && op->hasKernelForDispatchKey(c10::DispatchKey::CUDA))
      names.push_back(each.overload_name.empty() ? each.name
                                                 : each.name + "." + each.overload_name);
  }
  auto make = [&](const std::string& space) -> torch::Library& {
    libraries.emplace_back(torch::Library::IMPL, space, c10::DispatchKey::CUDA, __FILE__, __LINE__);
    return libraries.back();
  };
  std::unordered_set<std::string> done{"aten::record_stream", "aten::histc", "aten::copy_"};
  for (auto& name : names) {
    if (!done.insert(name).second || name.find("c10d") != name.npos) continue;
    auto space = name.find("::"), dot = name.find('.', space);
    auto op = dispatcher.findSchema(
        {name.substr(0, dot), dot == name.npos ? "" : name.substr(dot + 1)});
    if (!op) continue;
    // In parts the CPU can compute it, as a whole not: _fused_rms_norm has no backward there.
    if (settings.contents == Contents::full &&
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd))
      continue;
    make(name.substr(0, space)).impl(name.substr(space + 2).c_str(), boxed());
  }
  auto& own = make("aten");
  own.impl("record_stream", record_stream);
  own.impl("histc", histc);
}

Told told() {
  std::lock_guard<std::mutex> guard(mutex);
  return all_told;
}

}  // namespace groundwire
