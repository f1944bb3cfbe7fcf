// The network of `network: simulated`: what collectives exchange goes through the compiled simulator, which a process
// beside the ranks has (emulator/ranks/simulated/broker.py). It is told of each rank's part of a collective, and tells
// the rank when that part is over.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <string>
#include <vector>

namespace groundwire {

// In place of Gloo, between the ranks of a group that has this name among all of the run.
c10::intrusive_ptr<c10d::Backend> simulated_backend(const std::string& group,
                                                    const std::vector<int64_t>& ranks, int rank,
                                                    std::chrono::milliseconds timeout);

// Whether what this thread posts has contents, which ranks then hand over by files that all of them see.
void hand_over_contents(bool has_contents);
bool carries_contents();

}  // namespace groundwire
