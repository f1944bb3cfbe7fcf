#include "meter.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string>

#include "settings.hpp"

namespace groundwire {
namespace {

std::mutex mutex;
MeterPage* pages[64];

// The page of a device, made when it is first used; nullptr where nobody could ask.
MeterPage* page_of(int device) {
  if (pages[device] || settings.marks.empty()) return pages[device];
  const char* server = getenv("GROUP_RANK");
  auto path = settings.marks + "/use." + (server ? server : "0") + "." + std::to_string(device);
  int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return nullptr;
  void* at = MAP_FAILED;
  if (ftruncate(file, sizeof(MeterPage)) == 0)
    at = mmap(nullptr, sizeof(MeterPage), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (at == MAP_FAILED) return nullptr;
  pages[device] = new (at) MeterPage;
  pages[device]->process = getpid();
  return pages[device];
}

}  // namespace

void meter_reserved(int device, int64_t by) {
  std::lock_guard<std::mutex> guard(mutex);
  if (auto* page = page_of(device)) page->reserved_bytes += by;
}

void meter_busy(int device, int64_t begin_ns, int64_t end_ns) {
  std::lock_guard<std::mutex> guard(mutex);
  auto* page = page_of(device);
  if (!page) return;
  begin_ns = std::max(begin_ns, end_ns - (samples - 1) * sample_ns);
  while (begin_ns < end_ns) {
    int64_t number = begin_ns / sample_ns, next_ns = std::min(end_ns, (number + 1) * sample_ns);
    auto& sample = page->busy[number % samples];
    if (sample.number < number) sample = {number, 0};
    if (sample.number == number) sample.busy_ns += next_ns - begin_ns;
    begin_ns = next_ns;
  }
}

}  // namespace groundwire
