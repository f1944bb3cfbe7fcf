// SPDX-License-Identifier: GPL-2.0-only
// How fast a connection's data is delivered, sampled with each acknowledgement: as of
// net/ipv4/tcp_rate.c of Linux 6.12, with times in whole microseconds as there.
#pragma once
#include <algorithm>
#include <cstdint>

#include "packet.hpp"

// The state of a connection when a segment was sent (tcp_skb_cb's tx).
struct Sent {
    int64_t first_sent_us, delivered_us, delivered;
    bool app_limited;
};

// A segment that is not acknowledged; `again` it is on its way once more. `order` counts what its socket gave to
// the port up to it, when it was last sent.
struct Segment {
    int64_t seq, end_seq;
    Time sent_ns;
    uint32_t order = 0;
    bool push = false;
    bool sacked : 1 = false, lost : 1 = false, again : 1 = false, retransmitted : 1 = false, has_sent : 1 = false;
    bool listed : 1 = true;   // among those that RACK looks at (tsorted_sent_queue)
    bool merged : 1 = false;  // its bytes are in the skb of the one before it
    Sent sent{};
};

// The sample that an acknowledgement gives (struct rate_sample); `delivered` is below 0 where it tells no rate,
// `rtt_us` where it tells no round trip.
struct RateSample {
    int64_t delivered, interval_us, prior_delivered, prior_in_flight, rtt_us, acked, losses;
    bool app_limited;
};

class DeliveryRate {
  public:
    int64_t app_limited = 0;  // what is delivered when a gap in sending has passed; 0 without one
    int64_t delivered_us = 0;

    // As of tcp_rate_skb_sent.
    void sent(Segment& segment, int64_t packets_out, int64_t delivered) {
        if (!packets_out) first_sent_us_ = delivered_us = segment.sent_ns / 1000;
        segment.sent = {first_sent_us_, delivered_us, delivered, app_limited != 0};
        segment.has_sent = true;
    }

    // As of tcp_rate_skb_delivered: a segment is acknowledged, also selectively.
    void took(Segment& segment) {
        if (!segment.has_sent) return;
        segment.has_sent = false;
        int64_t sent_us = segment.sent_ns / 1000;
        bool later = sent_us != first_sent_us_ ? sent_us > first_sent_us_ : segment.end_seq > last_end_seq_;
        if (!has_prior_ || !prior_.delivered || later) {
            prior_ = segment.sent;
            has_prior_ = true;
            last_end_seq_ = segment.end_seq;
            first_sent_us_ = sent_us;
            send_phase_us_ = sent_us - prior_.first_sent_us;
        }
    }

    // As of tcp_rate_gen.
    RateSample sample(int64_t delivered, int64_t acked, int64_t losses, int64_t prior_in_flight, int64_t rtt_us,
                      int64_t min_rtt_us, Time now) {
        if (app_limited && delivered > app_limited) app_limited = 0;
        int64_t now_us = now / 1000;
        if (acked) delivered_us = now_us;
        bool had_prior = has_prior_;
        forget();
        if (!had_prior) return {-1, -1, 0, prior_in_flight, rtt_us, acked, losses, false};
        int64_t interval_us = std::max(send_phase_us_, now_us - prior_.delivered_us);
        if (interval_us < min_rtt_us) interval_us = -1;
        return {delivered - prior_.delivered, interval_us, prior_.delivered, prior_in_flight,
                rtt_us, acked, losses, prior_.app_limited};
    }

    // Segments that were taken give no sample.
    void forget() {
        has_prior_ = false;
        last_end_seq_ = 0;
    }

  private:
    int64_t first_sent_us_ = 0, last_end_seq_ = 0, send_phase_us_ = 0;
    Sent prior_{};
    bool has_prior_ = false;
};
