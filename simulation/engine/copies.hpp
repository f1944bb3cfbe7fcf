// SPDX-License-Identifier: GPL-2.0-only
// Copies of memory between hosts of one server: each takes the sender's port and the receiver's, one after the other
// (topologies/fabrics/copies.py). As emulator/ranks/copies/ports.py has ranks do so: what comes to a port in a
// nanosecond is known once that is over.
#pragma once
#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "programs.hpp"

class Copies {
  public:
    static constexpr int32_t kNoLink = -1;  // at the switch's own end

    Copies(const Columns& from, Network& network, Programs& programs)
        : net_(network), programs_(programs), first_(from.shorts("copy.first")), second_(from.shorts("copy.second")) {
        if (first_.size != programs.pairs() || second_.size != first_.size)
            throw BadScenario("copy.first: found " + std::to_string(first_.size) + " pairs");
        auto settings = from.ints("copy.settings");
        if (settings.size != 2 || settings[0] < 1 || settings[1] < 0)
            throw BadScenario("copy.settings: found " + std::to_string(settings.size) + " numbers, allowed a rate and a delay");
        rate_bps_ = settings[0];
        delay_ns_ = settings[1];
        for (size_t i = 0; i < first_.size; ++i)
            for (int32_t link : {first_[i], second_[i]})
                if (link < kNoLink) throw BadScenario("copy.first: found link " + std::to_string(link));
    }

    bool carries(int32_t pair) const { return first_[size_t(pair)] != kNoLink || second_[size_t(pair)] != kNoLink; }

    // Both ends have posted it.
    void begin(int32_t message, Time now) {
        Place place = place_of(message);
        if (place.first == kNoLink) return comes(message, place, now);
        int64_t links = place.second == kNoLink ? 1 : 2;
        leaving_.push({now, place.second, message});
        wake_at(now + links * delay_ns_ + place.occupied_ns);
    }

    // Takes up what came before this nanosecond; those that are complete are told of, in order.
    void fire(Time now) {
        while (!leaving_.empty() && std::get<0>(leaving_.top()) < now) {
            auto [at, other, message] = leaving_.top();
            leaving_.pop();
            Place place = place_of(message);
            Time begins = take(place.first, at, place);
            if (place.second == kNoLink) ends(message, place, begins);
            else comes(message, place, begins + delay_ns_);
        }
        while (!coming_.empty() && std::get<0>(coming_.top()) < now) {
            auto [at, other, message] = coming_.top();
            coming_.pop();
            Place place = place_of(message);
            ends(message, place, take(place.second, at, place));
        }
        std::vector<int32_t> over;
        while (!due_.empty() && std::get<0>(due_.top()) <= now) {
            over.push_back(std::get<3>(due_.top()));
            due_.pop();
        }
        programs_.are_copied(over, now);
    }

  private:
    struct Place {
        int32_t first, second;
        int64_t occupied_ns;
    };
    using Waiting = std::tuple<Time, int32_t, int32_t>;  // since when, the other link, the message
    template <typename T>
    using Queue = std::priority_queue<T, std::vector<T>, std::greater<T>>;

    Place place_of(int32_t message) const {
        size_t pair = size_t(programs_.pair_of(message));
        auto bits_ns = __int128(programs_.size_bytes(message)) * 8 * 1'000'000'000;
        return {first_[pair], second_[pair], int64_t((bits_ns + rate_bps_ - 1) / rate_bps_)};
    }
    void comes(int32_t message, const Place& place, Time at) {
        coming_.push({at, place.first, message});
        wake_at(at + delay_ns_ + place.occupied_ns);
    }
    // When a port takes up what comes to it.
    Time take(int32_t link, Time at, const Place& place) {
        Time& free = free_ns_[link];
        Time begins = std::max(at, free);
        free = begins + place.occupied_ns;
        return begins;
    }
    void ends(int32_t message, const Place& place, Time last_begins) {
        Time at = last_begins + place.occupied_ns + delay_ns_;
        due_.push({at, place.second, place.first, message});
        wake_at(at);
    }
    void wake_at(Time at) { net_.at_processes(at, What::kCopies, 0, 0); }

    Network& net_;
    Programs& programs_;
    Span<int32_t> first_, second_;  // by pair: the links out of the sender and into the receiver
    int64_t rate_bps_, delay_ns_;
    std::unordered_map<int32_t, Time> free_ns_;  // by link
    Queue<Waiting> leaving_, coming_;
    Queue<std::tuple<Time, int32_t, int32_t, int32_t>> due_;
};
