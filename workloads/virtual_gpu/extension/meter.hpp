// A page of figures of a device that this process uses, for others. NVML's stand-in reads it (nvml/nvml.cpp).
#pragma once
#include <cstdint>

namespace groundwire {

// Busy time by sixths of a second, the shortest sample that NVML speaks of (nvmlUtilization_t).
constexpr int64_t sample_ns = 1000000000 / 6;
constexpr int64_t samples = 64;

struct MeterPage {
  int64_t reserved_bytes = 0;
  int64_t process = 0;
  struct Sample {
    int64_t number = -1, busy_ns = 0;  // `number` x sample_ns is when it begins
  } busy[samples];
};

void meter_reserved(int device, int64_t by);
void meter_busy(int device, int64_t begin_ns, int64_t end_ns);

}  // namespace groundwire
