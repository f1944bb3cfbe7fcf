#include "call.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstring>

#include "device.hpp"
#include "memory.hpp"

namespace groundwire {
namespace {

using at::Tensor;
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::Storage;
using c10::StorageImpl;

void let_go(void* storage) {
  c10::raw::intrusive_ptr::decref(static_cast<StorageImpl*>(storage));
}

const auto excluded = c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset |
                      DispatchKeySet(DispatchKey::ADInplaceOrView);

}  // namespace

// The alias's context is the device's storage, by which results are known again.
Storage Call::alias(const Storage& storage) {
  auto* own = storage.unsafeGetStorageImpl();
  for (auto& each : storages_)
    if (each.first == own) return each.second;
  if (own->device_type() == c10::kCUDA && device < 0) device = own->device().index();
  c10::raw::intrusive_ptr::incref(own);
  c10::DataPtr data(to_ == c10::kCPU ? own->mutable_data() : nullptr, own, &let_go,
                    c10::Device(to_));
  Storage made(Storage::use_byte_size_t(), own->nbytes(), std::move(data), c10::GetAllocator(to_),
               true);
  storages_.push_back({own, made});
  return made;
}

Tensor Call::alias(const Tensor& tensor) {
  if (!tensor.defined() || tensor.is_meta()) return tensor;
  // A Python number in a tensor must stay the CPU's.
  if (!tensor.is_cuda() && (to_ == c10::kCPU || tensor.dim() == 0)) return tensor;
  for (auto& each : tensors_)
    if (each.first.is_same(tensor)) return each.second;
  auto key = to_ == c10::kCPU ? DispatchKey::CPU : DispatchKey::Meta;
  auto made = at::detail::make_tensor<c10::TensorImpl>(alias(tensor.storage()),
                                                       DispatchKeySet(key), tensor.dtype());
  auto* own = made.unsafeGetTensorImpl();
  own->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) own->set_wrapped_number(true);
  if (tensor.is_conj()) own->_set_conj(true);
  if (tensor.is_neg()) own->_set_neg(true);
  tensors_.push_back({tensor, made});
  return made;
}

void Call::alias(c10::IValue& value) {
  if (value.isTensor()) {
    value = alias(value.toTensor());
  } else if (value.isTensorList()) {
    std::vector<Tensor> list;
    for (const Tensor& tensor : value.toTensorVector()) list.push_back(alias(tensor));
    value = list;
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (auto&& tensor : value.toOptionalTensorVector())
      list.push_back(tensor ? std::optional<Tensor>(alias(*tensor)) : std::nullopt);
    value = list;
  } else if (value.isStorage()) {
    value = alias(value.toStorage());
  } else if (value.isDevice() && value.toDevice().is_cuda()) {
    int number = value.toDevice().index();
    if (device < 0) device = number < 0 ? current_device() : number;
    value = c10::Device(to_);
  } else if (value.isGenerator() && value.toGenerator().device().is_cuda()) {
    value = drawing(value.toGenerator());
  }
}

// The device storage behind one of the results.
Storage Call::ours(const Storage& storage) {
  auto* theirs = storage.unsafeGetStorageImpl();
  auto& data = theirs->data_ptr();
  if (data.get_deleter() == &let_go) {
    auto* own = static_cast<StorageImpl*>(data.get_context());
    return Storage(c10::intrusive_ptr<StorageImpl>::reclaim_copy(own));
  }
  for (auto& each : made)
    if (each.first == theirs) return each.second;
  int number = device < 0 ? current_device() : device;
  c10::DataPtr own;
  if (data.get_deleter() == &give_memory) {
    own = theirs->set_data_ptr(c10::DataPtr());
    own.unsafe_set_device(c10::Device(c10::kCUDA, number));
  } else {
    own = take_memory(number, theirs->nbytes(), to_ == c10::kCPU);
    if (to_ == c10::kCPU && theirs->nbytes()) memcpy(own.get(), theirs->data(), theirs->nbytes());
  }
  Storage result(Storage::use_byte_size_t(), theirs->nbytes(), std::move(own), device_allocator(),
                 true);
  made.push_back({theirs, result});
  return result;
}

Tensor Call::ours(const Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cuda() || (!tensor.is_meta() && to_ == c10::kMeta))
    return tensor;
  for (auto& each : tensors_)
    if (each.second.is_same(tensor)) return each.first;
  auto result = at::detail::make_tensor<c10::TensorImpl>(
      ours(tensor.storage()), DispatchKeySet(DispatchKey::CUDA), tensor.dtype());
  auto* own = result.unsafeGetTensorImpl();
  own->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.is_conj()) own->_set_conj(true);
  if (tensor.is_neg()) own->_set_neg(true);
  return result;
}

// resize_, set_ and out= change what was given.
void Call::take_over_changes() {
  for (auto& [given, alias] : tensors_) {
    if (!given.is_cuda()) continue;
    auto* tensor = given.unsafeGetTensorImpl();
    auto* theirs = alias.storage().unsafeGetStorageImpl();
    auto* own = given.storage().unsafeGetStorageImpl();
    auto& data = theirs->data_ptr();
    if (data.get_deleter() == &let_go && data.get_context() != own) {
      changed = true;
      tensor->set_storage_keep_dtype(ours(alias.storage()));
    } else if (data.get_deleter() == &give_memory) {
      changed = true;
      auto moved = theirs->set_data_ptr(c10::DataPtr());
      moved.unsafe_set_device(own->device());
      own->set_data_ptr_noswap(std::move(moved));
      own->set_nbytes(theirs->nbytes());
    } else if (theirs->nbytes() != own->nbytes()) {
      changed = true;
      own->set_data_ptr_noswap(take_memory(own->device().index(), theirs->nbytes(), false));
      own->set_nbytes(theirs->nbytes());
    }
    if (alias.sizes() != given.sizes() || alias.strides() != given.strides() ||
        alias.storage_offset() != given.storage_offset()) {
      changed = true;
      tensor->set_sizes_and_strides(alias.sizes(), alias.strides(), alias.storage_offset());
    }
  }
}

void Call::run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  auto& schema = op.schema();
  size_t first = stack->size() - schema.arguments().size();
  for (size_t i = first; i < stack->size(); i++) {
    auto& value = (*stack)[i];
    bool draws = to_ == c10::kCPU && value.isNone() &&
                 schema.arguments()[i - first].name() == "generator";
    if (draws)
      value = drawing(default_generator(device));
    else
      alias(value);
  }
  {
    c10::impl::ExcludeDispatchKeyGuard keys(excluded);
    at::RecordFunctionGuard unseen(false);  // a GPU's profile has no operators of how it computes
    HostHandsOut host(to_ == c10::kCPU ? (device < 0 ? current_device() : device) : -1);
    op.callBoxed(stack);
  }
  for (size_t i = first; i < stack->size(); i++) {
    auto& value = (*stack)[i];
    if (value.isTensor()) {
      value = ours(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<Tensor> list;
      for (const Tensor& tensor : value.toTensorVector()) list.push_back(ours(tensor));
      value = list;
    }
  }
  take_over_changes();
}

Tensor on_host(const Tensor& tensor) {
  return Call(c10::kCPU).alias(tensor);
}

}  // namespace groundwire
