// One run of an operator for the device by another device's kernel: by the CPU's, over the same bytes,
// or by the Meta kernel, which finds out shapes.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <utility>
#include <vector>

namespace groundwire {

class Call {
 public:
  explicit Call(c10::DeviceType to) : to_(to) {}

  // Replaces the arguments on the stack by the results.
  void run(const c10::OperatorHandle& op, torch::jit::Stack* stack);
  at::Tensor alias(const at::Tensor& tensor);  // over the same bytes

  int device = -1;        // of the tensors that were given
  bool changed = false;   // whether a tensor that was given has another size or storage now
  std::vector<std::pair<c10::StorageImpl*, c10::Storage>> made;

 private:
  c10::Storage alias(const c10::Storage& storage);
  void alias(c10::IValue& value);
  c10::Storage ours(const c10::Storage& storage);
  at::Tensor ours(const at::Tensor& tensor);
  void take_over_changes();

  c10::DeviceType to_;
  std::vector<std::pair<c10::StorageImpl*, c10::Storage>> storages_;
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors_;
};

at::Tensor on_host(const at::Tensor& tensor);  // a CPU tensor over the device tensor's bytes

}  // namespace groundwire
