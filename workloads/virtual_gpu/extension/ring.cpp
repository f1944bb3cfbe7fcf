#include "ring.hpp"

#include <ATen/ATen.h>

#include <vector>

namespace groundwire {

using namespace c10d;
using at::Tensor;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

void reduce_into(Tensor& sum, const Tensor& more, const ReduceOp& op) {
  switch (op.op_) {
    case ReduceOp::SUM: sum.add_(more); return;
    case ReduceOp::PRODUCT: sum.mul_(more); return;
    case ReduceOp::MIN: sum.copy_(at::minimum(sum, more)); return;
    case ReduceOp::MAX: sum.copy_(at::maximum(sum, more)); return;
    case ReduceOp::BAND: sum.bitwise_and_(more); return;
    case ReduceOp::BOR: sum.bitwise_or_(more); return;
    case ReduceOp::BXOR: sum.bitwise_xor_(more); return;
    default: TORCH_CHECK(false, "a collective does not reduce by operation ", int(op.op_));
  }
}

namespace {

struct Ring final : ToldWork {
  c10::intrusive_ptr<Backend> by;
  Tensor out, in;
  ReduceOp op;
  bool contents, over = false;
  int64_t rank, ranks, count, slot;
  std::vector<Tensor> staged;            // the last two that are under way
  std::vector<WorkPtr> sends, receives;  // by step

  Ring(c10::intrusive_ptr<Backend> given, Tensor out, Tensor in, const ReduceOp& op, bool contents, int64_t slot)
      : by(std::move(given)), out(std::move(out)), in(std::move(in)), op(op), contents(contents),
        rank(by->getRank()), ranks(by->getSize()), count(this->out.numel()), slot(slot) {
    for (int i = 0; i < 2; i++) staged.push_back(at::empty({count}, this->in.options()));
    receive(0);
    send(0);
  }

  // Either what is sent in a step, or what then comes: the part of the rank `back` places before this one.
  Tensor part(int64_t back) { return in.narrow(0, (rank - back + 2 * ranks) % ranks * count, count); }
  int64_t tag(int64_t from, int64_t step) const { return slot + from * (ranks - 1) + step; }
  void send(int64_t step) {
    std::vector<Tensor> one{part(step + 1)};
    sends.push_back(by->send(one, int((rank + 1) % ranks), int(tag(rank, step))));
  }
  void receive(int64_t step) {
    int64_t from = (rank - 1 + ranks) % ranks;
    std::vector<Tensor> one{staged[size_t(step % 2)]};
    receives.push_back(by->recv(one, int(from), int(tag(from, step))));
  }
  void take(int64_t step) {
    receives[size_t(step)]->wait();
    if (!contents) return;
    auto sum = part(step + 2);
    reduce_into(sum, staged[size_t(step % 2)], op);
  }

  // A receive is posted once the one before the last has come, as the program's window has it.
  bool wait(std::chrono::milliseconds) override {
    if (over) return true;
    for (int64_t step = 1; step < ranks - 1; step++) {
      receive(step);
      take(step - 1);
      send(step);
    }
    take(ranks - 2);
    for (auto& each : sends) each->wait();
    if (contents) out.copy_(part(0).view_as(out));
    over = true;
    return true;
  }
  bool isCompleted() override { return over; }
};

}  // namespace

int64_t ring_slots(int64_t ranks) { return ranks * (ranks - 1); }

c10::intrusive_ptr<ToldWork> ring_reduce_scatter(c10::intrusive_ptr<Backend> by, Tensor out, Tensor in,
                                                 const ReduceOp& op, bool contents, int64_t slot) {
  int64_t ranks = by->getSize();
  auto made = c10::make_intrusive<Ring>(std::move(by), std::move(out), std::move(in), op, contents, slot);
  made->told = "{\"program\":{\"algorithm\":\"ring\"},\"section\":{\"backend\":\"programs\"},\"algorithm\":\"ring\","
               "\"chunks\":1,\"slots\":[" + std::to_string(slot) + "," + std::to_string(ring_slots(ranks)) + "]}";
  return made;
}

}  // namespace groundwire
