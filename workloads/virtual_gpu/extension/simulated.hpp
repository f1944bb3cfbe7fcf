// The network of `network: simulated`: what collectives exchange goes through the compiled simulator, which a process
// beside the ranks has (emulator/ranks/simulated/broker.py). It is told of each rank's part of a collective, and tells
// the rank when that part is over.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <string>
#include <vector>

namespace groundwire {

// In place of Gloo, between the ranks of a group that has this name among all of the run. `gloo` is what has connected
// them, as it would over the emulated network: ranks go on when they would there.
c10::intrusive_ptr<c10d::Backend> simulated_backend(const std::string& group, const std::vector<int64_t>& ranks,
                                                    int rank, std::chrono::milliseconds timeout,
                                                    c10::intrusive_ptr<c10d::Backend> gloo);

// A rank's end of its connection with another of the group, by its number there, has measured this when it was made, in
// microseconds: the round trip of the handshake, and of the bytes that it sent first, -1 where nothing tells. The
// simulated network's connections begin with it.
struct Handshake {
  int64_t peer, handshake_us, greeting_us;
};
void tell_handshakes(c10d::Backend& simulated, const std::vector<Handshake>& found);

// Whether what this thread posts has contents, which ranks then hand over by files that all of them see.
void hand_over_contents(bool has_contents);
bool carries_contents();

}  // namespace groundwire
