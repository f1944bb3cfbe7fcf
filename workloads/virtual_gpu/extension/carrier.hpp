// The thread that carries the collectives of one communicator over the fabric, one after the other, in
// the order in which the host posted them: it is the same on all ranks.
#pragma once
#include <functional>
#include <memory>

#include "timeline.hpp"

namespace groundwire {

class Carrier {
 public:
  Carrier();
  ~Carrier();
  void post(Collective& collective);  // gives it its place
  // Carries it from its `begin_ns` on, then calls `over`.
  void take(const CollectivePtr& collective, std::function<void()> over);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace groundwire
