// SPDX-License-Identifier: GPL-2.0-only
// Selective repeat of a queue pair: as emulator/kernel/rxe/rxe_selective.c.
#pragma once
#include "queue_pair.hpp"

// The requester.

// Whether so many packets are on their way that no other may be sent.
inline bool QueuePair::is_full(Time now) {
    if (!device_.selective) return next_psn_ >= acked_psn_ + window(now);
    return next_psn_ - acked_psn_ >= kMostUnacknowledged ||
           in_flight() >= window(now);
}

// Whether a packet is lost; the first of `lost_` is to be sent again.
inline bool QueuePair::has_lost(Time now) {
    if (holes_.empty()) return false;
    while (!overtaken_.empty()) {
        auto found = holes_.find(overtaken_.front());
        if (found == holes_.end() || found->second.state != Hole::kOvertaken) {
            overtaken_.pop_front();
            continue;
        }
        Time due = found->second.since_ns + device_.reordering_ns;
        if (due > now) {
            if (lost_timer_ns_ != due) {
                lost_timer_ns_ = due;
                net.at_timers(due, What::kQueuePairLost, number);
            }
            break;
        }
        found->second.state = Hole::kLost;
        lost_.push_back(found->first);
        path_loses(found->first, now);
        overtaken_.pop_front();
    }
    while (!lost_.empty()) {
        auto found = holes_.find(lost_.front());
        if (found != holes_.end() && found->second.state == Hole::kLost) return true;
        lost_.pop_front();
    }
    return false;
}

inline void QueuePair::send_again(Time now) {
    int64_t psn = lost_.front();
    lost_.pop_front();
    for (uint32_t i = 0; i < works_.size(); ++i) {
        const Work& work = works_[i];
        if (work.state == Work::kPosted) break;
        if (psn < work.first_psn || psn > work.last_psn) continue;
        unasked_ = 0;
        send_packet(work, psn, true, now);
        break;
    }
    ++resent;
    Hole& hole = holes_[psn];
    hole.state = Hole::kSent;
    hole.sent_before_psn = next_psn_;
    sent_again_.push_back(psn);
    waits_for_port_ = false;
    if (retry_ns_ == kNever) set_retry_timer(now);
}

// After a time-out: whether what is not known to have come can be sent again by itself.
inline bool QueuePair::retry_selectively(Time now) {
    if (!device_.selective) return false;
    if (timed_out_once_) {
        holes_.clear();
        overtaken_.clear();
        lost_.clear();
        sent_again_.clear();
        known_psn_ = acked_psn_;
        timed_out_once_ = false;
        return false;
    }
    timed_out_once_ = true;
    for (auto* list : {&overtaken_, &sent_again_}) {
        auto state = list == &overtaken_ ? Hole::kOvertaken : Hole::kSent;
        for (; !list->empty(); list->pop_front()) {
            int64_t psn = list->front();
            auto found = holes_.find(psn);
            if (found == holes_.end() || found->second.state != state) continue;
            found->second.state = Hole::kLost;
            lost_.push_back(psn);
            path_loses(psn, now);
        }
    }
    for (; known_psn_ < next_psn_; ++known_psn_) {
        holes_[known_psn_].state = Hole::kLost;
        lost_.push_back(known_psn_);
        path_loses(known_psn_, now);
    }
    if (holes_.empty()) {  // all has come, and the acknowledgement was lost: one asks for another
        holes_[acked_psn_].state = Hole::kLost;
        lost_.push_back(acked_psn_);
    }
    return true;
}

inline bool QueuePair::knows(int64_t psn) const {
    return device_.selective && psn < known_psn_ && !holes_.contains(psn);
}

// Takes in an acknowledgement. Whether it says something new.
inline bool QueuePair::has_heard(const Told& told, Time now) {
    if (!device_.selective || told.psn >= next_psn_) return false;
    int64_t known_before = known_psn_ - int64_t(holes_.size());
    holes_.erase(holes_.begin(), holes_.upper_bound(told.psn));
    known_psn_ = std::max(known_psn_, told.psn + 1);
    bool is_new = told.psn >= acked_psn_;
    if (has_bitmap(told.frame) && told.answers >= acked_psn_ && told.answers < next_psn_) {
        if (told.is_marked && value_routes)
            rxe_entropy_marked(&entropy_, value_of_[size_t(told.answers % kMostUnacknowledged)]);
        auto has_come = [&](int64_t psn) {
            int64_t back = told.answers - psn;
            return back < kBitmapPackets && (told.came >> back & 1);
        };
        for (int64_t back = 0; !holes_.empty() && back < kBitmapPackets; ++back)
            if (told.came >> back & 1) is_new |= holes_.erase(told.answers - back) > 0;
        for (; known_psn_ <= told.answers; ++known_psn_) {
            if (has_come(known_psn_)) {
                is_new = true;
                continue;
            }
            Hole& hole = holes_[known_psn_];
            hole.state = Hole::kOvertaken;
            hole.since_ns = now;
            overtaken_.push_back(known_psn_);
        }
        while (!sent_again_.empty()) {
            auto found = holes_.find(sent_again_.front());
            if (found != holes_.end() && found->second.state == Hole::kSent) {
                if (told.answers < found->second.sent_before_psn) break;
                found->second.state = Hole::kOvertaken;
                found->second.since_ns = now;
                overtaken_.push_back(found->first);
            }
            sent_again_.pop_front();
        }
        auto found = told.frame == Frame::kTrimmed ? holes_.find(told.answers) : holes_.end();
        if (found != holes_.end() && found->second.state != Hole::kLost) {
            hear_of_trim(told.answers);
            is_new = true;
        }
    }
    has_learnt(told, known_psn_ - int64_t(holes_.size()) - known_before, now);
    if (is_new) timed_out_once_ = false;
    return is_new;
}

// The responder.

// A request has come before its turn.
inline void QueuePair::keep(Told told, Time now) {
    if (told.psn - expected_psn_ >= kMostUnacknowledged) return;
    bool is_first = early_.emplace(told.psn, told).second;
    if (is_first) ++came_early;
    answer(Frame::kBitmap, told, now);
}

// A hole is known to be lost: it is to be sent again at once.
inline void QueuePair::hear_of_trim(int64_t psn) {
    holes_[psn].state = Hole::kLost;
    for (auto* list : {&overtaken_, &sent_again_})
        for (uint32_t left = list->size(); left; --left) {
            int64_t first = list->front();
            list->pop_front();
            if (first != psn) list->push_back(first);
        }
    lost_.push_back(psn);
}

// Answers a request by which have come of those up to it.
inline void QueuePair::answer(Frame frame, const Told& told, Time now) {
    uint64_t came = frame == Frame::kBitmap;
    for (int64_t back = 1; back < kBitmapPackets; ++back) {
        int64_t psn = told.psn - back;
        if (psn < expected_psn_ || early_.contains(psn)) came |= uint64_t(1) << back;
    }
    acknowledge(frame, expected_psn_ - 1, &told, now, came);
}

// The early request whose turn it is comes first; after the last one in a row all is acknowledged.
inline void QueuePair::take_early(Time now) {
    if (early_.empty() && !has_caught_up_) return;
    auto found = early_.find(expected_psn_);
    if (found != early_.end()) {
        Told told = found->second;
        told.telemetry = kNobody;  // it went back at once
        told.is_early = true;
        requests_.push_front(told);
        early_.erase(found);
        has_caught_up_ = true;
    } else if (has_caught_up_) {
        has_caught_up_ = false;
        acknowledge(Frame::kAcknowledge, expected_psn_ - 1, nullptr, now);
    }
}
