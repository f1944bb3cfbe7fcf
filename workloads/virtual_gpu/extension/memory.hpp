// The device's memory: a caching allocator with the rules of torch's own for CUDA
// (c10/cuda/CUDACachingAllocator.cpp), over addresses that cost nothing until they are written.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "timeline.hpp"

namespace groundwire {

// Memory of a storage. `known`: its contents are real. `writers`: collectives whose results they will
// be, each with what writes its result when it is over.
struct Block {
  int device;
  bool known;
  std::vector<std::pair<CollectivePtr, std::function<void(Block&)>>> writers;
};

int current_device();
void set_current_device(int device);
StreamKey current_stream(int device = -1);
void set_current_stream(int device, int64_t number);

c10::Allocator* device_allocator();
c10::Allocator* pinned_allocator();
bool is_pinned(const void* address);
int device_of(const void* address);  // -1: no device's

at::DataPtr take_memory(int device, size_t bytes, bool known);
void give_memory(void* address);     // the deleter of all that `take_memory` returns
Block* block_of(const c10::StorageImpl* storage);  // nullptr: not the device's

bool is_known(const at::Tensor& tensor);           // waits for a collective that decides it
void set_known(const at::Tensor& tensor, bool known);
void used_on(const at::Tensor& tensor, const StreamKey& stream);  // record_stream

// While one is alive, what the CPU's allocator hands out in this thread is the device's memory.
class HostHandsOut {
 public:
  explicit HostHandsOut(int device);
  ~HostHandsOut();

 private:
  int before_;
};

struct Statistics {
  struct Counter {
    int64_t current = 0, peak = 0, added = 0, removed = 0;
    int64_t highest = 0;  // as the peak, which a program may reset
    void add(int64_t by);
    void reset_peak() { peak = current; }
    void reset_sums() { added = removed = 0; }
  };
  // By pool: all, small, large.
  Counter allocations[3], segments[3], active[3], inactive_splits[3];
  Counter allocated[3], reserved[3], active_bytes[3], inactive_split_bytes[3], requested[3];
  int64_t retries = 0, out_of_memory = 0, device_allocations = 0, device_frees = 0;
};

Statistics statistics(int device);
void reset_peaks(int device);
void reset_sums(int device);
void empty_cache();
void set_fraction(int device, double fraction);
void install_memory();

}  // namespace groundwire
