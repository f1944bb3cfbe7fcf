#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <vector>

namespace groundwire {

// Attention and its backward pass, with contents, by fused operators that torch has for CUDA alone.
// Replaces the arguments on the stack by the results, and returns their device. Nothing, with the
// stack as it was, for other operators, and where scores are dropped by a GPU's own draws.
std::optional<int> attend(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                          torch::jit::Stack* stack);

// Has scaled_dot_product_attention choose among these operators as on a GPU.
void install_attention();

}  // namespace groundwire
