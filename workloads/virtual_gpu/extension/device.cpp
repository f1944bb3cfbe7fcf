// The device as torch's core asks for it: guard, hooks, generators.
#include "device.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Registry.h>
#include <pthread.h>

#include <atomic>
#include <mutex>

#include "clock.hpp"
#include "memory.hpp"
#include "settings.hpp"

namespace groundwire {

Settings settings;

namespace {

constexpr auto kind = c10::DeviceType::CUDA;
constexpr int64_t first_of_pool = 32;  // torch's pool has 32 streams of each priority
std::atomic<int64_t> next_of_pool{0};
std::atomic<bool> in_use{false}, forked{false};

int number_of(c10::Device device) {
  return device.index() < 0 ? current_device() : device.index();
}

StreamKey key_of(const c10::Stream& stream) { return {stream.device_index(), stream.id()}; }

struct Event {
  MomentPtr moment;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kind; }
  c10::Device exchangeDevice(c10::Device device) const override {
    c10::Device before(kind, current_device());
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return c10::Device(kind, current_device()); }
  void setDevice(c10::Device device) const override {
    if (device.index() >= 0) set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { setDevice(device); }
  c10::Stream getStream(c10::Device device) const noexcept override {
    int number = number_of(device);
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kind, number),
                       current_stream(number).second);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(kind, number_of(device)));
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    int64_t number = 1 + next_of_pool++ % first_of_pool;
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kind, number_of(device)), number);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getNewStream(device, 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    auto before = getStream(stream.device());
    set_current_stream(stream.device_index(), stream.id());
    return before;
  }
  // Older versions of torch do not ask for it.
  void* getStreamNativeHandle(const c10::Stream stream) const {
    return reinterpret_cast<void*>(stream.id());
  }
  c10::DeviceIndex deviceCount() const noexcept override { return settings.devices; }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (!*event) *event = new Event;
    static_cast<Event*>(*event)->moment = record_moment(key_of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (auto moment = moment_of(event)) wait_for(key_of(stream), moment);
  }
  bool queryEvent(void* event) const override {
    auto moment = moment_of(event);
    return !moment || has_come(moment);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  bool queryStream(const c10::Stream& stream) const override { return is_idle(key_of(stream)); }
  void synchronizeStream(const c10::Stream& stream) const override { await_stream(key_of(stream)); }
  void synchronizeEvent(void* event) const override {
    if (auto moment = moment_of(event)) await_moment(moment);
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override { await_device(device); }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
  double elapsedTime(void* begin, void* end, const c10::DeviceIndex) const override {
    return time_between_ns(moment_of(begin), moment_of(end)) / 1e6;
  }
};

// CUDA's form of a generator: a seed and an offset, 16 bytes of state. Each operator draws from a
// CPU generator that both seed.
struct Generator final : c10::GeneratorImpl {
  at::Generator drawn = at::detail::createCPUGenerator();
  uint64_t own_seed = c10::default_rng_seed_val, offset = 0;

  explicit Generator(int device)
      : GeneratorImpl(c10::Device(kind, device), c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}
  at::Generator draw() {
    drawn.set_current_seed(own_seed ^ (offset * 0x9E3779B97F4A7C15ull));
    offset += 4;
    return drawn;
  }
  void set_current_seed(uint64_t seed) override {
    own_seed = seed;
    offset = 0;
  }
  void set_offset(uint64_t value) override { offset = value; }
  uint64_t get_offset() const override { return offset; }
  uint64_t current_seed() const override { return own_seed; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom(true));
    return own_seed;
  }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == 16 || state.numel() == 8, "RNG state is wrong size");
    auto* words = static_cast<const uint64_t*>(state.data());
    own_seed = words[0];
    offset = state.numel() == 16 ? words[1] : 0;
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto state = at::empty({16}, at::kByte);
    auto* words = static_cast<uint64_t*>(state.data_ptr());
    words[0] = own_seed;
    words[1] = offset;
    return state.getIntrusivePtr();
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override {
    auto* from = static_cast<Generator*>(other.get());
    own_seed = from->own_seed;
    offset = from->offset;
  }
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::intrusive_ptr<c10::GeneratorImpl>::reclaim(clone_impl());
  }
  GeneratorImpl* clone_impl() const override {
    auto* copy = new Generator(device().index());
    copy->own_seed = own_seed;
    copy->offset = offset;
    return copy;
  }
};

std::vector<at::Generator> generators;

}  // namespace

MomentPtr moment_of(void* event) {
  return event ? static_cast<Event*>(event)->moment : nullptr;
}

at::Generator& default_generator(int device) {
  if (device < 0) device = current_device();
  if (generators.empty())
    for (int i = 0; i < settings.devices; i++)
      generators.push_back(at::make_generator<Generator>(i));
  return generators[device];
}

at::Generator drawing(const at::Generator& generator) {
  return static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->draw();
}

void use_device() { in_use = true; }
bool is_forked() { return forked; }

void install_device() {
  static Guard guard;
  c10::impl::device_guard_impl_registry[static_cast<size_t>(kind)].store(&guard);
  pthread_atfork(nullptr, nullptr, [] { forked = in_use.load(); });
}

}  // namespace groundwire

using namespace groundwire;

// The registry asks for this very name.
struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  // Older versions of torch do not ask for these two.
  bool isBuilt() const { return true; }
  bool isAvailable() const { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return settings.devices; }
  int getNumGPUs() const override { return settings.devices; }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex current_device() const override { return groundwire::current_device(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    int before = groundwire::current_device();
    if (device >= 0) set_current_device(device);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  bool isPinnedPtr(const void* address) const override { return is_pinned(address); }
  c10::Device getDeviceFromPtr(void* address) const override {
    int device = device_of(address);
    TORCH_CHECK(device >= 0, "not an address of a virtual GPU");
    return c10::Device(kind, device);
  }
  c10::Allocator* getCUDADeviceAllocator() const override { return device_allocator(); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<Generator>(device < 0 ? groundwire::current_device() : device);
  }
  void deviceSynchronize(c10::DeviceIndex device) const override { await_device(device); }
};

namespace {
struct Registered {
  Registered() {
    at::CUDAHooksRegistry()->Register(
        "CUDAHooks",
        [](at::CUDAHooksArgs arguments) -> std::unique_ptr<at::CUDAHooksInterface> {
          return std::make_unique<CUDAHooks>(arguments);
        },
        c10::REGISTRY_PREFERRED);  // before a CUDA wheel's own
  }
} registered;
}  // namespace
