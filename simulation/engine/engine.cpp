// SPDX-License-Identifier: GPL-2.0-only
// The packet engine: reads a scenario from standard input, follows it to its end, and writes what happened to
// standard output. README.md says how it works and what the columns are.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <ctime>

#include "run.hpp"

namespace {

std::vector<QueueOptions> read_options(const Columns& from) {
    auto numbers = from.ints("queue.options");
    std::vector<QueueOptions> found(numbers.size / QueueOptions::kNumbers);
    static_assert(sizeof(QueueOptions) == QueueOptions::kNumbers * sizeof(int64_t));
    if (numbers.size % QueueOptions::kNumbers) throw BadScenario("queue.options: the column ends within a queue");
    memcpy(found.data(), numbers.data, numbers.size * sizeof(int64_t));
    for (QueueOptions& each : found) {
        if (each.k_bytes < 0) each.k_bytes = INT64_MAX;
        if (each.kind > QueueKind::kLossless)
            throw BadScenario("queue.options: found kind " + std::to_string(int64_t(each.kind)) + ", allowed 0 to 7");
    }
    return found;
}

// A port by its options, or by those of all its classes.
void make_queued(Port& port, const std::vector<QueueOptions>& options, int64_t first, int64_t count, SwitchMemory* memory) {
    if ((count != 1 && count != QueuedState::kClasses) || first < 0 || size_t(first + count) > options.size())
        throw BadScenario("port.second: found " + std::to_string(count) + " queues, allowed 1 or 8 of queue.options");
    port.queued = new QueuedState;
    port.queued->memory = memory;
    port.queued->apply(&options[size_t(first)], count > 1);
}

void make_ports(const Columns& from, Network& network, const std::vector<QueueOptions>& options,
                std::map<int64_t, std::unique_ptr<LineCosts>>& costs,
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
                port.red = new RedState{{first[i], second[i], third[i]}, fourth[i], bool(fifth[i] & 1), fifth[i] >> 1,
                                        PortRandom(uint64_t(sixth[i]))};
                break;
            case Discipline::kQueued:
                make_queued(port, options, first[i], second[i], memory_of(switches, memory[i]));
                port.queued->class_map = uint32_t(third[i]);
                port.queued->frame_bytes = fourth[i];
                port.queued->packet_ns = fifth[i];
                port.queued->random = PortRandom(uint64_t(sixth[i]));
                break;
            default:
                throw BadScenario("port.kind: found " + std::to_string(kind[i]) + ", allowed 0 to 3");
        }
    }
}

void write_timeline(const Network& network, const Programs& programs, double processor_s) {
    std::vector<int64_t> drops, marks, packets, source, destination, retransmitted, received, written, acknowledged, srtt, ssthresh;
    for (const Port& port : network.ports) {
        drops.push_back(port.drops);
        marks.push_back(port.marks);
        packets.push_back(port.packets);
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
    write("port.packets", packets);
    write("switch.moves", network.choices->moves());
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
        std::vector<QueueOptions> options = read_options(scenario);
        make_ports(scenario, network, options, costs, shared, switches);
        TcpSetting tcp{Control(scenario.number("tcp.control")), bool(scenario.number("tcp.ecn")),
                       scenario.number("tcp.initial_window"), scenario.number("tcp.min_rto_us"),
                       scenario.number("tcp.receive_buffer"), scenario.number("tcp.send_buffer"),
                       scenario.number("tcp.mss")};
        Programs programs(scenario, network, tcp);
        network.programs = &programs;
        Choices choices(scenario, network);
        network.choices = &choices;
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
