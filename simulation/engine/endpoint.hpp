// SPDX-License-Identifier: GPL-2.0-only
// A TCP socket with both its halves: the sender, and a receiver that decides when it acknowledges.
//
// The halves are in transmitter.hpp, recovery.hpp and timers.hpp, and in receiver.hpp. TCP_NODELAY is set,
// as Gloo sets it, and each skb is a segment, as ports of fabrics take no larger ones (`gso_max_segs` 1).
// Sequence numbers start at 0.
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "congestion.hpp"
#include "delivery_rate.hpp"
#include "network.hpp"
#include "ring.hpp"

// enum tcp_ca_state of include/uapi/linux/tcp.h.
enum CaState : uint8_t { kOpen, kDisorder, kCwr, kRecovery, kLoss };

// The bytes that an skb counts beyond its data in the virtual kernel: SKB_TRUESIZE of a small head without tunnels
// (include/net/tcp.h: MAX_TCP_HEADER; net/core/skbuff.c: SKB_SMALL_HEAD_CACHE_SIZE).
inline constexpr int64_t kSkbBytes = 832;

// The settings of the hosts' TCP.
struct TcpSetting {
    Control control;
    bool ecn;
    int64_t initial_window, min_rto_us, receive_buffer_bytes, send_buffer_bytes;
    int64_t outer_bytes;  // of what wraps each packet
};

// Data in the queue that has not been sent.
struct Skb {
    int64_t seq, end_seq;
    bool push;
};

struct Expected {
    int64_t received;  // complete once so many bytes have come in order
    int32_t message;   // -1 for a notice that nobody waits for
    bool invites;
};

class Bbr;

struct Endpoint : Window {
    Endpoint(Network& network, uint32_t number, const TcpSetting& tcp, int64_t mss, int64_t rtt_us, bool listened);
    ~Endpoint();

    // Both ends know each other.
    void connect(Endpoint& other);
    // The greeting of a connection when it is made: a few bytes from here to the other end, which
    // acknowledges them at once, after a round trip of so long.
    void greet(Endpoint& other, int64_t size, int64_t rtt_us, Time now);
    // An end that has sent nothing since is told late what its handshake measured, and its greeting (-1: it sent none).
    void begin_anew(const TcpSetting& tcp, int64_t rtt_us, int64_t greeting_us, Time now);
    // The application hands over a message of `size` bytes at once. Whether all of it is written; else the rest
    // is written as the send buffer has room, behind what waits for that already.
    bool write(int64_t size, int32_t message, Time now);
    // Writes what there is room for now. A message that is written to its end, of which there may be another one.
    std::optional<int32_t> write_on(Time now);
    // The application asks for a send buffer of this size (SO_SNDBUF), unless it has it.
    void ask_for_send_buffer(int64_t size);
    // The bytes of `size` for which the send buffer has no room now.
    int64_t put(int64_t size, Time now);
    // Whether a third of the send buffer is free (sk_stream_is_writeable).
    bool has_room() const { return send_buffer_bytes_ - charged_ >= charged_ >> 1; }
    // From now on the application reads when it gets to it (hosts.hpp).
    void read_late() {
        reads_late_ = true;
        read_ = rcv_nxt;
    }
    int64_t read() const { return read_; }
    int64_t unread_bytes() const { return reads_late_ ? rcv_nxt - read_ : 0; }
    // The application takes in what has come, so much at most; how much that is.
    int64_t take_in(int64_t most, Time now);
    // The end of the stream, with what is not written yet.
    int64_t stream_end() const { return write_seq + unwritten_bytes_; }
    // A packet has arrived: take in what it acknowledges, then its data, then answer.
    void receive(const Packet& packet, Time now);
    void has_read(Time now);
    // It counts as one that sent and received until now, whose window and whose average of marks (DCTCP) went on as they
    // did from one time to another.
    struct Grown {
        int64_t cwnd, alpha;
    };
    Grown grown() const { return {cwnd, dctcp_.alpha()}; }
    void was_busy_until(Time now, const Grown& from, const Grown& to) {
        last_sent_jiffies = last_received_ = now / kJiffyNs;
        cwnd = std::max<int64_t>(2, cwnd + to.cwnd - from.cwnd);
        dctcp_.fall(from.alpha, to.alpha);
    }
    // When a packet that its port held leaves.
    void leaves_port(Time leaves_ns, int64_t size_bytes);
    // Something that was set to happen at a time.
    void is_unreachable(int64_t seq, Time now);
    void fire(What what, Time now);
    void release_acks(Time now);
    const WheelPlace& place_of(What timer) const { return timer == What::kAckTimer ? ack_place_ : timer_place_; }

    int64_t in_flight() const { return packets_out - sacked_out - lost_out + retrans_out; }

    Network& net;
    const uint32_t number;
    uint32_t peer = kNobody;
    uint32_t route = 0;  // where its links begin
    uint8_t hops = 0, selector = 0;
    const Control control;
    const bool paces, ecn, needs_ecn;
    const int64_t mss;

    // The sender.
    CaState state = kOpen;
    Time paced_until_ns = 0;
    DeliveryRate rate;
    int64_t retransmitted = 0;
    int64_t rcv_nxt = 0;
    Ring<Expected> expected;  // of the other end's stream

  private:
    friend class Bbr;
    enum Again { kNothing, kResendLost, kSendNew };
    enum Resent { kSentAgain, kNoRoom, kWaitsInPort, kNoWay };
    enum Timer : uint8_t { kNoTimer, kRto, kProbe, kReorder, kRoom };
    static constexpr int64_t kAckPortBytes = 2;  // an acknowledgement alone in its port (skb_set_tcp_pure_ack)
    static constexpr int64_t kUnpaced = 10;      // segments from which on it is paced (tcp_update_skb_after_send)
    static constexpr int64_t kLimitOutputBytes = 1 << 20;  // net.ipv4.tcp_limit_output_bytes
    // net.core.wmem_max, and that the kernel doubles what is asked for (sk_setsockopt).
    static constexpr int64_t kMostAskedBytes = 212'992, kLeastSendBuffer = 4608;
    static constexpr int64_t kReordering = 3, kMostReordering = 300;  // net.ipv4.tcp_reordering, tcp_max_reordering
    static constexpr int64_t kReorderRecoveries = 16;  // TCP_RACK_RECOVERY_THRESH
    static constexpr int64_t kLeastRtoJiffies = 200, kNoRoomJiffies = 500;  // TCP_RTO_MIN, TCP_RESOURCE_PROBE_INTERVAL
    static constexpr int64_t kTimeoutMinUs = 2000, kMaxRtoJiffies = 120'000;
    static constexpr int64_t kAtoMin = 40, kQuickAcks = 16;  // TCP_ATO_MIN in jiffies, TCP_MAX_QUICKACKS
    static constexpr int64_t kMssDefault = 536, kMinMss = 88, kTcpHeaderBytes = 32, kTimestampBytes = 12;
    static constexpr int64_t kDefaultRatio = 128, kDuplicates = 3, kCompressed = 44, kCompressedNs = 1'000'000;
    static constexpr int64_t kReplayedMs = 1, kRefusalJiffies = 500;  // TCP_PAWS_WINDOW, net.ipv4.tcp_invalid_ratelimit
    static constexpr int64_t kCompressedSlackNs = 100'000;  // net.ipv4.tcp_comp_sack_slack_ns
    static constexpr size_t kMostBlocks = 3, kKeptBlocks = 4, kBlocksExpected = 2;
    static constexpr int64_t kPageBytes = 4096;
    // Segments from this size on widen the window (tcp_event_data_recv); its unit for 16 MB buffers.
    static constexpr int64_t kGrowsFromBytes = 128, kWindowUnit = 256;

    // Congestion control.
    int64_t control_ssthresh();
    void control_cong_avoid(int64_t acked, Time now);
    void control_pkts_acked(int64_t rtt_us, Time now) {
        if (control == Control::kCubic) cubic_.pkts_acked(*this, rtt_us, now);
    }
    void control_in_ack_event() {
        if (control == Control::kDctcp) dctcp_.in_ack_event(*this);
    }
    void control_tx_start(Time now);

    // transmitter.hpp
    void begin(int64_t initial_window, int64_t rtt_us);
    // A round trip below a microsecond counts as a jiffy (tcp_update_rtt_min).
    static int64_t least_of(int64_t rtt_us) { return rtt_us ? rtt_us : kJiffyNs / 1000; }
    void greeted(int64_t rtt_us, Time now);
    void update_pacing_rate();
    void check_space(Time now);
    void xmit(Time now, int push_one = 0);
    void xmit(Time now, int64_t room, int push_one);
    void cut(int64_t size);
    int64_t waits(Time now);
    bool holds_enough(int64_t length, Time now, int factor = 0);
    bool waits_in_port(const Segment& segment, Time now);
    void throttle();
    void has_left(Time now);
    void go_on(Time now);
    bool transmit(Skb skb, Time now);
    bool into_port(uint32_t number, Time now);
    void check_app_limited(Time now);
    bool is_paced(Time now);
    void pace(Segment& segment, Time now);
    void validate(bool limited);
    uint32_t make_packet(int64_t seq, int64_t end_seq, int64_t ack);

    // recovery.hpp
    void on_ack(const Packet& packet, Time now);
    void recover(Again again, Time now);
    int64_t clean(const Packet& packet, int64_t prior_highest, Time now, int64_t& rtt_us, int64_t& ca_rtt_us);
    void take_old(const Packet& packet, Time now);
    int64_t take_sacks(const Packet& packet, int64_t prior_una, Time now);
    bool is_valid(const Range& range, bool is_second) const;
    bool merges(uint32_t place, bool twice) const;
    void merge(uint32_t place);
    int64_t take_duplicate(const Range& range, int64_t prior_una);
    int64_t highest_sacked() const { return sacked_out ? highest_sacked_ : snd_una; }
    void took(Segment& segment);
    void meets_reordering(int64_t low_seq);
    void widen_reordering();
    int64_t reordering_window_us() const;
    void end_recovery();
    Again alert(bool ece, int64_t prior_una, Time now);
    void try_to_open(bool ece);
    void keep_open();
    void begin_cwr();
    bool has_route() const { return route != kNobody; }
    void begin_reduction();
    void reduce(int64_t delivered, int64_t lost_now, bool advanced);
    void end_reduction() {
        if (!paces && ssthresh < kInfiniteSsthresh && (state == kCwr || may_be_undone_)) cwnd = ssthresh;
    }
    void enter_recovery(bool ece);
    int64_t current_ssthresh() const;
    void rack(const Segment& segment, Time now);
    void find_losses(Time now);
    int64_t mark_losses(Time now);
    void lose(Segment& segment);
    void retransmit_lost(Time now);
    Resent send_again(uint32_t place, Time now, bool is_probe = false);
    bool split(uint32_t place);
    bool can_join(uint32_t place, int64_t room, Time now) const;
    void join(uint32_t place);
    void undo_loss();
    Again process_loss();
    void begin_undo();
    bool any_resent() const { return retrans_out || (!unacked_.empty() && unacked_.front().retransmitted); }
    bool was_delayed() const { return first_resent_ms_ < 0 || echoed_ms_ < first_resent_ms_; }
    bool may_undo() const { return may_be_undone_ && (!undo_resent_ || was_delayed()); }
    bool undo_by_duplicates();
    void undo(bool unmarks);
    int64_t control_undo_cwnd();
    void end_probe(const Packet& packet);

    // timers.hpp
    void measured(int64_t rtt_us);
    void estimate(int64_t rtt_us);
    void set_rto();
    void arm_after_sending(bool was_idle, bool probe, Time now);
    void acknowledged(Time now);
    bool schedule_probe(Time now, bool advancing);
    int64_t until_rto_us(Time now) const;
    void rearm(Time now);
    void arm(Timer timer, int64_t jiffies, Time now);
    void arm_behind_pace(Timer timer, int64_t jiffies, Time now);
    void on_timer(Time now);
    void wait_for_room(Time now);
    void try_for_room(Time now);
    void send_probe(Time now);
    void reorder_timeout(Time now);
    void timeout(Time now);
    void head_sent_again(Time now);
    void reorder_within(int64_t timeout_us, Time now);

    // receiver.hpp
    void take(const Packet& packet, Time now);
    bool keep(int64_t seq, int64_t end, Time now);
    bool updates_window(const Packet& packet) const;
    bool is_refused(const Packet& packet) const;
    void refuse(const Packet& packet, Time now);
    void tell_duplicate(int64_t seq, int64_t end);
    void extend_duplicate(int64_t seq, int64_t end);
    void tell_of(int64_t seq, int64_t end, Time now);
    void received(const Packet& packet, Time now);
    int64_t ahead_bytes() const;
    int64_t waiting_bytes() const { return (unread_bytes() << 8) / ratio_; }
    int64_t selected_window() const;
    void widen(int64_t held);
    int64_t window();
    void measure(const Packet& packet);
    void see_ecn(const Packet& packet, Time now);
    void hurry(int64_t quick);
    void answer(Time now);
    void answer_ahead(Time now);
    void measure_receiver(const Packet& packet, Time now);
    void measure_by_window(Time now);
    bool reader_acknowledges() const;
    void delay(Time now);
    void ack_timeout(Time now);
    void acknowledge(Time now) { send_ack(acknowledgement(), now); }
    void send_ack(int64_t ack, Time now);
    void tell_ranges(Packet& packet);
    void count_options();
    int64_t acknowledgement();
    void has_told_held();
    void data_sent(Time now);

    // The sender.
    Ring<Skb> queue_;
    Ring<Segment> unacked_;
    int64_t packets_out = 0, sacked_out = 0, lost_out = 0, retrans_out = 0;
    int64_t window_bytes_ = 0;
    int64_t cwnd_usage_seq_ = 0;
    bool sends_cwr_ = false, was_cut_ = false;
    int64_t prr_out_ = 0;
    uint32_t echo_ms_ = 0;
    int64_t option_bytes_ = 0;  // what selective acknowledgements take of each header
    struct InPort {
        Time leaves;
        int64_t bytes;
        int64_t place;  // among all that hosts have put into ports
    };
    Ring<InPort> in_port_;
    Ring<Time> acks_in_port_;
    int64_t wmem_ = 1;
    uint32_t given_ = 0, left_ = 0;  // packets with data that the port took; those that have left it
    Time left_ns_ = 0;               // when the last one did
    int64_t charged_ = 0;  // the queue and what is not acknowledged, with what skbs count beyond data
    bool throttled_ = false, waits_for_port_ = false, tries_again_ = false, pace_timer_set_ = false;
    struct Unwritten {
        int64_t bytes;
        int32_t message;
    };
    std::deque<Unwritten> unwritten_;
    int64_t unwritten_bytes_ = 0, send_buffer_bytes_, asked_bytes_ = 0;
    uint32_t headers_bytes_;  // of a packet without data
    bool has_no_space_ = false;
    int64_t data_segments_ = 0;
    Cubic cubic_;
    Dctcp dctcp_;
    std::unique_ptr<Bbr> bbr_;

    // Losses.
    int64_t retransmits_ = 0, high_seq_ = 0, prior_cwnd_ = 0, prr_delivered_ = 0, prior_ssthresh_ = 0;
    Time first_sacked_ns_ = 0, last_sacked_ns_ = 0;
    bool reorder_armed_ = false, frto_ = false, rack_advanced_ = false;
    // The flags of the acknowledgement at hand (those of tcp_ack): FLAG_SND_UNA_ADVANCED, FLAG_DATA_SACKED,
    // FLAG_WIN_UPDATE, FLAG_ORIG_SACK_ACKED, FLAG_DSACKING_ACK, FLAG_DSACK_TLP, and whether it counts as a duplicate.
    bool advanced_ = false, sacked_ = false, window_updated_ = false, original_acked_ = false;
    bool duplicates_ = false, duplicates_probe_ = false, is_duplicate_ = false;
    int64_t echoed_ms_ = 0, window_from_seq_ = 0, sampled_delivered_ = 0;
    int64_t highest_sacked_ = 0, reordering_ = kReordering, resent_out_ = 0;
    bool has_seen_reordering_ = false, has_seen_duplicate_ = false;
    int64_t reorder_steps_ = 1, reorder_persists_ = 0, reorder_delivered_ = 0, duplicates_seen_ = 0;
    // A reduction that may be undone: since when, what was sent again that may come twice (-1: nothing yet), and
    // when something was sent again first, -1 for never.
    bool may_be_undone_ = false;
    int64_t undo_from_seq_ = 0, undo_resent_ = -1, first_resent_ms_ = -1;
    int64_t rack_us_ = 0, rack_seq_ = 0, rack_rtt_us_ = 0;
    int64_t probe_seq_ = 0;
    bool probe_again_ = false;

    // Timers.
    int64_t min_rto_us_, mdev_us_, rttvar_us_, mdev_max_us_, rtt_seq_ = 0, rto_jiffies_ = 0;
    Timer timer_ = kNoTimer;
    int64_t backoff_ = 0;        // how often the time until the retransmission timer was doubled
    int64_t unsent_probes_ = 0;  // one after the other, for which there was no route
    Time timer_ns_ = 0, timer_set_for_ = 0;
    WheelPlace timer_place_, ack_place_;

    // The receiver.
    int64_t buffer_bytes_, window_clamp_;
    int64_t ratio_ = kDefaultRatio;  // what of a packet's memory is data, in parts of 256 (tcp_win_from_space)
    int64_t held_bytes_ = 0, edge_, receive_window_;
    bool reads_late_ = false;
    int64_t read_ = 0;
    int64_t rcv_wup_ = 0, rcv_mss_ = kMssDefault, last_segment_ = 0;
    bool scheduled_ = false, pushed_ = false, pushed_again_ = false, ack_now_ = false;
    int64_t quick_ = 0, ato_ = 0, last_received_ = 0, pingpong_ = 0;
    Time ack_timer_ns_ = 0, ack_timer_set_for_ = 0;
    bool demands_cwr_ = false, ce_ = false, seen_ecn_ = false, has_duplicate_ = false, waits_to_release_ = false;
    int64_t prior_rcv_nxt_ = 0;
    std::vector<Range> ahead_, sacks_;
    Range duplicate_{};
    int64_t dup_acks_ = 0, held_acks_ = 0, held_for_ = -1, receiver_rtt_ = 0, last_echo_ms_ = -1;
    int64_t measured_since_us_ = 0, measured_until_ = 0, refused_jiffies_ = 0;
};
