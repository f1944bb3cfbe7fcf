// SPDX-License-Identifier: GPL-2.0-only
// Switches that choose next hops by more than a hash: the virtual kernel's own files (emulator/kernel/gwroute_*.c).
//
// A route's word that is no link is a choice: the packet goes on by the route of the hop that is taken, whose first
// word is the link to it.
#pragma once
#include <deque>

#include "columns.hpp"
#include "network.hpp"
#include "queued.hpp"

extern "C" {
#include "gwroute.h"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "gwroute_adaptive.c"
#include "gwroute_choose.c"
#include "gwroute_flowlet.c"
#include "gwroute_source.c"
#include "gwroute_spray.c"
#pragma GCC diagnostic pop
}

class Choices {
  public:
    Choices(const Columns& from, Network& network) : net_(network) {
        auto at = from.shorts("choice.switch"), turn = from.shorts("choice.turn"), first = from.shorts("choice.first");
        auto hops = from.shorts("choice.hops"), words = from.shorts("choice.routes");
        auto settings = from.ints("switch.settings"), flows = from.ints("pair.flow");
        auto turns = from.number("choice.turns");
        static_assert(sizeof(gwroute_settings) == kNumbers * sizeof(int64_t));
        if (settings.size % kNumbers) throw BadScenario("switch.settings: the column ends within a switch");
        for (size_t i = 0; i < settings.size; i += kNumbers) {
            gwroute_state& made = switches_.emplace_back();
            memcpy(&made.set, settings.data + i, sizeof made.set);
            if (made.set.kind == GWROUTE_FLOWLET || made.set.kind == GWROUTE_ADAPTIVE)
                made.flows = static_cast<gwroute_flow*>(calloc(GWROUTE_FLOWS, sizeof(gwroute_flow)));
            gwroute_begin(&made);
        }
        if (first.size != at.size + 1 || turn.size != at.size)
            throw BadScenario("choice.first: found " + std::to_string(first.size) + " numbers, allowed " +
                              std::to_string(at.size + 1));
        uint32_t before = uint32_t(net_.links.size());
        for (int32_t word : words) net_.links.push_back(uint32_t(word));
        for (int32_t hop : hops) starts_.push_back(before + uint32_t(hop));
        for (size_t i = 0; i < at.size; ++i) {
            uint32_t count = uint32_t(first[i + 1] - first[i]);
            if (at[i] < 0 || size_t(at[i]) >= switches_.size() || turn[i] < 0 || turn[i] >= turns || count < 2 ||
                count > GWROUTE_MOST_HOPS)
                throw BadScenario("choice.switch: found a choice of no switch");
            sets_.push_back({uint32_t(at[i]), uint32_t(turn[i]), uint32_t(first[i]), count});
        }
        turns_.resize(size_t(turns));
        auto reverse = from.shorts("pair.reverse");
        flow_to_.resize(flows.size);
        for (size_t i = 0; i < flows.size; ++i) flow_to_[size_t(reverse[i])] = uint64_t(flows[i]);
    }

    // The link that a packet takes now, and its route from there on. Its target's flow is known by that.
    uint32_t take(Packet& packet, uint32_t number, Time now) {
        const Set& set = sets_[number];
        Asked asked{&net_, {}, now};
        gwroute_hops hops{};
        hops.count = set.count;
        for (uint32_t i = 0; i < set.count; ++i) hops.id[i] = asked.port[i] = net_.links[starts_[set.first + i]];
        hops.turn = &turns_[set.turn];
        hops.load = [](void* of, uint32_t hop) {
            Asked& found = *static_cast<Asked*>(of);
            return found.network->load(found.port[hop], found.now);
        };
        hops.of = &asked;
        uint32_t taken = gwroute_take(&switches_[set.at], &hops, flow_to_[packet.target], uint64_t(now));
        packet.route = starts_[set.first + taken] - packet.hop;
        return asked.port[taken];
    }

    size_t size() const { return sets_.size(); }

    std::vector<int64_t> moves() const {
        std::vector<int64_t> found;
        for (const gwroute_state& each : switches_) found.push_back(int64_t(each.moves));
        return found;
    }

  private:
    static constexpr size_t kNumbers = 7;
    struct Set {
        uint32_t at, turn, first, count;
    };
    struct Asked {
        Network* network;
        uint32_t port[GWROUTE_MOST_HOPS];
        Time now;
    };

    Network& net_;
    std::vector<gwroute_state> switches_;
    std::vector<Set> sets_;
    std::vector<uint32_t> starts_;
    std::vector<gwroute_turn> turns_;
    std::vector<uint64_t> flow_to_;  // by the end that packets are for
};

// The load of a port: twice the bytes that wait there, and 1 where the transmitter is busy (gw_route_load).
inline uint64_t Network::load(uint32_t number, Time now) {
    Port& port = ports[number];
    if (port.queued) {
        Queued(*this, number).update(now);
        arm(number);
    } else if (port.ready() <= now) {
        return 0;
    } else {
        port.begin_until(now);
    }
    return 2 * uint64_t(port.backlog) + (port.ready() > now);
}
