// One collective over TCP in ns-3: every rank's program of posts and waits, with Gloo's rendezvous.
// Compiled at run time by cppyy (analysis/predict/models/ns3_run.py), which calls gw::Run.
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace gw {

using namespace ns3;

constexpr uint32_t kPreamble = 48;
constexpr uint16_t kPort = 5000;
enum Kind { kReceive, kSend, kWaitReceive, kWaitSend };

struct Operation {
    int kind;
    int message;
};

struct Frame {
    bool invitation;
    int message;
    uint64_t left;
};

// One direction of a connection: what has been written and not yet read.
struct Stream {
    Ptr<Socket> socket;
    std::deque<Frame> frames;
    uint64_t unwritten = 0;
};

struct World {
    std::vector<int> source, destination;
    std::vector<uint64_t> size;
    std::vector<std::vector<Operation>> programs;
    std::vector<size_t> position;
    std::vector<char> posted, invited, sent, received, busy;
    std::map<std::pair<int, int>, Stream> streams;
    std::vector<Ptr<Socket>> listeners;
    int64_t start_ns = 0;
    int64_t end_ns = -1;
    size_t finished = 0;
};

inline World& world() {
    static World instance;
    return instance;
}

void Advance(int rank);

inline void Flush(Stream& stream) {
    while (stream.unwritten > 0) {
        uint32_t room = stream.socket->GetTxAvailable();
        uint32_t part = std::min<uint64_t>({stream.unwritten, room, 1u << 20});
        if (part == 0 || stream.socket->Send(Create<Packet>(part)) <= 0) {
            return;
        }
        stream.unwritten -= part;
    }
}

inline void Write(int from, int to, bool invitation, int message, uint64_t bytes) {
    Stream& stream = world().streams.at({from, to});
    stream.frames.push_back({invitation, message, bytes});
    stream.unwritten += bytes;
    Flush(stream);
}

inline void Admit(int message) {
    World& w = world();
    w.sent[message] = 1;
    Write(w.source[message], w.destination[message], false, message, w.size[message] + kPreamble);
}

inline void Arrived(const Frame& frame) {
    World& w = world();
    if (frame.invitation) {
        w.invited[frame.message] = 1;
        if (w.posted[frame.message]) {
            Admit(frame.message);
            Advance(w.source[frame.message]);
        }
    } else if (frame.message >= 0) {
        w.received[frame.message] = 1;
        Advance(w.destination[frame.message]);
    }
}

inline void Read(int from, int to, Ptr<Socket> socket) {
    uint64_t bytes = 0;
    while (Ptr<Packet> packet = socket->Recv()) {
        bytes += packet->GetSize();
    }
    Stream& stream = world().streams.at({from, to});
    while (bytes > 0 && !stream.frames.empty()) {
        Frame& frame = stream.frames.front();
        uint64_t part = std::min(bytes, frame.left);
        frame.left -= part;
        bytes -= part;
        if (frame.left > 0) {
            break;
        }
        Frame done = frame;
        stream.frames.pop_front();
        Arrived(done);
    }
}

inline void Advance(int rank) {
    World& w = world();
    if (w.busy[rank]) {
        return;
    }
    w.busy[rank] = 1;
    auto& program = w.programs[rank];
    size_t& at = w.position[rank];
    bool was_finished = at == program.size();
    while (at < program.size()) {
        Operation o = program[at];
        if ((o.kind == kWaitReceive && !w.received[o.message]) ||
            (o.kind == kWaitSend && !w.sent[o.message])) {
            break;
        }
        if (o.kind == kReceive) {
            Write(w.destination[o.message], w.source[o.message], true, o.message, kPreamble);
        } else if (o.kind == kSend) {
            w.posted[o.message] = 1;
            Write(w.source[o.message], w.destination[o.message], false, -1, kPreamble);
            if (w.invited[o.message]) {
                Admit(o.message);
            }
        }
        ++at;
    }
    w.busy[rank] = 0;
    if (!was_finished && at == program.size() && ++w.finished == w.programs.size()) {
        w.end_ns = Simulator::Now().GetNanoSeconds();
        Simulator::Stop();
    }
}

inline void Reset(int ranks) {
    world() = World();
    world().programs.resize(ranks);
    world().position.assign(ranks, 0);
    world().busy.assign(ranks, 0);
}

inline int AddMessage(int source, int destination, uint64_t size) {
    World& w = world();
    w.source.push_back(source);
    w.destination.push_back(destination);
    w.size.push_back(size);
    for (auto* flags : {&w.posted, &w.invited, &w.sent, &w.received}) {
        flags->push_back(0);
    }
    return static_cast<int>(w.size.size()) - 1;
}

inline void AddOperation(int rank, int kind, int message) {
    world().programs[rank].push_back({kind, message});
}

inline void SetStream(int from, int to, Ptr<Socket> socket) {
    world().streams[{from, to}].socket = socket;
    // Bytes that arrive on this socket were written by the other end.
    socket->SetRecvCallback(Callback<void, Ptr<Socket>>(
        [from, to](Ptr<Socket> s) { Read(to, from, s); }));
    socket->SetSendCallback(Callback<void, Ptr<Socket>, uint32_t>(
        [from, to](Ptr<Socket>, uint32_t) { Flush(world().streams.at({from, to})); }));
}

// A connection between two ranks, each end with an address of its own, so that routers that know
// addresses only can send every pair its own way.
inline void Connect(int low, int high, Ptr<Node> low_node, Ptr<Node> high_node,
                    const char* low_address, const char* high_address) {
    TypeId tcp = TypeId::LookupByName("ns3::TcpSocketFactory");
    Ptr<Socket> listener = Socket::CreateSocket(low_node, tcp);
    listener->Bind(InetSocketAddress(Ipv4Address(low_address), kPort));
    listener->Listen();
    listener->SetAcceptCallback(
        Callback<bool, Ptr<Socket>, const Address&>(
            [](Ptr<Socket>, const Address&) { return true; }),
        Callback<void, Ptr<Socket>, const Address&>(
            [low, high](Ptr<Socket> s, const Address&) { SetStream(low, high, s); }));
    world().listeners.push_back(listener);
    Ptr<Socket> socket = Socket::CreateSocket(high_node, tcp);
    socket->Bind(InetSocketAddress(Ipv4Address(high_address), 0));
    SetStream(high, low, socket);
    // Devices know their queues only once the simulation runs.
    InetSocketAddress there(Ipv4Address(low_address), kPort);
    Simulator::Schedule(MilliSeconds(1), [socket, there]() { socket->Connect(there); });
}

// Both ends of a pair are a network of their own, on the interfaces that face each other: ns-3 takes
// the source address of that network, whatever the socket is bound to.
inline void AddAddress(Ptr<Node> node, uint32_t interface, const char* address) {
    Ptr<Ipv4> ipv4 = node->GetObject<Ipv4>();
    ipv4->AddAddress(interface,
                     Ipv4InterfaceAddress(Ipv4Address(address), Ipv4Mask("255.255.255.252")));
}

inline void AddRoute(Ptr<Node> node, const char* destination, uint32_t interface) {
    Ipv4StaticRoutingHelper helper;
    helper.GetStaticRouting(node->GetObject<Ipv4>())
        ->AddHostRouteTo(Ipv4Address(destination), interface);
}

// Nanoseconds from the common start to the last rank's end; -1 when it did not end in `limit_ns`.
inline int64_t Run(int64_t start_ns, int64_t limit_ns) {
    World& w = world();
    w.start_ns = start_ns;
    for (int rank = 0; rank < static_cast<int>(w.programs.size()); ++rank) {
        // Ranks without a part are done before it begins.
        w.finished += w.programs[rank].empty();
        Simulator::Schedule(NanoSeconds(start_ns), &Advance, rank);
    }
    Simulator::Stop(NanoSeconds(start_ns + limit_ns));
    Simulator::Run();
    int64_t took = w.end_ns < 0 ? -1 : w.end_ns - w.start_ns;
    return took;
}

}  // namespace gw
