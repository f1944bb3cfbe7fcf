// SPDX-License-Identifier: GPL-2.0-only
// A scenario put together: its ports, switches' memories and choices, and programs; and its timeline.
#pragma once
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "run.hpp"

class Simulation {
  public:
    explicit Simulation(Columns columns) : scenario(std::move(columns)), network(scenario.ints("port.kind").size) {
        options_ = read_options(scenario);
        make_ports();
        TcpSetting tcp{Control(scenario.number("tcp.control")), bool(scenario.number("tcp.ecn")),
                       scenario.number("tcp.initial_window"), scenario.number("tcp.min_rto_us"),
                       scenario.number("tcp.receive_buffer"), scenario.number("tcp.send_buffer"),
                       scenario.number("outer_bytes")};
        programs_ = std::make_unique<Programs>(scenario, network, tcp);
        network.programs = programs_.get();
        if (scenario.has("fluid.settings")) programs_->flow_by(std::make_unique<Fluid>(scenario, network, *programs_));
        if (scenario.has("copy.settings")) programs_->copy_by(std::make_unique<Copies>(scenario, network, *programs_));
        if (scenario.has("host.costs")) programs_->charge(std::make_unique<Hosts>(scenario, network, *programs_));
        choices_ = std::make_unique<Choices>(scenario, network);
        network.choices = choices_.get();
        size_t words = network.ports.size() + choices_->size();
        reroutes_ = std::make_unique<Reroutes>(scenario, network, words);
        network.reroutes = reroutes_.get();
        if (reroutes_->are_any()) programs_->reroute(0);
        if (!scenario.has("leaps.tolerance_ppm")) return;
        // Where the ways of messages, or links, change meanwhile, or switches take part, all is followed.
        bool is_steady = !scenario.ints("fault.rows").size && !scenario.shorts("choice.switch").size &&
                         !scenario.shorts("value.links").size && !scenario.number("has_nodes") && network.chassis.empty() && !programs_->has_copies();
        if (is_steady && scenario.has("message.stage")) {
            stages_ = std::make_unique<Stages>(scenario, *programs_, network);
            if (stages_->are_any()) programs_->stages = stages_.get();
        }
        leaps_ = std::make_unique<Leaps>(*programs_, network, scenario.number("leaps.tolerance_ppm"), is_steady);
        if (leaps_->has_exchanges()) programs_->leaps = leaps_.get();
    }
    Simulation(const Simulation&) = delete;
    Simulation& operator=(const Simulation&) = delete;

    const Columns scenario;
    Network network;
    Programs& programs() { return *programs_; }

    // Writes what has happened by now, which took the processor so long.
    void write_timeline(FILE* to, double processor_s) const;

  private:
    static std::vector<QueueOptions> read_options(const Columns& from);
    void make_ports();
    void make_queued(Port& port, int64_t first, int64_t count, SwitchMemory* memory);
    void make_cells(uint32_t number);

    std::vector<QueueOptions> options_;
    std::map<int64_t, std::unique_ptr<LineCosts>> costs_;
    std::vector<std::unique_ptr<SharedMemory>> shared_;
    std::vector<std::unique_ptr<SwitchMemory>> switches_;
    std::unique_ptr<Programs> programs_;
    std::unique_ptr<Choices> choices_;
    std::unique_ptr<Reroutes> reroutes_;
    std::unique_ptr<Stages> stages_;
    std::unique_ptr<Leaps> leaps_;
};

inline std::vector<QueueOptions> Simulation::read_options(const Columns& from) {
    auto numbers = from.ints("queue.options");
    std::vector<QueueOptions> found(numbers.size / QueueOptions::kNumbers);
    static_assert(sizeof(QueueOptions) == QueueOptions::kNumbers * sizeof(int64_t));
    if (numbers.size % QueueOptions::kNumbers) throw BadScenario("queue.options: the column ends within a queue");
    memcpy(found.data(), numbers.data, numbers.size * sizeof(int64_t));
    for (QueueOptions& each : found) {
        if (each.k_bytes < 0) each.k_bytes = INT64_MAX;
        if (each.kind > QueueKind::kCells)
            throw BadScenario("queue.options: found kind " + std::to_string(int64_t(each.kind)) + ", allowed 0 to 9");
        if (each.has_cells() && (each.card < 0 || each.card >= each.cards || each.fabric_links < 1 || each.fabric_bps < 1 ||
                                 each.cell_bytes < 1 || each.quantum_bytes < 1))
            throw BadScenario("queue.options: found cells without a card, a link or a size");
    }
    return found;
}

// A port by its options, or by those of all its classes.
inline void Simulation::make_queued(Port& port, int64_t first, int64_t count, SwitchMemory* memory) {
    if ((count != 1 && count != QueuedState::kClasses) || first < 0 || size_t(first + count) > options_.size())
        throw BadScenario("port.second: found " + std::to_string(count) + " queues, allowed 1 or 8 of queue.options");
    port.queued = new QueuedState;
    port.queued->memory = memory;
    port.queued->apply(&options_[size_t(first)], count > 1);
}

// The port's part of its switch's fabric, which is made for the first of them.
inline void Simulation::make_cells(uint32_t number) {
    Port& port = network.ports[number];
    const QueueOptions& options = *port.queued->classes[0].options;
    if (!options.has_cells()) return;
    Chassis*& chassis = port.queued->memory->chassis;
    if (!chassis) {
        network.chassis.push_back(std::make_unique<Chassis>(network, uint32_t(network.chassis.size()), options));
        chassis = network.chassis.back().get();
    }
    port.queued->cells = chassis->join(number, options, port.rate_bps);
}

inline void Simulation::make_ports() {
    auto kind = scenario.ints("port.kind"), rate = scenario.ints("port.rate_bps"), delay = scenario.ints("port.delay_ns");
    auto buffer = scenario.ints("port.buffer"), mark = scenario.ints("port.mark_above"), memory = scenario.ints("port.memory");
    auto first = scenario.ints("port.first"), second = scenario.ints("port.second"), third = scenario.ints("port.third");
    auto fourth = scenario.ints("port.fourth"), fifth = scenario.ints("port.fifth"), sixth = scenario.ints("port.sixth");
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
        auto& line = costs_[rate[i]];
        if (!line) line = std::make_unique<LineCosts>(rate[i]);
        port.costs = line.get();
        switch (port.discipline) {
            case Discipline::kFifo:
                break;
            case Discipline::kShared:
                port.shared = new SharedState{first[i], memory_of(shared_, memory[i])};
                break;
            case Discipline::kRed:
                port.red = new RedState{{first[i], second[i], third[i]}, fourth[i], bool(fifth[i] & 1), fifth[i] >> 1,
                                        PortRandom(uint64_t(sixth[i]))};
                break;
            case Discipline::kQueued:
                make_queued(port, first[i], second[i], memory_of(switches_, memory[i]));
                port.queued->class_map = uint32_t(third[i]);
                port.queued->frame_bytes = fourth[i];
                port.queued->packet_ns = fifth[i];
                port.queued->random = PortRandom(uint64_t(sixth[i]));
                make_cells(uint32_t(i));
                break;
            default:
                throw BadScenario("port.kind: found " + std::to_string(kind[i]) + ", allowed 0 to 3");
        }
    }
}

inline void Simulation::write_timeline(FILE* to, double processor_s) const {
    const Programs& programs = *programs_;
    std::vector<int64_t> drops, marks, packets, bytes, source, destination, retransmitted, received, written, acknowledged, srtt, ssthresh;
    for (const Port& port : network.ports) {
        drops.push_back(port.drops);
        marks.push_back(port.marks);
        packets.push_back(port.packets);
        bytes.push_back(port.bytes);
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
    auto write = [to](const char* name, const std::vector<int64_t>& column) {
        write_column(to, name, kInt64, column.data(), column.size());
    };
    fwrite(kMagic, 1, 8, to);
    write("stamps", programs.stamps());
    write("port.drops", drops);
    write("port.marks", marks);
    write("port.packets", packets);
    write("port.bytes", bytes);
    write("switch.moves", network.choices->moves());
    write("end.source", source);
    write("end.destination", destination);
    write("end.retransmitted", retransmitted);
    write("end.received", received);
    write("end.written", written);
    write("end.acknowledged", acknowledged);
    write("end.srtt_us_x8", srtt);
    write("end.ssthresh", ssthresh);
    write("message.posted_ns", programs.posted_ns());
    write("message.received_ns", programs.received_ns());
    if (programs_->fluid()) {
        std::vector<double> waits = programs_->fluid()->waits();
        write_column(to, "fluid.waits", kFloat64, waits.data(), waits.size());
    }
    if (leaps_) {
        auto write_both = [&](const char* name, const auto& of) {
            std::vector<int64_t> column = of(*leaps_);
            if (stages_) {
                std::vector<int64_t> more = of(*stages_);
                column.insert(column.end(), more.begin(), more.end());
            }
            write(name, column);
        };
        write_both("leaps.first_message", [](const auto& each) { return each.first_messages(); });
        write_both("leaps.error_ns", [](const auto& each) { return each.errors_ns(); });
        write_both("leaps.messages", [](const auto& each) { return each.messages(); });
    }
    write("packets", {network.sent});
    write("hops", {network.hops});
    write("now_ns", {network.now_ns});
    write_column(to, "processor_s", kFloat64, &processor_s, 1);
    write("", {});
}
