#include "carrier.hpp"

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "clock.hpp"

namespace groundwire {

struct Carrier::State {
  std::mutex mutex;
  std::condition_variable more;
  std::map<int64_t, std::pair<CollectivePtr, std::function<void()>>> ready;  // by place
  int64_t posted = 0, carried = 0;
  bool ends = false;

  void serve() {
    for (;;) {
      std::pair<CollectivePtr, std::function<void()>> next;
      {
        std::unique_lock<std::mutex> guard(mutex);
        more.wait(guard, [&] { return ends || ready.count(carried); });
        if (!ready.count(carried)) return;
        next = std::move(ready.at(carried));
        ready.erase(carried++);
      }
      auto& [collective, over] = next;
      if (collective->begin_ns > kernel_now_ns()) kernel_sleep_until(collective->begin_ns);
      collective->begin_ns = kernel_now_ns();
      try {
        collective->carry();
      } catch (const std::exception& error) {
        fail(collective, error.what());
        continue;
      }
      collective->carry = nullptr;
      over();
    }
  }
};

Carrier::Carrier() : state_(std::make_shared<State>()) {
  std::thread([state = state_] { state->serve(); }).detach();
}

Carrier::~Carrier() {
  std::lock_guard<std::mutex> guard(state_->mutex);
  state_->ends = true;
  state_->more.notify_all();
}

void Carrier::post(Collective& collective) {
  std::lock_guard<std::mutex> guard(state_->mutex);
  collective.place = state_->posted++;
}

void Carrier::take(const CollectivePtr& collective, std::function<void()> over) {
  std::lock_guard<std::mutex> guard(state_->mutex);
  state_->ready[collective->place] = {collective, std::move(over)};
  state_->more.notify_one();
}

}  // namespace groundwire
