// The device as the run's plan describes it. Set once, before anything uses the device.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace groundwire {

enum class Contents { small, full };

// (size from which on, share of the peak), from the largest size on; none: all of it.
struct Steps : std::vector<std::pair<double, double>> {
  double at(double size) const {
    for (auto& [least, share] : *this)
      if (size >= least) return share;
    return 1;
  }
};

struct Settings {
  Contents contents = Contents::small;
  int devices = 1;
  int64_t memory_bytes = int64_t{80} << 30;
  int64_t float_elements = 4096;        // `small`: larger floating-point tensors have no contents
  int64_t integer_elements = 1 << 22;   // `small`: likewise for integers and booleans
  double flops_16bit_per_s = 0;         // 0: no roofline, kernels take `overhead_ns`
  double flops_32bit_per_s = 0;
  double memory_bytes_per_s = 0;
  // Shares of these peaks that kernels reach: by FLOP, by the sequence's length, by bytes.
  Steps matrix, attention, attention_backward, memory;
  double link_bytes_per_s = 0;          // between the host and the device
  int64_t overhead_ns = 0;              // of each kernel, on the device
  int64_t launch_ns = 0;                // of each launch, on the host
  int64_t slowdown = 1;
  int64_t payload_share = 1;            // of a message without contents, one in so many bytes is sent
  int64_t payload_least_bytes = 0;      // of a message, so many are sent if it has them
  double routing_skew = 0;              // invented choices: index i has a weight of (i + 1) ^ -skew
  bool steps_clock = false;             // time passes by waiting only, for tests in one process
  std::string marks;                    // a directory that all ranks share
  std::string simulated;                // that of the simulated network; empty where packets are sent
};

extern Settings settings;

}  // namespace groundwire
