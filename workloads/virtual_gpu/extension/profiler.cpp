// Rows of the device in torch.profiler's profiles, by Kineto's interface for profilers of others: kernels, copies
// and collectives on their streams, each with the call of CUDA's runtime that launched it, and an arrow between
// them. Where torch is not asked for Kineto it records an event on the current stream before and after each
// operator (ProfilerState::KINETO_GPU_FALLBACK), by the methods at the end.
//
// Source of names and keys: pytorch/kineto, libkineto/src/CuptiActivity.cpp and output_json.cpp;
// pytorch/pytorch, torch/csrc/profiler/util.cpp (saveNcclMeta: the words of NCCL's kernels).
#include "profiler.hpp"

#include <torch/csrc/profiler/stubs/base.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <sstream>

#include "clock.hpp"
#include "memory.hpp"
#include "settings.hpp"
#include "timeline.hpp"

#if __has_include(<kineto/libkineto.h>) && __has_include(<fmt/format.h>)
#define HAS_KINETO
#ifndef FMT_HEADER_ONLY
#define FMT_HEADER_ONLY
#endif
#include <kineto/libkineto.h>
#include <kineto/output_base.h>
#endif

namespace groundwire {
namespace {

std::atomic<bool> profiling{false};
std::mutex mutex;
std::vector<ProfileRowPtr> rows;
thread_local std::vector<uint64_t> callers;  // operators of this thread, by torch's numbers

ProfileRowPtr add_row(const StreamKey& stream, const Work& work, std::unique_ptr<Communication> about,
                      int64_t launched_ns) {
  auto row = std::make_shared<ProfileRow>();
  row->stream = stream;
  row->work = work;
  row->about = std::move(about);
  row->launched_ns = launched_ns;
  row->caller = callers.empty() ? 0 : callers.back();
  row->process = getpid();
  row->thread = gettid();
  std::lock_guard<std::mutex> guard(mutex);
  rows.push_back(row);
  return row;
}

#ifdef HAS_KINETO

using namespace libkineto;

constexpr int64_t default_stream = 7;  // CUPTI's number of CUDA's default stream; others follow it
// Numbers of launches, above those that torch gives to operators.
constexpr int32_t first_launch = 1 << 28;

int64_t unix_ns() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
}

// As NCCL's kernels are called: `_ALLGATHER_BASE` is ncclDevKernel_Allgather.
std::string kernel_of(const std::string& kind) {
  std::string name = "ncclDevKernel_";
  bool begins = true;
  auto words = kind.substr(0, kind.rfind("_BASE"));
  for (char letter : words) {
    if (letter == '_') {
      begins = true;
      continue;
    }
    name += begins ? letter : char(std::tolower(letter));
    begins = false;
  }
  return name;
}

std::string lower(std::string text) {
  for (auto& letter : text) letter = char(std::tolower(letter));
  return text;
}

class Session final : public IActivityProfilerSession {
 public:
  void start() override {
    std::lock_guard<std::mutex> guard(mutex);
    rows.clear();
    behind_ns_ = unix_ns() - host_now_ns();
    profiling = true;
    status_ = TraceStatus::RECORDING;
  }
  void stop() override {
    profiling = false;
    status_ = TraceStatus::PROCESSING;
  }
  std::vector<std::string> errors() override { return {}; }
  void processTrace(ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, 0, 0);
  }
  void processTrace(ActivityLogger& logger, getLinkedActivityCallback caller_of, int64_t, int64_t) override {
    std::vector<ProfileRowPtr> found;
    {
      std::lock_guard<std::mutex> guard(mutex);
      found.swap(rows);
    }
    buffer_ = std::make_unique<CpuTraceBuffer>();
    buffer_->span = TraceSpan(0, 0, "virtual GPU");
    buffer_->gpuOpCount = int(found.size());
    int32_t number = 0;
    for (auto& row : found) {
      if (row->end_ns < 0) continue;  // it was not over when the profile was
      auto* caller = row->caller ? caller_of(int32_t(row->caller)) : nullptr;
      number++;
      log_launch(logger, *row, number, caller);
      log_device(logger, *row, number, caller);
      streams_.insert({row->stream.first, row->stream.second + default_stream});
    }
  }
  std::unique_ptr<DeviceInfo> getDeviceInfo() override {
    if (streams_.empty()) return nullptr;
    int64_t device = streams_.begin()->first;
    return std::unique_ptr<DeviceInfo>(
        new DeviceInfo{device, kExceedMaxPid + device, "python", "GPU " + std::to_string(device)});
  }
  std::vector<ResourceInfo> getResourceInfos() override {
    std::vector<ResourceInfo> found;
    for (auto& [device, stream] : streams_)
      found.push_back(ResourceInfo{stream, stream, device, "stream " + std::to_string(stream)});
    return found;
  }
  std::unique_ptr<CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

  void pushCorrelationId(uint64_t id) override { callers.push_back(id); }
  void popCorrelationId() override {
    if (!callers.empty()) callers.pop_back();  // an operator may have begun before the profile
  }

 private:
  GenericTraceActivity& add(ActivityType type, const std::string& name, int64_t begin_ns, int64_t end_ns,
                            int32_t number, const ITraceActivity* caller) {
    buffer_->emplace_activity(buffer_->span, type, name);
    auto& activity = *buffer_->activities.back();
    activity.startTime = begin_ns + behind_ns_;
    activity.endTime = end_ns + behind_ns_;
    activity.id = first_launch + number;
    activity.linked = caller;
    activity.flow.id = number;
    activity.flow.type = kLinkAsyncCpuGpu;
    activity.addMetadata("correlation", number);
    return activity;
  }
  void log_launch(ActivityLogger& logger, const ProfileRow& row, int32_t number, const ITraceActivity* caller) {
    auto name = row.about ? "cudaLaunchKernelExC" : row.work.copies ? "cudaMemcpyAsync" : "cudaLaunchKernel";
    // A launch takes the host's time only where the run says so: else a nanosecond has it be seen.
    auto& launch = add(ActivityType::CUDA_RUNTIME, name, row.launched_ns,
                       row.launched_ns + std::max<int64_t>(settings.launch_ns, 1), number, caller);
    launch.device = caller ? int32_t(caller->deviceId()) : row.process;
    launch.resource = caller ? int32_t(caller->resourceId()) : row.thread;
    launch.threadId = row.thread;
    launch.flow.start = 1;
    launch.log(logger);
  }
  void log_device(ActivityLogger& logger, const ProfileRow& row, int32_t number, const ITraceActivity* caller) {
    bool to_host = row.work.copies && std::string(row.work.name) == "copy to host";
    auto name = row.about ? kernel_of(row.about->kind)
                : row.work.copies ? (to_host ? "Memcpy DtoH" : "Memcpy HtoD")
                                  : std::string(row.work.name);
    auto type = row.work.copies ? ActivityType::GPU_MEMCPY : ActivityType::CONCURRENT_KERNEL;
    auto& activity = add(type, name, row.begin_ns, row.end_ns, number, caller);
    activity.device = row.stream.first;
    activity.resource = int32_t(row.stream.second + default_stream);
    activity.addMetadata("device", row.stream.first);
    activity.addMetadata("context", 1);
    activity.addMetadata("stream", row.stream.second + default_stream);
    if (row.about) {
      auto& about = *row.about;
      std::ostringstream ranks;
      for (size_t i = 0; i < about.ranks.size(); i++) ranks << (i ? ", " : "[") << about.ranks[i];
      activity.addMetadataQuoted("Collective name", lower(about.kind));
      activity.addMetadata("In msg nelems", about.in_elements);
      activity.addMetadata("Out msg nelems", about.out_elements);
      activity.addMetadata("Group size", about.ranks.size());
      activity.addMetadataQuoted("dtype", about.type);
      activity.addMetadataQuoted("Process Group Name", about.group);
      activity.addMetadataQuoted("Process Group Ranks", ranks.str() + "]");
      if (about.peer >= 0) {
        auto other = size_t(about.peer) < about.ranks.size() ? about.ranks[about.peer] : about.peer;
        activity.addMetadata(about.kind == "SEND" ? "Dst Rank" : "Src Rank", other);
      }
    } else {
      if (!row.work.copies) activity.addMetadata("flops", row.work.flops);
      activity.addMetadata("bytes", row.work.bytes);
    }
    activity.log(logger);
  }

  int64_t behind_ns_ = 0;  // this clock behind Kineto's
  std::set<std::pair<int64_t, int64_t>> streams_;
  std::unique_ptr<CpuTraceBuffer> buffer_;
};

class Profiler final : public IActivityProfiler {
 public:
  const std::string& name() const override {
    static const std::string own = "virtual GPU";
    return own;
  }
  const std::set<ActivityType>& availableActivities() const override {
    static const std::set<ActivityType> own{ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY,
                                            ActivityType::CUDA_RUNTIME};
    return own;
  }
  std::unique_ptr<IActivityProfilerSession> configure(const std::set<ActivityType>& types,
                                                      const libkineto::Config&) override {
    if (!types.count(ActivityType::CONCURRENT_KERNEL)) return nullptr;
    return std::make_unique<Session>();
  }
  std::unique_ptr<IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType>& types,
                                                      const libkineto::Config& config) override {
    return configure(types, config);
  }
};

#endif

using torch::profiler::impl::ProfilerVoidEventStub;

struct Methods final : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event,
              int64_t* cpu_ns) const override {
    if (device) *device = current_device();
    if (cpu_ns) *cpu_ns = host_now_ns();
    *event = record_moment(current_stream());
  }
  float elapsed(const ProfilerVoidEventStub* begin,
                const ProfilerVoidEventStub* end) const override {
    auto from = std::static_pointer_cast<Moment>(*begin), to = std::static_pointer_cast<Moment>(*end);
    await_moment(from);
    await_moment(to);
    return time_between_ns(from, to) / 1e3;  // microseconds
  }
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> act) const override {
    for (int device = 0; device < settings.devices; device++) act(device);
  }
  void synchronize() const override { await_device(current_device()); }
};

}  // namespace

ProfileRowPtr profile_kernel(const StreamKey& stream, const Work& work, int64_t launched_ns) {
  return profiling ? add_row(stream, work, nullptr, launched_ns) : nullptr;
}

ProfileRowPtr profile_collective(const StreamKey& stream, const Communication& about, int64_t launched_ns) {
  return profiling ? add_row(stream, {"nccl"}, std::make_unique<Communication>(about), launched_ns) : nullptr;
}

bool profiles_streams() {
#ifdef HAS_KINETO
  return true;
#else
  return false;
#endif
}

void install_profiler() {
  static Methods methods;
  torch::profiler::impl::registerCUDAMethods(&methods);
#ifdef HAS_KINETO
  libkineto::api().registerProfilerFactory([] { return std::make_unique<Profiler>(); });
#endif
}

}  // namespace groundwire
