// SPDX-License-Identifier: GPL-2.0-only
// Switches with queues at their ingress and a fabric of cells: the virtual kernel's own file (emulator/kernel/gwcells.c),
// for ports as gwport_cells.c has them.
#pragma once
#include <memory>
#include <vector>

#include "network.hpp"
#include "queued.hpp"

extern "C" {
#include "gwcells.h"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include "gwcells.c"
#pragma GCC diagnostic pop
}

class Chassis {
  public:
    // The fabric of a switch, whose steps are events of this number.
    Chassis(Network& network, uint32_t number, const QueueOptions& options)
        : net_(network), number_(number), waiting_(size_t(options.cards)) {
        gwcells_settings set{};
        set.link_bps = uint64_t(options.fabric_bps);
        set.link_ns = uint64_t(options.fabric_ns);
        set.credit_bytes = uint64_t(options.quantum_bytes);
        set.links = uint32_t(options.fabric_links);
        set.cards = uint32_t(options.cards);
        set.cell_bytes = uint32_t(options.cell_bytes);
        set.header_bytes = uint32_t(options.header_bytes);
        gwcells_init(&cells_, &set);
        cells_.first = [](void* of, u32 card) { return static_cast<Egress*>(of)->first(card); };
        cells_.take = [](void* of, u32 card, u64, u32* bytes) { return static_cast<Egress*>(of)->take(card, bytes); };
        cells_.deliver = [](void* of, void* what, u64 t) { static_cast<Egress*>(of)->deliver(what, Time(t)); };
    }
    ~Chassis() {
        for (auto& each : ports_) gwcells_free_port(&cells_, each->cells);
        gwcells_free(&cells_);
    }
    Chassis(const Chassis&) = delete;
    Chassis& operator=(const Chassis&) = delete;

    gwcells_port* join(uint32_t port, const QueueOptions& options, int64_t rate_bps) {
        ports_.push_back(std::make_unique<Egress>(Egress{this, port, nullptr}));
        return ports_.back()->cells =
            gwcells_add_port(&cells_, ports_.back().get(), uint32_t(options.card), uint64_t(rate_bps));
    }
    // The bytes that wait at a card, for any port.
    int64_t waiting(int64_t card, Time now) {
        gwcells_run(&cells_, uint64_t(now));
        return waiting_[size_t(card)];
    }
    // A packet begins to wait there. All until now was done.
    void ask(gwcells_port* port, int64_t card, uint32_t length, Time now) {
        waiting_[size_t(card)] += length;
        gwcells_ask(&cells_, port, uint32_t(card), line_bytes(length), uint64_t(now));
        arm();
    }
    void fire(Time now) {
        if (now != armed_ns_) return;  // it was set anew since
        armed_ns_ = kNever;
        gwcells_run(&cells_, uint64_t(now));
        arm();
    }

  private:
    // Packets are known by numbers that begin at 0, and to the fabric by addresses that are not null.
    struct Egress {
        Chassis* chassis;
        uint32_t number;
        gwcells_port* cells;

        Network& network() const { return chassis->net_; }
        Queue& queue(uint32_t card) const { return *network().ports[number].queued->classes[0].flows[card]; }
        u32 first(uint32_t card) const {
            const auto& flows = network().ports[number].queued->classes[0].flows;
            auto found = flows.find(card);
            if (found == flows.end() || found->second->packets.empty()) return 0;
            return line_bytes(network().packets[found->second->packets.front().packet].length);
        }
        void* take(uint32_t card, u32* bytes) const {
            Queue& from = queue(card);
            Held held = from.packets.front();
            from.packets.pop_front();
            *bytes = network().packets[held.packet].length;
            from.bytes -= *bytes;
            chassis->waiting_[card] -= *bytes;
            return reinterpret_cast<void*>(uintptr_t(held.packet) + 1);
        }
        void deliver(void* what, Time t) const {
            Held held{uint32_t(reinterpret_cast<uintptr_t>(what) - 1), kNobody, t};
            Queued(network(), number).offer(held, t);
        }
    };
    static uint32_t line_bytes(uint32_t length) {
        return uint32_t(std::max<int64_t>(length, kLeastBytes) + kOverheadBytes);
    }
    void arm() {
        Time next = Time(std::min<uint64_t>(gwcells_next(&cells_), uint64_t(kNever)));
        if (next >= armed_ns_) return;
        armed_ns_ = next;
        net_.at_timers(next, What::kCells, number_);
    }

    Network& net_;
    uint32_t number_;
    gwcells cells_{};
    std::vector<int64_t> waiting_;  // bytes, by card
    std::vector<std::unique_ptr<Egress>> ports_;
    Time armed_ns_ = kNever;
};

// As of gw_card_of: what the node itself sends is as if it had come in by the port's own card.
inline int64_t Queued::card_of(const Held& held) const {
    const QueuedState* in = held.ingress == kNobody ? nullptr : net_.ports[held.ingress].queued;
    return (in && in->cells ? in : &state_)->classes[0].options->card;
}

inline bool Queued::card_has_room(const Packet& packet, const Held& held, Time now) {
    return state_.memory->chassis->waiting(card_of(held), now) + packet.length <= state_.classes[0].options->buffer_bytes;
}

// As of gw_cells_hold.
inline void Queued::hold(const Packet& packet, TrafficClass& found, Queue& queue, const Held& held, Time now) {
    queue.packets.push_back(held);
    queue.bytes += packet.length;
    found.bytes += packet.length;
    port_.backlog += packet.length;
    state_.memory->chassis->ask(state_.cells, card_of(held), packet.length, now);
}
