// SPDX-License-Identifier: GPL-2.0-only
// The packet engine: reads a scenario from standard input, follows it to its end, and writes what happened to
// standard output. README.md says how it works and what the columns are.
#include <unistd.h>

#include <cstdio>
#include <ctime>

#include "run.hpp"

namespace {

void make_ports(const Columns& from, Network& network, std::map<int64_t, std::unique_ptr<LineCosts>>& costs,
                std::vector<std::unique_ptr<SharedMemory>>& shared, std::vector<std::unique_ptr<SwitchMemory>>& switches) {
    auto kind = from.ints("port.kind"), rate = from.ints("port.rate_bps"), delay = from.ints("port.delay_ns");
    auto buffer = from.ints("port.buffer"), mark = from.ints("port.mark_above"), memory = from.ints("port.memory");
    auto first = from.ints("port.first"), second = from.ints("port.second"), third = from.ints("port.third");
    auto fourth = from.ints("port.fourth"), fifth = from.ints("port.fifth"), sixth = from.ints("port.sixth");
    auto memory_of = [&](auto& memories, int64_t number) {
        while (int64_t(memories.size()) <= number)
            memories.push_back(std::make_unique<typename std::decay_t<decltype(memories)>::value_type::element_type>());
        return memories[size_t(number)].get();
    };
    for (size_t i = 0; i < kind.size; ++i) {
        network.links.push_back(uint32_t(i));  // of a route that is this link, for pause frames
        Port& port = network.ports[i];
        if (kind[i] < 0) continue;  // nothing goes over it
        port.discipline = Discipline(kind[i]);
        port.rate_bps = rate[i];
        port.delay_ns = delay[i];
        port.buffer_bytes = buffer[i];
        if (mark[i] >= 0) port.mark_above = mark[i];
        auto& line = costs[rate[i]];
        if (!line) line = std::make_unique<LineCosts>(rate[i]);
        port.costs = line.get();
        switch (port.discipline) {
            case Discipline::kFifo:
                break;
            case Discipline::kShared:
                port.shared = new SharedState{first[i], memory_of(shared, memory[i])};
                break;
            case Discipline::kRed:
                port.red = new RedState{first[i], second[i], third[i], fourth[i], bool(fifth[i] & 1), fifth[i] >> 1,
                                        PortRandom(uint64_t(sixth[i]))};
                break;
            case Discipline::kVoq:
            case Discipline::kCodel:
            case Discipline::kFqCodel:
                port.serves = true;
                port.served = new ServedState;
                port.served->quantum_bytes = first[i];
                port.served->target_ns = second[i];
                port.served->interval_ns = third[i];
                port.served->ce_threshold_ns = fourth[i];
                port.served->ecn = fifth[i];
                port.served->mtu_bytes = sixth[i];
                break;
            case Discipline::kPausable:
                port.serves = true;
                port.pausable = new PausableState;
                port.pausable->memory = memory_of(switches, memory[i]);
                port.pausable->has_limits = first[i] >= 0;
                port.pausable->xoff_bytes = first[i];
                port.pausable->xon_bytes = second[i];
                port.pausable->headroom_bytes = third[i];
                break;
            default:
                throw BadScenario("port.kind: found " + std::to_string(kind[i]) + ", allowed 0 to 6");
        }
    }
}

void write_timeline(const Network& network, const Programs& programs, double processor_s) {
    std::vector<int64_t> drops, marks, source, destination, retransmitted, received, written, acknowledged, srtt, ssthresh;
    for (const Port& port : network.ports) {
        drops.push_back(port.drops);
        marks.push_back(port.marks);
    }
    for (const Endpoint* each : network.endpoints) {
        if (!each) continue;
        source.push_back(programs.pair(each->number).source);
        destination.push_back(programs.pair(each->number).destination);
        retransmitted.push_back(each->retransmitted);
        received.push_back(each->rcv_nxt);
        written.push_back(each->write_seq);
        acknowledged.push_back(each->snd_una);
        srtt.push_back(each->srtt_us);
        ssthresh.push_back(each->ssthresh);
    }
    auto write = [](const char* name, const std::vector<int64_t>& column) {
        write_column(stdout, name, kInt64, column.data(), column.size());
    };
    fwrite(kMagic, 1, 8, stdout);
    write("stamps", programs.stamps());
    write("port.drops", drops);
    write("port.marks", marks);
    write("end.source", source);
    write("end.destination", destination);
    write("end.retransmitted", retransmitted);
    write("end.received", received);
    write("end.written", written);
    write("end.acknowledged", acknowledged);
    write("end.srtt_us_x8", srtt);
    write("end.ssthresh", ssthresh);
    write("packets", {network.sent});
    write("hops", {network.hops});
    write("now_ns", {network.now_ns});
    write_column(stdout, "processor_s", kFloat64, &processor_s, 1);
    write("", {});
}

}  // namespace

int main() {
    try {
        Columns scenario;
        scenario.read(stdin);
        clock_t began = clock();
        Network network(scenario.ints("port.kind").size);
        std::map<int64_t, std::unique_ptr<LineCosts>> costs;
        std::vector<std::unique_ptr<SharedMemory>> shared;
        std::vector<std::unique_ptr<SwitchMemory>> switches;
        make_ports(scenario, network, costs, shared, switches);
        TcpSetting tcp{Control(scenario.number("tcp.control")), bool(scenario.number("tcp.ecn")),
                       scenario.number("tcp.initial_window"), scenario.number("tcp.min_rto_us"),
                       scenario.number("tcp.receive_buffer"), scenario.number("tcp.mss")};
        Programs programs(scenario, network, tcp);
        network.programs = &programs;
        programs.begin();
        if (!programs.are_over()) network.run();
        write_timeline(network, programs, double(clock() - began) / CLOCKS_PER_SEC);
    } catch (const BadScenario& error) {
        fprintf(stderr, "%s\n", error.what());
        return 2;
    }
    if (fflush(stdout)) return 1;
    _exit(0);  // the system frees all memory at once
}
