// SPDX-License-Identifier: GPL-2.0-only
// Ways of packets while links go down and come back.
//
// Routes have states: which links they do without. A place is a node that packets of a flow come to; a state says
// over which link they leave it, if over any. A route's word beyond links and choices is a place, so that what is on
// its way when routes change goes on by the new ones.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "columns.hpp"
#include "network.hpp"

class Reroutes {
  public:
    static constexpr uint32_t kNoRoute = kNobody;

    // The network's links and choices have so many words together.
    Reroutes(const Columns& from, Network& network, size_t words) : net_(network), words_(words) {
        auto onward = from.shorts("place.word"), next = from.shorts("place.next");
        auto states = size_t(from.number("place.states"));
        if ((onward.size && !states) || (states && onward.size % states) || next.size != onward.size)
            throw BadScenario("place.word: found " + std::to_string(onward.size) + " numbers for " +
                              std::to_string(states) + " states");
        places_ = states ? onward.size / states : 0;
        before_ = uint32_t(net_.links.size());
        for (size_t i = 0; i < onward.size; ++i) {
            if (onward[i] < -1 || onward[i] >= int64_t(words) || next[i] < -1 || next[i] >= int64_t(places_))
                throw BadScenario("place.word: found a place that leads nowhere");
            net_.links.push_back(uint32_t(onward[i]));
            net_.links.push_back(next[i] < 0 ? kNobody : uint32_t(words + size_t(next[i])));
        }
        auto node = from.shorts("place.node"), host = from.shorts("pair.node");
        if (places_ && node.size != places_) throw BadScenario("place.node: found another count than of places");
        node_.assign(node.begin(), node.end());
        host_.assign(host.begin(), host.end());
        enter(0);
    }

    bool are_any() const { return places_; }
    size_t places() const { return places_; }
    // From now on routes are those of this state.
    void enter(size_t state) { first_ = before_ + uint32_t(2 * state * places_); }

    // The route that begins at a place, kNoRoute where nothing leads on.
    uint32_t route(uint32_t place) const {
        uint32_t found = first_ + 2 * place;
        return net_.links[found] == kNobody ? kNoRoute : found;
    }
    // How many links it has, as far as that matters: one, or more.
    uint8_t hops(uint32_t place) const { return net_.links[first_ + 2 * place + 1] == kNobody ? 1 : 2; }

    // The word by which a packet goes on from the place that its route names, kNoRoute where nothing leads on.
    uint32_t take(Packet& packet, uint32_t word) const {
        uint32_t place = word - uint32_t(words_), found = route(place);
        if (found == kNoRoute) return kNoRoute;
        packet.route = found - packet.hop;
        packet.hops = uint8_t(packet.hop + hops(place));
        return net_.links[found];
    }

    // Whether a node tells the host of a pair that it has no route for what this sends, by an ICMP error: a second
    // after the last one, or later (net/ipv4/route.c: ip_error, with net.ipv4.icmp_ratelimit 0).
    bool tells(uint32_t word, uint32_t pair, Time now) {
        uint64_t key = uint64_t(uint32_t(node_[word - words_])) << 32 | uint32_t(host_[pair]);
        auto [found, is_first] = told_ns_.try_emplace(key, now);
        if (!is_first && now / kJiffyNs - found->second / kJiffyNs < kSecondNs / kJiffyNs) return false;
        found->second = now;
        return true;
    }

  private:
    Network& net_;
    size_t words_, places_ = 0;
    std::vector<int32_t> node_, host_;
    std::unordered_map<uint64_t, Time> told_ns_;
    uint32_t before_ = 0, first_ = 0;
};
