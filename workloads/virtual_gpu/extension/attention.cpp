// Fused attention's contents, in float32 on the CPU by its definition (Vaswani and others 2017; the
// backward pass is algorithm 4 of Dao and others, FlashAttention, 2022, all at once). Results have the
// shapes that the Meta kernels tell, which are the GPU's.
#include "attention.hpp"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/record_function.h>

#include <cmath>
#include <string>

#include "call.hpp"
#include "memory.hpp"
#include "settings.hpp"

namespace groundwire {
namespace {

using at::Tensor;
using c10::IValue;

struct Arguments {
  const c10::FunctionSchema& schema;
  const std::vector<IValue>& values;

  const IValue& operator[](const char* name) const {
    return values[*schema.argumentIndexWithName(name)];
  }
  Tensor floats(const char* name) const { return on_host((*this)[name].toTensor()).to(at::kFloat); }
  bool has(const char* name) const {
    return schema.argumentIndexWithName(name) && (*this)[name].isTensor() &&
           (*this)[name].toTensor().defined();
  }
};

// Tensors are (batch, heads, length, size); keys and values may have fewer heads, a group's own.
struct Attention {
  Tensor q, k, v, scores, shares;
  int64_t group;
  double scale;

  explicit Attention(const Arguments& given)
      : q(given.floats("query")), k(given.floats("key")), v(given.floats("value")) {
    auto told = given["scale"];
    scale = told.isNone() ? 1 / std::sqrt(double(q.size(-1))) : told.toDouble();
    group = q.size(1) / k.size(1);
    k = k.repeat_interleave(group, 1);
    v = v.repeat_interleave(group, 1);
    scores = q.matmul(k.transpose(-2, -1)).mul_(scale);
    if (given.has("attn_bias")) scores.add_(given.floats("attn_bias"));
    if (given["is_causal"].toBool()) {
      auto later = at::ones({q.size(2), k.size(2)}, at::kBool).triu(1);
      scores.masked_fill_(later, -INFINITY);
    }
    shares = at::_safe_softmax(scores, -1);
  }

  // The gradient of a key or a value: the sum over the heads that share it.
  Tensor of_group(const Tensor& gradient) const {
    return group == 1 ? gradient : gradient.unflatten(1, {-1, group}).sum(2);
  }

  std::vector<Tensor> forward() const { return {shares.matmul(v), scores.logsumexp(-1)}; }

  std::vector<Tensor> backward(const Tensor& of_result) const {
    auto of_shares = of_result.matmul(v.transpose(-2, -1));
    auto of_scores = shares * (of_shares - (of_shares * shares).sum(-1, true));
    return {of_scores.matmul(k).mul_(scale),
            of_group(of_scores.transpose(-2, -1).matmul(q).mul_(scale)),
            of_group(shares.transpose(-2, -1).matmul(of_result)), of_scores};
  }
};

// A GPU's results may have rows that are longer than what is in them.
void put(const Tensor& result, const Tensor& value) {
  auto host = on_host(result);
  host.zero_();
  if (value.defined() && host.numel()) {
    auto filled = host.narrow(-1, 0, std::min(host.size(-1), value.size(-1)));
    filled.copy_(at::sum_to(value, filled.sizes()));
  }
  set_known(result, true);
}

// Which kernel attention has is no operator's choice but a stub's.
int64_t choose_attention(const Tensor& q, const Tensor&, const Tensor& v,
                         const std::optional<Tensor>& mask, double, bool, std::optional<double>,
                         bool) {
  auto& context = at::globalContext();
  enum { math, flash, efficient };
  if (settings.contents == Contents::full && context.userEnabledMathSDP()) return math;
  bool half = q.scalar_type() == at::kHalf || q.scalar_type() == at::kBFloat16;
  bool plain = q.sym_size(-1) == v.sym_size(-1) && !(mask && mask->defined());
  if (half && plain && context.userEnabledFlashSDP()) return flash;
  if (context.userEnabledMemEfficientSDP()) return efficient;
  return math;
}

}  // namespace

std::optional<int> attend(const c10::OperatorHandle& op, const std::vector<IValue>& arguments,
                          torch::jit::Stack* stack) {
  auto& schema = op.schema();
  static const std::string kinds[] = {"aten::_scaled_dot_product_flash_attention",
                                      "aten::_scaled_dot_product_efficient_attention"};
  bool back = false, is_attention = false;
  for (auto& kind : kinds) {
    back = back || schema.name() == kind + "_backward";
    is_attention = is_attention || back || schema.name() == kind;
  }
  Arguments given{schema, arguments};
  if (!is_attention || !schema.overload_name().empty() || given["dropout_p"].toDouble() > 0)
    return std::nullopt;
  size_t first = stack->size() - arguments.size();
  Call shapes(c10::kMeta);
  shapes.run(op, stack);
  at::RecordFunctionGuard unseen(false);
  at::NoGradGuard without;
  Attention attention(given);
  auto values = back ? attention.backward(given.floats(given.has("grad_out") ? "grad_out" : "grad_out_"))
                     : attention.forward();
  for (size_t i = first; i < stack->size(); i++) {
    auto& result = (*stack)[i];
    if (!result.isTensor() || !result.toTensor().defined()) continue;
    put(result.toTensor(), i - first < values.size() ? values[i - first] : Tensor());
  }
  return shapes.device;
}

void install_attention() {
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose_attention);
}

}  // namespace groundwire
