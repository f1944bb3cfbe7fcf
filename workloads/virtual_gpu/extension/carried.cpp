#include "carried.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/csrc/utils/pybind.h>

#include "ring.hpp"
#include "simulated.hpp"
#include "versions.hpp"

namespace groundwire {
namespace {

namespace py = pybind11;
using namespace c10d;
using at::Tensor;
using Tensors = std::vector<Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// A Python object that may be dropped by a thread without Python's lock.
struct Held {
  py::object object;
  explicit Held(py::object object) : object(std::move(object)) {}
  ~Held() {
    py::gil_scoped_acquire lock;
    object = py::object();
  }
  Held(const Held&) = delete;
};

struct ProgramWork final : ToldWork {
  Held work;
  std::function<void()> then;
  bool over = false;
  ProgramWork(py::object work, std::function<void()> then) : work(std::move(work)), then(std::move(then)) {}
  bool wait(std::chrono::milliseconds) override {
    if (over) return true;
    std::string wrong;
    {
      py::gil_scoped_acquire lock;
      try {
        work.object.attr("wait")();
      } catch (py::error_already_set& error) {
        wrong = error.what();
      }
    }
    TORCH_CHECK(wrong.empty(), wrong);
    if (then) then();
    over = true;
    return true;
  }
  bool isCompleted() override { return over; }
};

// Gloo's own, which the log is told something of.
struct GlooWork final : ToldWork {
  WorkPtr work;
  explicit GlooWork(WorkPtr work) : work(std::move(work)) {}
  bool wait(std::chrono::milliseconds timeout) override { return work->wait(timeout); }
  bool isCompleted() override { return work->isCompleted(); }
};

const char* name_of(const ReduceOp& op) {
  switch (op.op_) {
    case ReduceOp::SUM: return "sum";
    case ReduceOp::PRODUCT: return "product";
    case ReduceOp::MIN: return "min";
    case ReduceOp::MAX: return "max";
    case ReduceOp::BAND: return "band";
    case ReduceOp::BOR: return "bor";
    case ReduceOp::BXOR: return "bxor";
    default: TORCH_CHECK(false, "a collective does not reduce by operation ", int(op.op_));
  }
}

struct Carried final : Backend {
  c10::intrusive_ptr<Backend> gloo;
  Held programs;
  int64_t slot = first_slot;  // the next one, of rings

  Carried(c10::intrusive_ptr<Backend> by, py::object programs)
      : Backend(by->getRank(), by->getSize()), gloo(std::move(by)), programs(std::move(programs)) {}
  const std::string getBackendName() const override { return "carried"; }
  void setTimeout(std::chrono::milliseconds timeout) { set_timeout(*gloo, timeout); }

  // By a program, if there is one, else `otherwise`; `then` is done with what has come.
  template <class Otherwise>
  WorkPtr by_program(const char* kind, Tensor source, Tensor target, int64_t root, const char* op,
                     Otherwise otherwise, std::function<void()> then = {}) {
    std::string told;
    bool has_programs = false;
    {
      py::gil_scoped_acquire lock;
      has_programs = !programs.object.is_none();
      if (has_programs && source.numel() + target.numel() > 0) {
        py::tuple found;
        std::string wrong;
        try {
          found = programs.object.attr("run")(kind, source, target, root, op, carries_contents());
          told = found[1].cast<std::string>();
          if (!found[0].is_none()) {
            auto made = c10::make_intrusive<ProgramWork>(found[0], std::move(then));
            made->told = told;
            return made;
          }
        } catch (py::error_already_set& error) {
          wrong = error.what();
        }
        TORCH_CHECK(wrong.empty(), wrong);
      }
    }
    WorkPtr work = otherwise();
    if (told.empty()) return work;
    auto made = c10::make_intrusive<GlooWork>(work);
    made->told = told;
    return made;
  }

  WorkPtr allreduce(Tensors& tensors, const AllreduceOptions& opts) override {
    auto line = tensors[0];
    return by_program("all_reduce", line, line, 0, name_of(opts.reduceOp),
                      [&] { return gloo->allreduce(tensors, opts); });
  }
  WorkPtr broadcast(Tensors& tensors, const BroadcastOptions& opts) override {
    auto line = tensors[0];
    return by_program("broadcast", line, line, opts.rootRank, "sum", [&] { return gloo->broadcast(tensors, opts); });
  }
  WorkPtr reduce(Tensors& tensors, const ReduceOptions& opts) override {
    auto line = tensors[0];
    return by_program("reduce", line, line, opts.rootRank, name_of(opts.reduceOp),
                      [&] { return gloo->reduce(tensors, opts); });
  }
  WorkPtr allgather(std::vector<Tensors>& out, Tensors& in, const AllgatherOptions& opts) override {
    auto parts = out[0];
    int64_t count = in[0].numel();
    bool even = true, in_line = true;
    for (size_t i = 0; i < parts.size(); i++) {
      even = even && parts[i].numel() == count;
      in_line = in_line && static_cast<const char*>(parts[i].const_data_ptr()) ==
                               static_cast<const char*>(parts[0].const_data_ptr()) + i * in[0].nbytes();
    }
    if (!even) return gloo->allgather(out, in, opts);
    int64_t whole = count * int64_t(parts.size());
    Tensor target;
    std::function<void()> then;
    if (in_line) {
      target = at::from_blob(parts[0].mutable_data_ptr(), {whole}, [parts](void*) {}, in[0].options());
    } else {
      target = at::empty({whole}, in[0].options());
      if (carries_contents())
        then = [parts, target, count]() mutable {
          for (size_t i = 0; i < parts.size(); i++)
            parts[i].view(-1).copy_(target.narrow(0, int64_t(i) * count, count));
        };
    }
    return by_program("all_gather", in[0], target, 0, "sum", [&] { return gloo->allgather(out, in, opts); },
                      std::move(then));
  }
  WorkPtr _reduce_scatter_base(Tensor& out, Tensor& in, const ReduceScatterOptions& opts) override {
    return by_program("reduce_scatter", in, out, 0, name_of(opts.reduceOp), [&]() -> WorkPtr {
      if (size_ == 1 || out.numel() == 0) {
        AllreduceOptions whole;
        whole.reduceOp = opts.reduceOp;
        Tensors one{out.numel() ? out.copy_(in.view_as(out)) : out};
        return gloo->allreduce(one, whole);
      }
      int64_t taken = ring_slots(size_);
      if (slot + taken > last_slot) slot = first_slot;
      auto work = ring_reduce_scatter(gloo, out, in, opts.reduceOp, carries_contents(), slot);
      slot += taken;
      return work;
    });
  }
  WorkPtr alltoall_base(Tensor& out, Tensor& in, std::vector<int64_t>& to, std::vector<int64_t>& from,
                        const AllToAllOptions& opts) override {
    auto otherwise = [&] { return gloo->alltoall_base(out, in, to, from, opts); };
    // With splits a rank does not know whether those of others are even.
    if (!to.empty() || !from.empty()) return otherwise();
    return by_program("all_to_all", in, out, 0, "sum", otherwise);
  }
  WorkPtr gather(std::vector<Tensors>& out, Tensors& in, const GatherOptions& opts) override {
    return gloo->gather(out, in, opts);
  }
  WorkPtr scatter(Tensors& out, std::vector<Tensors>& in, const ScatterOptions& opts) override {
    return gloo->scatter(out, in, opts);
  }
  WorkPtr send(Tensors& tensors, int to, int tag) override { return gloo->send(tensors, to, tag); }
  WorkPtr recv(Tensors& tensors, int from, int tag) override { return gloo->recv(tensors, from, tag); }
  WorkPtr barrier(const BarrierOptions& opts) override { return gloo->barrier(opts); }
  void monitoredBarrier(const BarrierOptions& opts, bool all) override { gloo->monitoredBarrier(opts, all); }
};

}  // namespace

c10::intrusive_ptr<Backend> carried_by(c10::intrusive_ptr<Backend> gloo, py::object programs) {
  return c10::make_intrusive<Carried>(std::move(gloo), std::move(programs));
}

}  // namespace groundwire
