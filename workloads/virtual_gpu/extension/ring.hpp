// A reduce-scatter round a ring of ranks, by Gloo's messages: each rank sends (N - 1)/N of the data, where an
// all-reduce, which torch makes of it over Gloo, sends twice that. It is the program `ring` of
// collectives/algorithms/ring.py, message by message, with that program's slots.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <string>

namespace groundwire {

// Reduces `more` into `sum`.
void reduce_into(at::Tensor& sum, const at::Tensor& more, const c10d::ReduceOp& op);

// A work that knows how it ran, once it is over: JSON, for its record in the rank's log; empty for Gloo's own way.
struct ToldWork : c10d::Work {
  std::string told;
};

constexpr int64_t first_slot = int64_t{1} << 24;  // of programs: below are the tags of messages
constexpr int64_t last_slot = int64_t{1} << 31;

// `in` has the parts of all ranks one after the other, and is used up; `out` gets this rank's. Without `contents`
// nothing is added up. Messages have the tags from `slot` on; so many are taken.
c10::intrusive_ptr<ToldWork> ring_reduce_scatter(c10::intrusive_ptr<c10d::Backend> by, at::Tensor out, at::Tensor in,
                                                 const c10d::ReduceOp& op, bool contents, int64_t slot);
int64_t ring_slots(int64_t ranks);

}  // namespace groundwire
