// libnvidia-ml.so.1 for virtual GPUs: what pynvml, torch.cuda.utilization() and nvidia-smi ask of a
// server's devices. It needs no torch. A function that it lacks, callers find missing, as in an old
// driver. GROUNDWIRE_GPUS names a folder with `devices` (how many, memory, compute capability and name,
// a line each) and a page for each device in use (../meter.hpp).
//
// Source of types and names: NVIDIA's NVML API reference, nvml.h.
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "../meter.hpp"

namespace {

using groundwire::MeterPage;

enum Answer {
  success = 0, uninitialized = 1, invalid_argument = 2, not_found = 6, insufficient_size = 7,
  driver_not_loaded = 9
};

struct Device {
  unsigned number;
};

struct Server {
  unsigned count = 0;
  unsigned long long memory_bytes = 0;
  int major = 0, minor = 0;
  std::string name, folder, number;
  Device devices[64];
} server;

Answer init() {
  const char* folder = getenv("GROUNDWIRE_GPUS");
  const char* number = getenv("GROUP_RANK");
  if (!folder) return driver_not_loaded;
  server.folder = folder;
  server.number = number ? number : "0";
  std::ifstream file(server.folder + "/devices");
  file >> server.count >> server.memory_bytes >> server.major >> server.minor;
  std::getline(file >> std::ws, server.name);
  if (!file && server.name.empty()) return driver_not_loaded;
  server.count = std::min(server.count, 64u);
  for (unsigned i = 0; i < 64; i++) server.devices[i].number = i;
  return success;
}

// The page that a rank keeps of a device; all zeros of one that none uses.
MeterPage page_of(const Device* device) {
  MeterPage found;
  auto path = server.folder + "/use." + server.number + "." + std::to_string(device->number);
  int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return found;
  if (pread(file, &found, sizeof found, 0) != sizeof found) found = MeterPage();
  close(file);
  return found;
}

Answer put(const std::string& text, char* to, unsigned room) {
  if (text.size() + 1 > room) return insufficient_size;
  memcpy(to, text.c_str(), text.size() + 1);
  return success;
}

std::string uuid_of(const Device* device) {
  char text[64];
  snprintf(text, sizeof text, "GPU-00000000-0000-0000-%04x-%012x",
           unsigned(strtoul(server.number.c_str(), nullptr, 10)) & 0xffff, device->number);
  return text;
}

struct Memory {
  unsigned long long total, free, used;
};
struct Memory2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};
struct Process {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned instance, compute_instance;
};

}  // namespace

#define GPU(name, ...) extern "C" __attribute__((visibility("default"))) int name(__VA_ARGS__)

GPU(nvmlInit, ) { return init(); }
GPU(nvmlInit_v2, ) { return init(); }
GPU(nvmlInitWithFlags, unsigned) { return init(); }
GPU(nvmlShutdown, ) { return success; }

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(int answer) {
  switch (answer) {
    case success: return "The operation was successful";
    case uninitialized: return "NVML was not first initialized with nvmlInit()";
    case invalid_argument: return "A supplied argument is invalid";
    case not_found: return "A query to find an object was unsuccessful";
    case insufficient_size: return "An input argument is not large enough";
    case driver_not_loaded: return "NVIDIA driver is not loaded";
    default: return "Unknown Error";
  }
}

GPU(nvmlSystemGetDriverVersion, char* to, unsigned room) { return put("570.00", to, room); }
GPU(nvmlSystemGetNVMLVersion, char* to, unsigned room) { return put("12.570.00", to, room); }
GPU(nvmlSystemGetCudaDriverVersion, int* to) { return *to = 12080, success; }
GPU(nvmlSystemGetCudaDriverVersion_v2, int* to) { return *to = 12080, success; }

GPU(nvmlDeviceGetCount, unsigned* to) { return *to = server.count, success; }
GPU(nvmlDeviceGetCount_v2, unsigned* to) { return *to = server.count, success; }
GPU(nvmlDeviceGetHandleByIndex_v2, unsigned number, Device** to) {
  if (number >= server.count) return invalid_argument;
  return *to = &server.devices[number], success;
}
GPU(nvmlDeviceGetHandleByIndex, unsigned number, Device** to) {
  return nvmlDeviceGetHandleByIndex_v2(number, to);
}
GPU(nvmlDeviceGetHandleByUUID, const char* uuid, Device** to) {
  for (unsigned i = 0; i < server.count; i++)
    if (uuid_of(&server.devices[i]) == uuid) return *to = &server.devices[i], success;
  return not_found;
}
GPU(nvmlDeviceGetIndex, Device* device, unsigned* to) { return *to = device->number, success; }
GPU(nvmlDeviceGetMinorNumber, Device* device, unsigned* to) { return *to = device->number, success; }
GPU(nvmlDeviceGetName, Device*, char* to, unsigned room) { return put(server.name, to, room); }
GPU(nvmlDeviceGetUUID, Device* device, char* to, unsigned room) {
  return put(uuid_of(device), to, room);
}
GPU(nvmlDeviceGetCudaComputeCapability, Device*, int* major, int* minor) {
  *major = server.major;
  *minor = server.minor;
  return success;
}
GPU(nvmlDeviceGetMemoryInfo, Device* device, Memory* to) {
  unsigned long long used = page_of(device).reserved_bytes;
  *to = {server.memory_bytes, server.memory_bytes - used, used};
  return success;
}
GPU(nvmlDeviceGetMemoryInfo_v2, Device* device, Memory2* to) {
  unsigned long long used = page_of(device).reserved_bytes;
  to->total = server.memory_bytes;
  to->reserved = 0;
  to->free = server.memory_bytes - used;
  to->used = used;
  return success;
}
// The last sample that is over holds the rates.
GPU(nvmlDeviceGetUtilizationRates, Device* device, Utilization* to) {
  auto page = page_of(device);
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  int64_t number = (t.tv_sec * int64_t{1000000000} + t.tv_nsec) / groundwire::sample_ns - 1;
  auto& sample = page.busy[number % groundwire::samples];
  int64_t busy_ns = number > 0 && sample.number == number ? sample.busy_ns : 0;
  to->gpu = std::min<int64_t>(100, 100 * busy_ns / groundwire::sample_ns);
  to->memory = 0;
  return success;
}
GPU(nvmlDeviceGetComputeRunningProcesses_v3, Device* device, unsigned* count, Process* to) {
  auto page = page_of(device);
  unsigned room = *count;
  *count = page.process ? 1 : 0;
  if (!page.process) return success;
  if (room < 1 || !to) return insufficient_size;
  *to = {unsigned(page.process), (unsigned long long)page.reserved_bytes, 0xffffffff, 0xffffffff};
  return success;
}
