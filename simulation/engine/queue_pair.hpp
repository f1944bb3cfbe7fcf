// SPDX-License-Identifier: GPL-2.0-only
// A reliable queue pair of Soft-RoCE with both its halves: as drivers/infiniband/sw/rxe of Linux 6.12 has it,
// with the patches of emulator/kernel.
//
// The requester sends packets of works in order (rxe_req.c), the completer takes in acknowledgements (rxe_comp.c),
// the responder answers requests (rxe_resp.c). The first two are one task, the last another: tasks run in a
// workqueue, one at a time and in the order in which they were queued (rxe_task.c). Packet numbers start at 0
// and are not cut to 24 bits.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "columns.hpp"
#include "controllers.hpp"
#include "network.hpp"
#include "ring.hpp"

// An entry of a completion queue, which a rank is told.
struct Completion {
    enum Kind : uint8_t { kCreditCame, kMessageCame, kCreditSent, kMessageSent } kind;
    uint32_t queue_pair;
    int32_t message;
};

// Completions that a rank's thread has not taken yet.
struct CompletionQueue {
    Ring<Completion> found;
    bool told = false;  // whether the thread is about to look
};

// The settings of all queue pairs of a run.
struct RoceSetting {
    int64_t path_mtu_bytes, timeout_ns, retries;
    int64_t outer_bytes;  // of what wraps each packet
};

inline constexpr int64_t kCreditPayloadBytes = 16;  // struct credit of workloads/execution/verbs/verbs.c

class QueuePair {
  public:
    QueuePair(Network& network, uint32_t number, const RoceSetting& roce, const DeviceSetting& device,
              CompletionQueue& completions, uint32_t completions_number);

    // Posts a message, or the credit of one: at once, or as soon as there is room for it.
    void post(int32_t message, bool is_write, int64_t size_bytes) {
        waiting_.push_back({message, is_write, size_bytes});
        fill();
    }
    // The rank has seen the completion of a work.
    void has_completed() {
        --under_way_;
        fill();
    }
    // A packet has arrived (rxe_rcv).
    void receive(uint32_t packet, Time now);
    // A packet that a port held leaves it then.
    void leaves_port(const Packet& packet, Time leaves_ns);
    void fire(What what, Time now);

    Network& net;
    const uint32_t number;
    uint32_t peer = kNobody;
    uint32_t route = 0;
    const uint32_t* value_routes = nullptr;  // of each entropy value, where there are some
    uint8_t hops = 0, selector = 0;
    int64_t sent = 0, resent = 0, naks = 0, timeouts = 0, cnps = 0, came_early = 0;

    Controller& controller() { return controller_; }

  private:
    static constexpr int64_t kEthernetBytes = 14, kIpBytes = 20, kUdpBytes = 8, kCrcBytes = 4;
    static constexpr int64_t kBthBytes = 12, kRethBytes = 16, kImmediateBytes = 4, kAethBytes = 4;
    static constexpr int64_t kCnpBytes = 16;          // reserved ones behind its header
    static constexpr int64_t kWireOverheadBytes = 24;
    static constexpr int64_t kMostUnacknowledged = 16384;  // RXE_MAX_UNACKED_PSNS
    static constexpr int64_t kPortHigh = 8, kPortLow = 4;  // RXE_INFLIGHT_SKBS_PER_QP_HIGH and _LOW
    static constexpr int64_t kMostRuns = 1024;             // RXE_MAX_ITERATIONS
    static constexpr int64_t kBitmapPackets = 64;          // RXE_SACK_PACKETS
    static constexpr int64_t kBitmapBytes = 12;            // struct rxe_sack
    static constexpr size_t kSentTimes = 1024;             // RXE_SENT_TIMES
    static constexpr int32_t kMostUnderWay = 127;          // _DEPTH of workloads/execution/verbs/queue_pairs.py
    static constexpr int64_t kIntHeaderBytes = GW_INT_HEADER_BYTES, kIntHopBytes = GW_INT_HOP_BYTES;

    struct Work {
        int32_t message;
        bool is_write;
        int64_t size_bytes;
        enum State : uint8_t { kPosted, kProcessing, kPending } state = kPosted;
        int64_t packets = 0;  // that have been sent
        int64_t first_psn = 0, last_psn = 0;
    };
    struct Told {  // a packet that waits for a task
        int64_t psn;
        Frame frame;
        bool is_write, is_last, asks;
        int32_t message;
        uint8_t hops;
        uint32_t telemetry;
        bool is_early = false;  // a request that came before its turn, and has been answered
        bool is_marked = false;  // a request with a mark, or the acknowledgement of one
        bool is_congested = false;  // a request with a mark, that its acknowledgement tells of (rxe_echo_mark)
        bool is_trimmed = false;  // a request without its payload
        int64_t answers = 0;    // of an acknowledgement with a bitmap: the request,
        uint64_t came = 0;      // and bit n says whether the one n before it has come
    };
    struct Hole {  // a packet that has been sent, and is not known to have come
        enum State : uint8_t { kOvertaken, kLost, kSent } state;
        Time since_ns = 0;           // when one that was sent later had come
        int64_t sent_before_psn = 0;  // sent again: what was first sent at or after it, was sent later
    };
    enum class Task : uint8_t { kIdle, kBusy, kArmed };
    struct SentTime {
        int64_t psn = -1;
        Time left_ns = 0;
    };

    void fill();
    void schedule(Task& task, What what);
    void run(Task& task, What what, Time now);
    bool send_step(Time now);
    bool request(Time now);
    bool complete(Time now);
    bool respond(Time now);
    void retry();
    void send_packet(const Work& work, int64_t psn, bool asks, Time now);
    bool is_full(Time now);
    int64_t in_flight() const { return next_psn_ - known_psn_ + int64_t(holes_.size()); }
    void has_learnt(const Told& told, int64_t packets, Time now);
    bool has_lost(Time now);
    void send_again(Time now);
    bool retry_selectively(Time now);
    bool knows(int64_t psn) const;
    bool has_heard(const Told& told, Time now);
    void keep(Told told, Time now);
    void answer(Frame frame, const Told& told, Time now);
    void hear_of_trim(int64_t psn);
    uint32_t take_route(Frame frame, int64_t psn);
    void path_loses(int64_t psn, Time now);
    void take_early(Time now);
    bool waits_for_port(Time now);
    void emit(uint32_t packet, Time now);
    uint32_t make(Frame frame, int64_t psn, int64_t bytes);
    void acknowledge(Frame frame, int64_t psn, const Told* answered, Time now, uint64_t came = 0);
    static bool has_bitmap(Frame frame) { return frame == Frame::kBitmap || frame == Frame::kTrimmed; }
    void tell(Completion::Kind kind, int32_t message, Time now);
    void has_been_acked(const Told& told, Time now);
    void free_telemetry(const Told& told);
    int64_t in_port(Time now);
    void watch_port(Time now);
    int64_t window(Time now);
    bool is_paced(Time now);
    void has_sent(int64_t bytes, Time now);
    bool awaits_ack() const {
        return retry_ns_ != kNever && acked_psn_ == timer_psn_ && next_psn_ - acked_psn_ > device_.ack_every;
    }
    void set_retry_timer(Time now);
    void reset_retry_timer(Time now);
    void reset_retry_counters() {
        retries_left_ = roce_.retries;
        started_retry_ = false;
    }
    void need_no_psn() {
        if (!waits_for_psn_) return;
        waits_for_psn_ = false;
        again_ = true;
    }

    const RoceSetting& roce_;
    const DeviceSetting& device_;
    Controller controller_;
    CompletionQueue& completions_;
    uint32_t completions_number_;

    // The rank.
    struct Waits {
        int32_t message;
        bool is_write;
        int64_t size_bytes;
    };
    Ring<Waits> waiting_;
    int32_t under_way_ = 0;

    // The requester.
    Ring<Work> works_;
    uint32_t next_work_ = 0;
    int64_t next_psn_ = 0, highest_psn_ = 0;
    int64_t unasked_ = 0;  // packets since the last one that asks for an acknowledgement
    bool waits_for_psn_ = false, waits_for_port_ = false, needs_retry_ = false;
    Time started_q8_ = 0;
    uint64_t bits_ = 0;
    Time pace_ns_ = kNever;

    // Selective repeat: what was sent below known_psn_ is acknowledged, or is a hole. Lists may name holes that
    // are none any more.
    std::map<int64_t, Hole> holes_;
    int64_t known_psn_ = 0;
    Ring<int64_t> overtaken_, lost_, sent_again_;
    Time lost_timer_ns_ = kNever;

    // Entropy values: their states, and by which each packet was sent last.
    rxe_entropy entropy_;
    std::vector<uint8_t> value_of_;

    bool timed_out_once_ = false;

    // The completer.
    Ring<Told> responses_;
    int64_t acked_psn_ = 0;  // the first that is not
    int64_t timer_psn_ = -1;
    int64_t retries_left_;
    bool again_ = false, has_timed_out_ = false, started_retry_ = false;
    Time retry_ns_ = kNever, retry_event_ns_ = kNever;
    int64_t round_psn_ = 0;
    bool in_round_ = false;
    std::vector<SentTime> sent_times_;

    // The responder.
    Ring<Told> requests_;
    int64_t expected_psn_ = 0;
    bool sent_nak_ = false;
    std::map<int64_t, Told> early_;
    bool has_caught_up_ = false;
    Time cnp_after_ns_ = 0;

    // Its packets in the host's port.
    Ring<Time> leaving_;
    int64_t held_ = 0;
    Time left_event_ns_ = kNever;

    Task sender_ = Task::kIdle, receiver_ = Task::kIdle;
};
