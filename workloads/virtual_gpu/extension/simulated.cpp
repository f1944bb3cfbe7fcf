#include "simulated.hpp"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>

#include "ring.hpp"
#include "settings.hpp"

namespace groundwire {
namespace {

using namespace c10d;
using at::Tensor;
using Tensors = std::vector<Tensor>;

thread_local bool contents = false;

struct Descriptor {
  int number;
  explicit Descriptor(int number) : number(number) {
    TORCH_CHECK(number >= 0, "the simulated network: ", strerror(errno));
  }
  ~Descriptor() { close(number); }
  Descriptor(const Descriptor&) = delete;
};

void write_file(const std::string& path, const Tensors& tensors) {
  Descriptor file(open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600));
  for (auto& tensor : tensors) {
    auto line = tensor.contiguous();
    auto* at = static_cast<const char*>(line.const_data_ptr());
    for (size_t left = line.nbytes(); left;) {
      ssize_t written = write(file.number, at, left);
      TORCH_CHECK(written > 0, "the simulated network: ", path, ": ", strerror(errno));
      at += written;
      left -= written;
    }
  }
}

Tensor read_file(const std::string& path, c10::ScalarType type) {
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat about;
  TORCH_CHECK(fstat(file.number, &about) == 0, "the simulated network: ", path, ": ", strerror(errno));
  auto line = at::empty({about.st_size / int64_t(c10::elementSize(type))}, type);
  auto* at = static_cast<char*>(line.mutable_data_ptr());
  for (size_t left = line.nbytes(); left;) {
    ssize_t got = read(file.number, at, left);
    TORCH_CHECK(got > 0, "the simulated network: ", path, " is cut off");
    at += got;
    left -= got;
  }
  return line;
}

std::string listed(const std::vector<int64_t>& numbers) {
  std::ostringstream text;
  text << '[';
  for (size_t i = 0; i < numbers.size(); i++) text << (i ? "," : "") << numbers[i];
  text << ']';
  return text.str();
}

// A line that is told at once.
struct ToldLine : Descriptor {
  explicit ToldLine(const std::string& line) : Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un place{AF_UNIX, {}};
    auto path = settings.simulated + "/socket";
    TORCH_CHECK(path.size() < sizeof place.sun_path, "the simulated network: ", path, " is too long");
    memcpy(place.sun_path, path.c_str(), path.size() + 1);
    bool posted = connect(number, reinterpret_cast<sockaddr*>(&place), sizeof place) == 0 &&
                  send(number, line.data(), line.size(), MSG_NOSIGNAL) == ssize_t(line.size());
    TORCH_CHECK(posted, "the simulated network has ended: ", strerror(errno));
  }
};

// A rank's part of a collective: it is over when the other end says so.
struct Travelling final : ToldWork {
  ToldLine socket;
  std::chrono::milliseconds timeout;
  std::function<void()> arrived;
  bool over = false;

  Travelling(const std::string& line, std::chrono::milliseconds timeout, std::function<void()> arrived)
      : socket(line), timeout(timeout), arrived(std::move(arrived)) {}
  bool wait(std::chrono::milliseconds) override {
    if (over) return true;
    pollfd what{socket.number, POLLIN, 0};
    int found;
    do found = poll(&what, 1, timeout.count() > 0 ? int(std::min<int64_t>(timeout.count(), INT_MAX)) : -1);
    while (found < 0 && errno == EINTR);
    TORCH_CHECK(found != 0, "Timed out waiting ", timeout.count(), "ms for the others");
    char said[4096];
    ssize_t length = recv(socket.number, said, sizeof said, 0);
    TORCH_CHECK(length > 0, "the simulated network has ended");
    TORCH_CHECK(said[0] == '1', std::string(said, length));
    told.assign(said + 1, length - 1);
    over = true;
    if (arrived) arrived();
    return true;
  }
  bool isCompleted() override { return over; }
};

struct Simulated final : Backend {
  std::string group;
  std::vector<int64_t> ranks;
  std::chrono::milliseconds timeout;
  int64_t collectives = 0;
  std::map<std::string, int64_t> messages;  // so far, by their ends and tag
  std::mutex mutex;

  // `gloo` has connected them. It stays until the process ends, which closes all its connections at once: it would
  // itself close one after the other, and wait for up to 10 ms at each (gloo/transport/tcp/loop.cc).
  Simulated(std::string group, std::vector<int64_t> ranks, int rank, std::chrono::milliseconds timeout,
            c10::intrusive_ptr<Backend> gloo)
      : Backend(rank, int(ranks.size())), group(std::move(group)), ranks(std::move(ranks)), timeout(timeout) {
    gloo.release();
    for (auto& letter : this->group)
      if (letter == '"' || letter == '\\' || letter == '/' || letter < ' ') letter = '_';
  }
  const std::string getBackendName() const override { return "simulated"; }

  std::string file(const std::string& name, int64_t member) const {
    return settings.simulated + "/" + group + "." + name + "." + std::to_string(member);
  }

  struct What {
    const char* kind;
    int64_t size_bytes;
    int64_t element_bytes = 1;
    int64_t root = 0;
    std::vector<int64_t> sends = {}, receives = {};  // of an uneven all-to-all, in bytes
    std::string name = {};                           // of a message
  };
  // `given` is what others may read of it, `take` gets a function that reads what a member has given.
  using Read = std::function<Tensor(int64_t member, c10::ScalarType type)>;
  c10::intrusive_ptr<Work> post(What what, const Tensors& given, std::function<void(const Read&)> take) {
    auto name = what.name.empty() ? std::to_string(collectives++) : what.name;
    std::function<void()> arrived;
    if (contents) {
      if (!given.empty()) write_file(file(name, rank_), given);
      if (take)
        arrived = [this, name, take] {
          take([&](int64_t member, c10::ScalarType type) { return read_file(file(name, member), type); });
        };
    }
    std::ostringstream line;
    line << "{\"group\":\"" << group << "\",\"name\":\"" << name << "\",\"kind\":\"" << what.kind
         << "\",\"size_bytes\":" << what.size_bytes << ",\"element_bytes\":" << what.element_bytes
         << ",\"root\":" << what.root << ",\"member\":" << rank_ << ",\"ranks\":" << listed(ranks)
         << ",\"sends\":" << listed(what.sends) << ",\"receives\":" << listed(what.receives) << "}";
    return c10::make_intrusive<Travelling>(line.str(), timeout, std::move(arrived));
  }

  static int64_t bytes(const Tensors& tensors) {
    int64_t found = 0;
    for (auto& tensor : tensors) found += tensor.nbytes();
    return found;
  }
  // The contributions of all, in the order of ranks: half precision is added up in single, as NCCL does. Each
  // brings as many numbers as `into` has, from `first` on.
  std::function<void(const Read&)> reduced(const Tensor& into, const ReduceOp& op, int64_t first = 0) const {
    return [into, op, first, size = size_](const Read& read) {
      auto type = into.scalar_type();
      bool half = type == at::kHalf || type == at::kBFloat16;
      auto of = [&](int64_t member) {
        auto line = read(member, type).narrow(0, first, into.numel());
        return half ? line.to(at::kFloat) : line;
      };
      auto sum = of(0);
      for (int64_t member = 1; member < size; member++) reduce_into(sum, of(member), op);
      into.view(-1).copy_(sum);
    };
  }

  c10::intrusive_ptr<Work> allreduce(Tensors& tensors, const AllreduceOptions& opts) override {
    auto& line = tensors[0];
    return post({"all_reduce", bytes(tensors), int64_t(line.element_size())}, tensors,
                reduced(line, opts.reduceOp));
  }
  c10::intrusive_ptr<Work> reduce(Tensors& tensors, const ReduceOptions& opts) override {
    auto& line = tensors[0];
    return post({"reduce", bytes(tensors), int64_t(line.element_size()), opts.rootRank}, tensors,
                rank_ == opts.rootRank ? reduced(line, opts.reduceOp) : nullptr);
  }
  c10::intrusive_ptr<Work> _reduce_scatter_base(Tensor& out, Tensor& in, const ReduceScatterOptions& opts) override {
    return post({"reduce_scatter", int64_t(in.nbytes()), int64_t(in.element_size())}, {in},
                reduced(out, opts.reduceOp, rank_ * out.numel()));
  }
  c10::intrusive_ptr<Work> broadcast(Tensors& tensors, const BroadcastOptions& opts) override {
    auto line = tensors[0];
    bool root = rank_ == opts.rootRank;
    auto take = [line, root = opts.rootRank](const Read& read) {
      line.view(-1).copy_(read(root, line.scalar_type()));
    };
    return post({"broadcast", bytes(tensors), int64_t(line.element_size()), opts.rootRank},
                root ? tensors : Tensors{}, root ? nullptr : std::function<void(const Read&)>(take));
  }
  c10::intrusive_ptr<Work> allgather(std::vector<Tensors>& out, Tensors& in,
                                     const AllgatherOptions&) override {
    auto all = out[0];
    auto take = [all](const Read& read) {
      for (size_t i = 0; i < all.size(); i++) {
        auto part = all[i];
        part.view(-1).copy_(read(int64_t(i), part.scalar_type()));
      }
    };
    return post({"all_gather", bytes(all), int64_t(in[0].element_size())}, in, take);
  }
  c10::intrusive_ptr<Work> gather(std::vector<Tensors>& out, Tensors& in, const GatherOptions& opts) override {
    auto all = out.empty() ? Tensors{} : out[0];
    auto take = [all](const Read& read) {
      for (size_t i = 0; i < all.size(); i++) {
        auto part = all[i];
        part.view(-1).copy_(read(int64_t(i), part.scalar_type()));
      }
    };
    return post({"gather", bytes(in) * size_, int64_t(in[0].element_size()), opts.rootRank}, in, take);
  }
  c10::intrusive_ptr<Work> scatter(Tensors& out, std::vector<Tensors>& in, const ScatterOptions& opts) override {
    auto line = out[0];
    auto take = [line, root = opts.rootRank, rank = rank_](const Read& read) {
      int64_t count = line.numel();
      line.view(-1).copy_(read(root, line.scalar_type()).narrow(0, rank * count, count));
    };
    return post({"scatter", bytes(out) * size_, int64_t(line.element_size()), opts.rootRank},
                in.empty() ? Tensors{} : in[0], take);
  }
  c10::intrusive_ptr<Work> alltoall_base(Tensor& out, Tensor& in, std::vector<int64_t>& out_splits,
                                         std::vector<int64_t>& in_splits, const AllToAllOptions&) override {
    auto even = [&](const Tensor& line) {
      return std::vector<int64_t>(size_t(size_), line.numel() / size_);
    };
    auto to = out_splits.empty() ? even(out) : out_splits;
    auto from = in_splits.empty() ? even(in) : in_splits;
    What what{"all_to_all", int64_t(in.nbytes()), int64_t(in.element_size())};
    if (!out_splits.empty() || !in_splits.empty()) {
      what.sends = from;
      what.receives = to;
      for (auto* list : {&what.sends, &what.receives})
        for (auto& each : *list) each *= what.element_bytes;
    }
    // Each gives all that it sends; how much comes before a part of it, its own splits tell, which go first.
    auto splits = at::tensor(from, at::kLong).view(at::kByte);
    auto sent = in.contiguous().view(at::kByte).view(-1);
    auto take = [out, to, rank = rank_, size = size_](const Read& read) {
      auto into = out.view(-1);
      int64_t at = 0;
      for (int64_t member = 0; member < size; member++) {
        auto given = read(member, at::kByte);
        auto head = given.narrow(0, 0, size * 8).clone();
        auto* theirs = static_cast<const int64_t*>(head.const_data_ptr());
        int64_t before = 0, each = int64_t(out.element_size());
        for (int64_t i = 0; i < rank; i++) before += theirs[i];
        auto part = given.narrow(0, size * 8 + before * each, to[size_t(member)] * each).clone();
        into.narrow(0, at, to[size_t(member)]).copy_(part.view(out.scalar_type()));
        at += to[size_t(member)];
      }
    };
    return post(std::move(what), {splits, sent}, take);
  }
  std::string message(int64_t from, int64_t to, int tag) {
    auto name = "m" + std::to_string(from) + "-" + std::to_string(to) + "-" + std::to_string(tag);
    std::lock_guard<std::mutex> guard(mutex);
    return name + "." + std::to_string(messages[name]++);
  }
  c10::intrusive_ptr<Work> send(Tensors& tensors, int to, int tag) override {
    What what{"send", bytes(tensors), 1, to};
    what.name = message(rank_, to, tag);
    return post(std::move(what), tensors, nullptr);
  }
  c10::intrusive_ptr<Work> recv(Tensors& tensors, int from, int tag) override {
    auto line = tensors[0];
    What what{"recv", bytes(tensors), 1, from};
    what.name = message(from, rank_, tag);
    return post(std::move(what), {}, [line, from](const Read& read) {
      line.view(-1).copy_(read(from, line.scalar_type()));
    });
  }
  c10::intrusive_ptr<Work> barrier(const BarrierOptions&) override {
    return post({"barrier", 0}, {}, nullptr);
  }
};

}  // namespace

c10::intrusive_ptr<Backend> simulated_backend(const std::string& group, const std::vector<int64_t>& ranks,
                                              int rank, std::chrono::milliseconds timeout,
                                              c10::intrusive_ptr<Backend> gloo) {
  return c10::make_intrusive<Simulated>(group, ranks, rank, timeout, std::move(gloo));
}

void tell_handshakes(Backend& simulated, const std::vector<Handshake>& found) {
  auto& group = dynamic_cast<Simulated&>(simulated);
  std::ostringstream line;
  line << "{\"group\":\"" << group.group << "\",\"member\":" << group.getRank() << ",\"ranks\":" << listed(group.ranks)
       << ",\"handshakes\":[";
  for (size_t i = 0; i < found.size(); i++)
    line << (i ? "," : "") << listed({found[i].peer, found[i].handshake_us, found[i].greeting_us});
  line << "]}";
  ToldLine told(line.str());
}

void hand_over_contents(bool has_contents) { contents = has_contents; }
bool carries_contents() { return contents; }

}  // namespace groundwire
