// Parts of the packet engine on their own, for test_engine_parts.py: prints what it is asked for.
#include <cstdlib>
#include <string>

#include "run.hpp"

namespace {

// test1 of lib/random32.c: its states come from a linear congruence, after ten numbers.
void print_random(uint32_t seed) {
    uint32_t states[4];
    const uint32_t least[4] = {2, 8, 16, 128};
    for (int i = 0; i < 4; ++i) {
        seed *= 69069;
        states[i] = seed < least[i] ? seed + least[i] : seed;
    }
    PortRandom random(states[0], states[1], states[2], states[3]);
    for (int i = 0; i < 10; ++i) random.next();
    printf("%u\n", random.next());
}

uint32_t add_packet(Network& network, uint32_t route, uint8_t hop, int64_t seq, uint32_t length) {
    uint32_t made = network.packets.make();
    Packet& packet = network.packets[made];
    packet.route = route;
    packet.hop = hop;
    packet.seq = seq;
    packet.length = length;
    packet.sender = kNobody;
    packet.ect = true;
    return made;
}

// Prints what leaves a port, in order, and how much it dropped.
void print_served(Network& network, uint32_t port) {
    Port& found = network.ports[port];
    Queued(network, port).update(kSecondNs);
    while (!found.flying.empty()) {
        printf("%lld ", (long long)network.packets[found.flying.front().packet].seq);
        found.flying.pop_front();
    }
    printf("\n%lld\n", (long long)found.drops);
}

Port& make_port(Network& network, uint32_t number, Discipline discipline, int64_t buffer) {
    Port& port = network.ports[number];
    port.discipline = discipline;
    port.rate_bps = 1'000'000'000;
    port.buffer_bytes = buffer;
    port.costs = new LineCosts(port.rate_bps);
    return port;
}

void print_red(Network& network) {
    Port& port = make_port(network, 0, Discipline::kRed, 100'000);
    port.red = new RedState{{20'000ll << 16, 60'000ll << 16, int64_t(1) << 31}, 0xFFFFFFFF, true, 8304, PortRandom(1)};
    for (int number = 0; number < 200; ++number) {
        uint32_t made = add_packet(network, 0, 1, number, 1000);
        if (network.send(0, made, 0) == kLost) break;
        printf("%d ", int(network.packets[made].ce));
    }
    printf("\n");
}

Port& make_queued(Network& network, uint32_t number, const QueueOptions& options) {
    Port& port = make_port(network, number, Discipline::kQueued, 0);
    port.queued = new QueuedState;
    port.queued->apply(&options, false);
    return port;
}

void print_voq(Network& network) {
    QueueOptions options{};
    options.kind = QueueKind::kVoq;
    options.buffer_bytes = 3000;
    options.k_bytes = INT64_MAX;
    options.quantum_bytes = 1014;
    make_queued(network, 2, options);
    network.links = {0, 2, 1, 2};
    for (int64_t seq : {0, 1000, 2000, 3000, 10'000, 11'000, 12'000}) {
        uint32_t route = seq >= 10'000 ? 2 : 0;
        network.came_by = network.links[route];
        network.send(2, add_packet(network, route, 2, seq, 1014), 0);
    }
    print_served(network, 2);
}

void print_codel(Network& network) {
    QueueOptions options{};
    options.kind = QueueKind::kCodel;
    options.buffer_bytes = 1'000'000;
    options.k_bytes = INT64_MAX;
    options.target_ns = 50'000;
    options.interval_ns = 200'000;
    options.ce_threshold_ns = -1;
    Port& port = make_queued(network, 0, options);
    port.queued->frame_bytes = 1014;
    network.links = {0};
    for (int64_t seq = 0; seq < 100; ++seq) network.send(0, add_packet(network, 0, 1, seq, 1014), 0);
    print_served(network, 0);
}

}  // namespace

int main(int count, char** arguments) {
    Network network(4);
    std::string what = count > 1 ? arguments[1] : "";
    if (what == "random") for (int i = 2; i < count; ++i) print_random(uint32_t(atoll(arguments[i])));
    else if (what == "cubic-root") for (int i = 2; i < count; ++i) printf("%lld\n", (long long)cubic_root(uint64_t(atoll(arguments[i]))));
    else if (what == "red") print_red(network);
    else if (what == "voq") print_voq(network);
    else if (what == "codel") print_codel(network);
    else return 2;
}
