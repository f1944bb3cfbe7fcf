#include "memory.hpp"

#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "meter.hpp"
#include "settings.hpp"

namespace groundwire {
namespace {

// Sizes of torch 2's CUDACachingAllocator.
constexpr size_t smallest = 512, small_size = 1 << 20, small_segment = 2 << 20;
constexpr size_t large_segment = 20 << 20, least_large = 10 << 20, round_large = 2 << 20;

// Addresses of a device: twice its memory, for segments that come to lie apart.
size_t address_space() { return 2 * size_t(settings.memory_bytes); }

struct Piece {             // of a segment
  size_t offset, size;
  int64_t stream;
  bool small, allocated = false;
  Piece *before = nullptr, *after = nullptr;
  size_t requested = 0;
  std::set<int64_t> used_on;
  Block block{};
};

struct BySize {
  bool operator()(const Piece* a, const Piece* b) const {
    if (a->stream != b->stream) return a->stream < b->stream;
    if (a->size != b->size) return a->size < b->size;
    return a->offset < b->offset;
  }
};

struct Device {
  char* base = nullptr;
  size_t reserved = 0, limit = 0;
  std::map<size_t, size_t> holes;                     // of addresses, offset -> size
  std::set<Piece*, BySize> cached[2];                 // large, small
  std::vector<std::pair<Piece*, std::vector<MomentPtr>>> awaiting;  // freed, in use by a stream
  Statistics counts;
};

std::recursive_mutex mutex;
Device devices[64];
std::unordered_map<void*, Piece*> pieces;              // in use, by address
thread_local int device_now = 0;
thread_local int hands_out = -1;
thread_local std::map<int, int64_t> streams_now;

Device& device_at(int number) {
  auto& device = devices[number];
  if (!device.base) {
    // A process of a guest has 256 GiB of addresses: less room for holes is better than none.
    size_t space = address_space(), memory = size_t(settings.memory_bytes);
    void* base;
    while ((base = mmap(nullptr, space, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                        0)) == MAP_FAILED && space > memory)
      space -= memory / 4;
    TORCH_CHECK(base != MAP_FAILED, "no address space for a virtual GPU's memory");
    device.base = static_cast<char*>(base);
    device.holes[0] = space;
    device.limit = settings.memory_bytes;
  }
  return device;
}

void count(Statistics::Counter* counters, bool small, int64_t by) {
  counters[0].add(by);
  counters[small ? 1 : 2].add(by);
}

size_t rounded(size_t bytes) { return std::max(smallest, (bytes + 511) & ~size_t{511}); }

size_t segment_of(size_t size) {
  if (size <= small_size) return small_segment;
  if (size < least_large) return large_segment;
  return (size + round_large - 1) / round_large * round_large;
}

bool is_split(const Piece* piece) { return piece->before || piece->after; }

// The piece becomes one that can be handed out again, together with free neighbours.
void release(Device& device, Piece* piece) {
  count(device.counts.active, piece->small, -1);
  count(device.counts.active_bytes, piece->small, -int64_t(piece->size));
  auto& pool = device.cached[piece->small];
  for (auto* other : {piece->before, piece->after}) {
    if (!other || other->allocated || !pool.count(other)) continue;
    pool.erase(other);
    count(device.counts.inactive_splits, piece->small, -1);
    count(device.counts.inactive_split_bytes, piece->small, -int64_t(other->size));
    if (other == piece->before) {
      piece->offset = other->offset;
      piece->before = other->before;
      if (piece->before) piece->before->after = piece;
    } else {
      piece->after = other->after;
      if (piece->after) piece->after->before = piece;
    }
    piece->size += other->size;
    delete other;
  }
  pool.insert(piece);
  if (is_split(piece)) {
    count(device.counts.inactive_splits, piece->small, 1);
    count(device.counts.inactive_split_bytes, piece->small, piece->size);
  }
}

void release_what_came(Device& device, bool all) {
  auto& waiting = device.awaiting;
  for (size_t i = 0; i < waiting.size();) {
    auto& moments = waiting[i].second;
    if (all)
      for (auto& moment : moments) await_moment(moment);
    if (std::all_of(moments.begin(), moments.end(), has_come)) {
      release(device, waiting[i].first);
      waiting.erase(waiting.begin() + i);
    } else {
      i++;
    }
  }
}

Piece* find_cached(Device& device, size_t size, int64_t stream, bool small) {
  auto& pool = device.cached[small];
  Piece key{0, size, stream, small};
  auto found = pool.lower_bound(&key);
  if (found == pool.end() || (*found)->stream != stream) return nullptr;
  auto* piece = *found;
  pool.erase(found);
  if (is_split(piece)) {
    count(device.counts.inactive_splits, small, -1);
    count(device.counts.inactive_split_bytes, small, -int64_t(piece->size));
  }
  return piece;
}

Piece* new_segment(Device& device, size_t size, int64_t stream, bool small) {
  if (device.reserved + size > device.limit) return nullptr;
  for (auto hole = device.holes.begin(); hole != device.holes.end(); ++hole) {
    auto [offset, room] = *hole;
    if (room < size) continue;
    device.holes.erase(hole);
    if (room > size) device.holes[offset + size] = room - size;
    device.reserved += size;
    meter_reserved(&device - devices, size);
    device.counts.device_allocations++;
    count(device.counts.segments, small, 1);
    count(device.counts.reserved, small, size);
    return new Piece{offset, size, stream, small};
  }
  return nullptr;
}

// Returns whole segments that nothing is in.
void release_cached(Device& device) {
  release_what_came(device, true);
  for (auto& pool : device.cached)
    for (auto each = pool.begin(); each != pool.end();) {
      auto* piece = *each;
      if (is_split(piece)) {
        ++each;
        continue;
      }
      each = pool.erase(each);
      device.reserved -= piece->size;
      meter_reserved(&device - devices, -int64_t(piece->size));
      device.counts.device_frees++;
      count(device.counts.segments, piece->small, -1);
      count(device.counts.reserved, piece->small, -int64_t(piece->size));
      madvise(device.base + piece->offset, piece->size, MADV_DONTNEED);
      auto hole = device.holes.emplace(piece->offset, piece->size).first;
      auto next = std::next(hole);
      if (next != device.holes.end() && hole->first + hole->second == next->first) {
        hole->second += next->second;
        device.holes.erase(next);
      }
      if (hole != device.holes.begin()) {
        auto last = std::prev(hole);
        if (last->first + last->second == hole->first) {
          last->second += hole->second;
          device.holes.erase(hole);
        }
      }
      delete piece;
    }
}

std::string size_text(size_t bytes) {
  char text[64];
  if (bytes < size_t{1} << 20)
    snprintf(text, sizeof text, "%.2f KiB", bytes / 1024.0);
  else if (bytes < size_t{1} << 30)
    snprintf(text, sizeof text, "%.2f MiB", bytes / 1048576.0);
  else
    snprintf(text, sizeof text, "%.2f GiB", bytes / 1073741824.0);
  return text;
}

Piece* find_piece(int number, size_t bytes) {
  auto& device = device_at(number);
  size_t size = rounded(bytes);
  bool small = size <= small_size;
  int64_t stream = current_stream(number).second;
  release_what_came(device, false);
  size_t segment = segment_of(size);
  Piece* piece = find_cached(device, size, stream, small);
  if (!piece) piece = new_segment(device, segment, stream, small);
  if (!piece) {
    device.counts.retries++;
    release_cached(device);
    piece = new_segment(device, segment, stream, small);
  }
  if (!piece) {
    device.counts.out_of_memory++;
    size_t allocated = device.counts.allocated[0].current;
    // The words are torch's own, by which scripts and people know the error.
    TORCH_CHECK_WITH(
        OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", size_text(segment),
        ". GPU ", number, " has a total capacity of ", size_text(settings.memory_bytes),
        " of which ", size_text(device.limit - device.reserved),
        " is free. Of the allocated memory ", size_text(allocated), " is allocated by PyTorch, and ",
        size_text(device.reserved - allocated), " is reserved by PyTorch but unallocated. If "
        "reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.");
  }
  size_t rest = piece->size - size;
  if (small ? rest >= smallest : rest > small_size) {
    auto* tail = new Piece{piece->offset + size, rest, stream, small};
    tail->before = piece;
    tail->after = piece->after;
    if (tail->after) tail->after->before = tail;
    piece->after = tail;
    piece->size = size;
    device.cached[small].insert(tail);
    count(device.counts.inactive_splits, small, 1);
    count(device.counts.inactive_split_bytes, small, rest);
  }
  piece->allocated = true;
  piece->requested = bytes;
  count(device.counts.allocations, small, 1);
  count(device.counts.allocated, small, piece->size);
  count(device.counts.active, small, 1);
  count(device.counts.active_bytes, small, piece->size);
  count(device.counts.requested, small, bytes);
  return piece;
}

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    return take_memory(device_now, bytes, settings.contents == Contents::full);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_memory; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    if (settings.contents == Contents::full) memcpy(to, from, bytes);
  }
};
DeviceAllocator on_device;

c10::Allocator* cpus_own = nullptr;

void give_either(void* address) {
  {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    if (!pieces.count(address)) {
      cpus_own->raw_deleter()(address);
      return;
    }
  }
  give_memory(address);
}

// An operator that runs on the CPU for the device has its results in the device's memory.
struct HostAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (hands_out < 0) return cpus_own->allocate(bytes);
    auto taken = take_memory(hands_out, bytes, true);
    taken.unsafe_set_device(c10::Device(c10::kCPU));
    return taken;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_either; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    memcpy(to, from, bytes);
  }
};

std::map<void*, std::pair<c10::DataPtr*, size_t>> pinned;

void unpin(void* address) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  auto found = pinned.find(address);
  delete found->second.first;
  pinned.erase(found);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    auto* data = new c10::DataPtr(c10::GetDefaultCPUAllocator()->allocate(bytes ? bytes : 1));
    void* address = data->get();
    std::lock_guard<std::recursive_mutex> guard(mutex);
    pinned[address] = {data, bytes};
    return c10::DataPtr(address, address, &unpin, c10::Device(c10::kCPU));
  }
  c10::DeleterFnPtr raw_deleter() const override { return &unpin; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    memcpy(to, from, bytes);
  }
};
PinnedAllocator on_host;

}  // namespace

void Statistics::Counter::add(int64_t by) {
  current += by;
  peak = std::max(peak, current);
  highest = std::max(highest, current);
  (by > 0 ? added : removed) += by > 0 ? by : -by;
}

int current_device() { return device_now; }
void set_current_device(int device) { device_now = device; }

StreamKey current_stream(int device) {
  if (device < 0) device = device_now;
  return {device, streams_now[device]};
}

void set_current_stream(int device, int64_t number) { streams_now[device] = number; }

c10::Allocator* device_allocator() { return &on_device; }
c10::Allocator* pinned_allocator() { return &on_host; }

bool is_pinned(const void* address) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  auto found = pinned.upper_bound(const_cast<void*>(address));
  if (found == pinned.begin()) return false;
  --found;
  return static_cast<const char*>(address) <
         static_cast<char*>(found->first) + std::max<size_t>(found->second.second, 1);
}

int device_of(const void* address) {
  auto* byte = static_cast<const char*>(address);
  for (int i = 0; i < settings.devices; i++)
    if (devices[i].base && byte >= devices[i].base && byte < devices[i].base + address_space())
      return i;
  return -1;
}

at::DataPtr take_memory(int number, size_t bytes, bool known) {
  c10::Device place(c10::kCUDA, number);
  if (!bytes) return at::DataPtr(nullptr, nullptr, &c10::detail::deleteNothing, place);
  std::lock_guard<std::recursive_mutex> guard(mutex);
  auto* piece = find_piece(number, bytes);
  void* address = devices[number].base + piece->offset;
  piece->block = {number, known, {}};
  pieces[address] = piece;
  // The context is the address, which `raw_allocate` demands.
  return at::DataPtr(address, address, &give_memory, place);
}

void give_memory(void* address) {
  if (!address) return;
  decltype(Block::writers) dropped;  // after the lock is
  std::lock_guard<std::recursive_mutex> guard(mutex);
  auto found = pieces.find(address);
  auto* piece = found->second;
  pieces.erase(found);
  dropped.swap(piece->block.writers);
  auto& device = devices[piece->block.device];
  if (piece->size >= small_size) madvise(address, piece->size, MADV_DONTNEED);
  piece->allocated = false;
  count(device.counts.allocations, piece->small, -1);
  count(device.counts.allocated, piece->small, -int64_t(piece->size));
  count(device.counts.requested, piece->small, -int64_t(piece->requested));
  if (piece->used_on.empty()) {
    release(device, piece);
    return;
  }
  std::vector<MomentPtr> moments;
  for (auto stream : piece->used_on)
    moments.push_back(record_moment({piece->block.device, stream}));
  piece->used_on.clear();
  device.awaiting.push_back({piece, std::move(moments)});
}

Block* block_of(const c10::StorageImpl* storage) {
  auto& data = storage->data_ptr();
  if (data.get_deleter() != &give_memory) return nullptr;
  std::lock_guard<std::recursive_mutex> guard(mutex);
  auto found = pieces.find(data.get_context());
  return found == pieces.end() ? nullptr : &found->second->block;
}

bool is_known(const at::Tensor& tensor) {
  if (!tensor.is_cuda() || tensor.numel() == 0) return true;
  auto* block = block_of(tensor.storage().unsafeGetStorageImpl());
  if (!block) return false;
  auto writers = std::move(block->writers);
  block->writers.clear();
  for (auto& [collective, write] : writers) {
    await_carried(*collective);
    if (collective->abandoned)
      block->known = false;
    else
      write(*block);
  }
  return block->known;
}

void set_known(const at::Tensor& tensor, bool known) {
  if (auto* block = block_of(tensor.storage().unsafeGetStorageImpl())) block->known = known;
}

void used_on(const at::Tensor& tensor, const StreamKey& stream) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  auto found = pieces.find(tensor.storage().data_ptr().get_context());
  if (found != pieces.end() && found->second->stream != stream.second)
    found->second->used_on.insert(stream.second);
}

HostHandsOut::HostHandsOut(int device) : before_(hands_out) { hands_out = device; }
HostHandsOut::~HostHandsOut() { hands_out = before_; }

Statistics statistics(int number) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  return devices[number].counts;
}

template <class Function>
static void each_counter(Statistics& counts, Function function) {
  for (auto* counters :
       {counts.allocations, counts.segments, counts.active, counts.inactive_splits,
        counts.allocated, counts.reserved, counts.active_bytes, counts.inactive_split_bytes,
        counts.requested})
    for (int i = 0; i < 3; i++) function(counters[i]);
}

void reset_peaks(int number) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  each_counter(devices[number].counts, [](auto& counter) { counter.reset_peak(); });
}

void reset_sums(int number) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  auto& counts = devices[number].counts;
  each_counter(counts, [](auto& counter) { counter.reset_sums(); });
  counts.retries = counts.out_of_memory = 0;
}

void empty_cache() {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  for (auto& device : devices)
    if (device.base) release_cached(device);
}

void set_fraction(int number, double fraction) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  device_at(number).limit = settings.memory_bytes * fraction;
}

void install_memory() {
  static HostAllocator host;
  cpus_own = c10::GetCPUAllocator();
  c10::SetCPUAllocator(&host, 1);
  c10::SetAllocator(c10::kCUDA, &on_device);
}

}  // namespace groundwire
