// What ranks contribute, reduced on the host.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <functional>

namespace groundwire {

inline void reduce_into(at::Tensor& sum, const at::Tensor& more, const c10d::ReduceOp& op) {
  using c10d::ReduceOp;
  switch (op.op_) {
    case ReduceOp::SUM: sum.add_(more); return;
    case ReduceOp::PRODUCT: sum.mul_(more); return;
    case ReduceOp::MIN: sum.copy_(at::minimum(sum, more)); return;
    case ReduceOp::MAX: sum.copy_(at::maximum(sum, more)); return;
    case ReduceOp::BAND: sum.bitwise_and_(more); return;
    case ReduceOp::BOR: sum.bitwise_or_(more); return;
    case ReduceOp::BXOR: sum.bitwise_xor_(more); return;
    default: TORCH_CHECK(false, "nccl on a virtual GPU does not reduce by operation ", int(op.op_));
  }
}

// The contributions of members, in their order: half precision is added up in single, as NCCL does.
inline at::Tensor reduced(int64_t members, const std::function<at::Tensor(int64_t)>& of, const c10d::ReduceOp& op) {
  auto wide = [&](int64_t member) {
    auto line = of(member);
    bool half = line.scalar_type() == at::kHalf || line.scalar_type() == at::kBFloat16;
    return half ? line.to(at::kFloat) : line;
  };
  auto sum = wide(0).clone();
  for (int64_t member = 1; member < members; member++) reduce_into(sum, wide(member), op);
  return sum;
}

}  // namespace groundwire
