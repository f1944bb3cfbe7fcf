// SPDX-License-Identifier: GPL-2.0-only
// A rank's side of queue pairs: credits and messages, and the thread that waits for their completions
// (workloads/execution/verbs/queue_pairs.py).
#pragma once
#include "programs.hpp"
#include "queue_pair.hpp"

inline void Programs::read_devices(const Columns& from) {
    roce_ = {from.number("roce.path_mtu"), from.number("roce.timeout_ns"), from.number("roce.retries"),
             from.number("outer_bytes")};
    completions_.resize(size_t(from.number("completions")));
    auto numbers = from.ints("roce.devices");
    const int64_t* next = numbers.begin();
    while (next != numbers.end()) {
        DeviceSetting& device = devices_.emplace_back();
        uint64_t* const fields[] = {
            &device.rate.kind, &device.rate.line_bps, &device.rate.min_bps, &device.rate.additive_bps,
            &device.rate.hyper_bps, &device.rate.cnp_interval_ns, &device.rate.alpha_interval_ns,
            &device.rate.decrease_interval_ns, &device.rate.increase_interval_ns, &device.rate.gain_q32,
            &device.rate.fast_stages, &device.rate.clamp_target, &device.rate.rtt_min_ns, &device.rate.rtt_low_ns,
            &device.rate.rtt_high_ns, &device.rate.ewma_q32, &device.rate.beta_q32, &device.rate.hyper_after,
            &device.rate.base_rtt_ns, &device.rate.target_q32, &device.rate.max_stage, &device.rate.target_delay_ns,
            &device.rate.scale_q16,
        };
        constexpr ptrdiff_t kOthers = 11;
        if (numbers.end() - next < ptrdiff_t(std::size(fields)) + kOthers)
            throw BadScenario("roce.devices: the column ends within a device");
        for (uint64_t* field : fields) *field = uint64_t(*next++);
        device.ecn = *next++;
        device.window_bytes = *next++;
        device.window_by_rate = *next++;
        device.ack_every = *next++;
        device.int_hops = uint8_t(*next++);
        device.selective = *next++;
        device.reordering_ns = *next++;
        for (uint64_t* field : {&device.entropy.values, &device.entropy.least, &device.entropy.probe_interval_ns})
            *field = uint64_t(*next++);
        device.trim = *next++;
    }
}

// The queue pair at the sending end of a pair; both ends are made at once.
inline QueuePair& Programs::queue_pair(int32_t pair) {
    if (QueuePair* known = net_.queue_pairs[size_t(pair)]) return *known;
    int32_t numbers[2] = {pair, pairs_[size_t(pair)].reverse};
    for (int i = 0; i < 2; ++i) {
        const Pair& of = pairs_[size_t(numbers[i])];
        if (size_t(of.device) >= devices_.size() || size_t(of.completions) >= completions_.size())
            throw BadScenario("pair.device: found a pair without a device, or without a queue of completions");
        auto* made = new QueuePair(net_, uint32_t(numbers[i]), roce_, devices_[size_t(of.device)],
                                   completions_[size_t(of.completions)], uint32_t(of.completions));
        made->route = of.route;
        made->hops = of.hops;
        made->selector = of.selector;
        made->peer = uint32_t(numbers[1 - i]);
        if (uint64_t values = devices_[size_t(of.device)].entropy.values) {
            if (value_routes_.size() != values * pairs_.size()) throw BadScenario("value.routes: found a pair without some");
            made->value_routes = &value_routes_[size_t(numbers[i]) * values];
        }
        net_.queue_pairs[size_t(numbers[i])] = made;
    }
    return *net_.queue_pairs[size_t(pair)];
}

// The thread takes what there is, and wakes those that waited for it, before it sleeps.
inline void Programs::take_completions(uint32_t queue, Time now) {
    CompletionQueue& completions = completions_[queue];
    while (!completions.found.empty()) {
        Completion each = completions.found.front();
        completions.found.pop_front();
        switch (each.kind) {
            case Completion::kCreditCame:
                has_been_invited(each.message, now);
                break;
            case Completion::kMessageCame:
                has_received(each.message, now);
                break;
            case Completion::kMessageSent:
                net_.queue_pairs[each.queue_pair]->has_completed();
                has_sent(each.message, now);
                break;
            case Completion::kCreditSent:
                net_.queue_pairs[each.queue_pair]->has_completed();
                break;
        }
    }
    completions.told = false;
}
