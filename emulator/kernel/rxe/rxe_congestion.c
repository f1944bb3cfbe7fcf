// SPDX-License-Identifier: GPL-2.0
/*
 * rxe_congestion.c	Congestion control of reliable queue pairs: pacing, windows, CNPs.
 *
 * A request may begin when the one before has had its time at the queue pair's rate, to a
 * part of a nanosecond; rates are of the wire, with preamble and gap. At line rate nothing
 * is paced, as the port serialises. A CE mark on a request makes its receiver send a CNP
 * (InfiniBand volume 1, annex A17), at most one an interval. The controllers' sums are in
 * rxe_dcqcn.c, rxe_timely.c, rxe_hpcc.c, rxe_dctcp.c and rxe_nscc.c. With DCTCP an acknowledgement says by
 * BECN that the request that it answers was marked.
 */

#include <linux/etherdevice.h>
#include <linux/udp.h>
#include <net/inet_ecn.h>
#include <net/ip.h>
#include <rdma/ib_hdrs.h>

#include "rxe.h"
#include "rxe_loc.h"
#include "gwport_trim.h"

/* Ethernet's preamble, FCS and gap; the port counts the same (gwport) */
#define RXE_WIRE_BYTES	(ETH_HLEN + sizeof(struct iphdr) + sizeof(struct udphdr) + 24)

extern bool gw_int_used;	/* gwport_int.c */

struct rxe_sample_block {
	struct list_head	list;
	struct rxe_rate_sample	sample[];
};

#define RXE_BLOCK_SAMPLES \
	((PAGE_SIZE - sizeof(struct rxe_sample_block)) / sizeof(struct rxe_rate_sample))

static u64 rxe_rate(struct rxe_congestion *c, u64 now)
{
	switch (c->set.rate.kind) {
	case RXE_RATE_DCQCN:
		rxe_dcqcn_advance(&c->dcqcn, &c->set.rate, now);
		return c->dcqcn.rate_bps;
	case RXE_RATE_TIMELY:
		return c->timely.rate_bps;
	case RXE_RATE_HPCC:
		return c->hpcc.rate_bps;
	default:
		return c->set.rate.line_bps;
	}
}

static void rxe_keep_sample(struct rxe_device_congestion *d, const struct rxe_rate_sample *sample)
{
	struct rxe_sample_block *block = NULL;
	unsigned long flags;
	u32 at;

	spin_lock_irqsave(&d->lock, flags);
	at = d->samples % RXE_BLOCK_SAMPLES;
	if (d->samples < d->set.sample_capacity) {
		if (at)
			block = list_last_entry(&d->blocks, struct rxe_sample_block, list);
		else
			block = (void *)__get_free_page(GFP_ATOMIC);
	}
	if (block) {
		if (!at)
			list_add_tail(&block->list, &d->blocks);
		block->sample[at] = *sample;
		d->samples++;
	} else {
		d->samples_lost++;
	}
	spin_unlock_irqrestore(&d->lock, flags);
}

static void rxe_sample(struct rxe_qp *qp, u64 rate, u64 now)
{
	struct rxe_congestion *c = &qp->congestion;

	if (rate == c->sampled_bps || !c->set.sample_interval_ns ||
	    (c->sampled_bps && now < c->sampled_ns + c->set.sample_interval_ns))
		return;
	c->sampled_bps = rate;
	c->sampled_ns = now;
	rxe_keep_sample(&to_rdev(qp->ibqp.device)->congestion, &(struct rxe_rate_sample) {
		.time_ns = now, .rate_bps = rate, .qpn = qp_num(qp),
	});
}

/* Whether the next request has to wait; a timer looks again when it need not. */
bool rxe_congestion_waits(struct rxe_qp *qp)
{
	struct rxe_congestion *c = &qp->congestion;
	u64 now, rate, due_q8;

	if (c->set.rate.kind == RXE_RATE_FIXED || qp_type(qp) != IB_QPT_RC)
		return false;
	now = ktime_get_ns();
	rate = rxe_rate(c, now);
	rxe_sample(qp, rate, now);
	if (rate >= c->set.rate.line_bps)
		return false;
	due_q8 = c->started_q8 + (c->bits * NSEC_PER_SEC * 256) / rate;
	if (due_q8 <= now << 8)
		return false;
	hrtimer_start(&c->timer, ns_to_ktime((due_q8 + 255) >> 8), HRTIMER_MODE_ABS);
	return true;
}

/* A timer of a queue pair has its sender look again. */
enum hrtimer_restart rxe_congestion_wake(struct rxe_qp *qp)
{
	unsigned long flags;

	if (!rxe_get(qp))
		return HRTIMER_NORESTART;
	spin_lock_irqsave(&qp->state_lock, flags);
	if (qp->valid)
		rxe_sched_task(&qp->send_task);
	spin_unlock_irqrestore(&qp->state_lock, flags);
	rxe_put(qp);
	return HRTIMER_NORESTART;
}

static enum hrtimer_restart rxe_congestion_timer(struct hrtimer *timer)
{
	return rxe_congestion_wake(container_of(timer, struct rxe_qp, congestion.timer));
}

/* A request has been sent. */
void rxe_congestion_sent(struct rxe_qp *qp, struct rxe_pkt_info *pkt)
{
	struct rxe_congestion *c = &qp->congestion;
	u64 now_q8, due_q8;

	if (c->set.rate.kind == RXE_RATE_FIXED || qp_type(qp) != IB_QPT_RC)
		return;
	now_q8 = ktime_get_ns() << 8;
	due_q8 = c->started_q8 + (c->bits * NSEC_PER_SEC * 256) / rxe_rate(c, now_q8 >> 8);
	/* A packet that was due within this nanosecond began when it was due */
	c->started_q8 = due_q8 + 256 > now_q8 && due_q8 <= now_q8 ? due_q8 : now_q8;
	c->bits = 8ULL * (pkt->paylen + rxe_int_room(qp, pkt->mask) + RXE_WIRE_BYTES);
}

/* How many packets may be unacknowledged, before another is sent */
u32 rxe_congestion_window(struct rxe_qp *qp)
{
	struct rxe_congestion *c = &qp->congestion;
	u64 bytes = c->set.window_bytes;

	if (c->set.rate.kind == RXE_RATE_DCTCP)
		bytes = c->dctcp.window_bytes;
	if (c->set.rate.kind == RXE_RATE_NSCC)
		bytes = c->nscc.window_bytes;
	if (!bytes)
		return RXE_MAX_UNACKED_PSNS;
	if (c->set.window_by_rate)
		bytes = mul_u64_u64_div_u64(bytes, rxe_rate(c, ktime_get_ns()),
					    c->set.rate.line_bps);
	/* A packet may go while less than the window is on its way */
	return clamp_t(u64, DIV_ROUND_UP_ULL(bytes, qp->mtu), 1, RXE_MAX_UNACKED_PSNS);
}

bool rxe_congestion_wants_ack(struct rxe_qp *qp)
{
	return qp->req.noack_pkts++ + 1 >= min_t(u64, qp->congestion.set.ack_every,
						 rxe_congestion_window(qp));
}

/* A packet of ours has left the port, or was lost in it. */
void rxe_congestion_left_port(struct rxe_qp *qp, struct sk_buff *skb)
{
	struct rxe_congestion *c = &qp->congestion;
	struct rxe_sent_time *sent;
	struct rxe_bth *bth;
	u32 psn;

	if (!c->sent)
		return;
	bth = (void *)(udp_hdr(skb) + 1);
	if (!(rxe_opcode[bth->opcode].mask & RXE_REQ_MASK) ||
	    (!__bth_ack(bth) && c->set.rate.kind != RXE_RATE_NSCC))
		return;
	psn = __bth_psn(bth);
	sent = &c->sent[psn % RXE_SENT_TIMES];
	*sent = (struct rxe_sent_time) { psn, true, ktime_get_ns() };
}

/* A packet's telemetry behind its datagram, or NULL; n: how many hops */
static const u8 *rxe_int_of(struct sk_buff *skb, u8 what, u32 *n)
{
	const struct iphdr *ip = ip_hdr(skb);
	const struct udphdr *udp = udp_hdr(skb);
	const u8 *header;
	int room;

	if (skb->protocol != htons(ETH_P_IP))
		return NULL;
	room = ntohs(ip->tot_len) - ip->ihl * 4 - ntohs(udp->len);
	header = (const u8 *)udp + ntohs(udp->len);
	if (room < GW_INT_HEADER_BYTES || header[0] != what ||
	    room < GW_INT_HEADER_BYTES + header[1] * GW_INT_HOP_BYTES)
		return NULL;
	*n = header[1];
	return header + GW_INT_HEADER_BYTES;
}

static void rxe_hpcc_acked(struct rxe_congestion *c, struct sk_buff *skb, bool round_over)
{
	struct gw_int_hop hops[GW_INT_MAX_HOPS];
	const u8 *wire;
	u32 n, i;

	wire = rxe_int_of(skb, GW_INT_ECHO, &n);
	if (!wire || n > GW_INT_MAX_HOPS)
		return;
	for (i = 0; i < n; i++, wire += GW_INT_HOP_BYTES)
		hops[i] = (struct gw_int_hop) {
			.time_ns = get_unaligned_be32(wire),
			.tx_bytes = get_unaligned_be32(wire + 4),
			.queue = get_unaligned_be16(wire + 8),
			.rate_100mbps = get_unaligned_be16(wire + 10),
		};
	rxe_hpcc_ack(&c->hpcc, &c->set.rate, hops, n, round_over);
}

static bool rxe_says_marked(struct sk_buff *skb)
{
	return __bth_becn(udp_hdr(skb) + 1);
}

/* An acknowledgement that answers a request has come. */
void rxe_congestion_acked(struct rxe_qp *qp, u32 psn, struct sk_buff *skb)
{
	struct rxe_congestion *c = &qp->congestion;
	struct rxe_sent_time *sent;
	bool round_over;

	if (c->set.rate.kind != RXE_RATE_TIMELY && c->set.rate.kind != RXE_RATE_HPCC &&
	    c->set.rate.kind != RXE_RATE_DCTCP)
		return;
	round_over = !c->in_round || psn_compare(psn, c->round_psn) >= 0;
	if (c->set.rate.kind == RXE_RATE_HPCC) {
		rxe_hpcc_acked(c, skb, round_over);
	} else if (c->set.rate.kind == RXE_RATE_DCTCP) {
		rxe_dctcp_ack(&c->dctcp, &c->set.rate, qp->mtu, rxe_says_marked(skb), round_over);
	} else {
		sent = &c->sent[psn % RXE_SENT_TIMES];
		if (!round_over || !sent->known || sent->psn != psn)
			return;
		sent->known = false;
		rxe_timely_rtt(&c->timely, &c->set.rate, ktime_get_ns() - sent->time_ns);
	}
	if (round_over) {
		c->round_psn = qp->req.psn;
		c->in_round = true;
	}
}

/*
 * With selective repeat: so many packets more are known to have come, by the answer to one that was
 * marked, or trimmed.
 */
void rxe_congestion_heard(struct rxe_qp *qp, u32 psn, u32 packets, bool marked, bool trimmed)
{
	struct rxe_congestion *c = &qp->congestion;
	struct rxe_nscc_heard heard;
	struct rxe_sent_time *sent;
	u64 rtt = 0;

	if (c->set.rate.kind != RXE_RATE_NSCC)
		return;
	heard = (struct rxe_nscc_heard) {
		.now_ns = ktime_get_ns(),
		.packet_bytes = qp->mtu,
		.most_bytes = c->set.window_bytes,
		.acked_bytes = (u64)packets * qp->mtu,
		.flight_bytes = (u64)rxe_selective_flight(qp) * qp->mtu,
	};
	sent = &c->sent[psn % RXE_SENT_TIMES];
	if (sent->known && sent->psn == psn) {
		sent->known = false;
		rtt = heard.now_ns - sent->time_ns;
	}
	if (trimmed)
		rxe_nscc_trimmed(&c->nscc, &c->set.rate, &heard);
	else
		rxe_nscc_acked(&c->nscc, &c->set.rate, &heard, rtt, marked);
}

/* A packet did not come. */
void rxe_congestion_lost(struct rxe_qp *qp)
{
	if (qp->congestion.set.rate.kind == RXE_RATE_NSCC)
		rxe_nscc_lost(&qp->congestion.nscc, qp->mtu);
}

static void rxe_send_cnp(struct rxe_qp *qp)
{
	struct rxe_pkt_info cnp = {};
	struct sk_buff *skb = rxe_prepare_ack_packet(qp, &cnp, IB_BTH_OPCODE_CNP,
						     RXE_CNP_RESERVED_BYTES, 0, 0);

	if (!skb)
		return;
	memset(payload_addr(&cnp), 0, RXE_CNP_RESERVED_BYTES);
	bth_set_becn(&cnp, 1);
	if (!rxe_xmit_packet(qp, &cnp, skb))
		rxe_counter_inc(to_rdev(qp->ibqp.device), RXE_CNT_CNP_SENT);
}

/* A packet has come for a queue pair. */
void rxe_congestion_received(struct rxe_qp *qp, struct rxe_pkt_info *pkt, struct sk_buff *skb)
{
	struct rxe_congestion *c = &qp->congestion;
	u64 now;

	if (qp_type(qp) != IB_QPT_RC || !(pkt->mask & RXE_REQ_MASK) ||
	    skb->protocol != htons(ETH_P_IP) || !INET_ECN_is_ce(ip_hdr(skb)->tos))
		return;
	rxe_counter_inc(to_rdev(qp->ibqp.device), RXE_CNT_ECN_MARKED);
	if (c->paths.entropy)
		pkt->mask |= RXE_MARKED_MASK;
	now = ktime_get_ns();
	if (c->set.rate.kind != RXE_RATE_DCQCN || now < c->cnp_after_ns)
		return;
	c->cnp_after_ns = now + c->set.rate.cnp_interval_ns;
	rxe_send_cnp(qp);
}

/* A CNP has come: the queue pair sends slower. */
void rxe_congestion_cnp(struct rxe_qp *qp)
{
	struct rxe_congestion *c = &qp->congestion;

	rxe_counter_inc(to_rdev(qp->ibqp.device), RXE_CNT_CNP_RECEIVED);
	if (c->set.rate.kind == RXE_RATE_DCQCN)
		rxe_dcqcn_cnp(&c->dcqcn, &c->set.rate, ktime_get_ns());
}

/* DSCP and ECN of a packet. Where ports trim, others than requests go first. Only requests are ECN-capable. */
u8 rxe_congestion_tos(struct rxe_qp *qp, struct rxe_pkt_info *pkt, u8 traffic_class)
{
	struct rxe_congestion *c = &qp->congestion;

	if (qp_type(qp) != IB_QPT_RC)
		return traffic_class;
	if (c->set.trim && c->selective.on)
		traffic_class = pkt->mask & RXE_REQ_MASK ? traffic_class | GW_TOS_TRIMMABLE :
							   GW_TOS_CONTROL;
	if (!c->set.ecn)
		return traffic_class;
	return (traffic_class & ~INET_ECN_MASK) |
	       (pkt->mask & RXE_REQ_MASK ? INET_ECN_ECT_0 : INET_ECN_NOT_ECT);
}

/* How many bytes of telemetry a packet with such a mask has behind it */
u32 rxe_int_room(struct rxe_qp *qp, u32 mask)
{
	struct rxe_congestion *c = &qp->congestion;
	u32 n;

	if (c->set.rate.kind != RXE_RATE_HPCC || qp_type(qp) != IB_QPT_RC)
		return 0;
	if (mask & RXE_REQ_MASK)
		return GW_INT_HEADER_BYTES + c->set.int_hops * GW_INT_HOP_BYTES;
	if (c->answered && rxe_int_of(c->answered, GW_INT_ASKED, &n))
		return GW_INT_HEADER_BYTES + n * GW_INT_HOP_BYTES;
	return 0;
}

/* An acknowledgement that is being built says that its request was marked. */
static void rxe_echo_mark(struct rxe_qp *qp, struct rxe_pkt_info *pkt)
{
	struct sk_buff *answered = qp->congestion.answered;

	if (qp->congestion.set.rate.kind == RXE_RATE_DCTCP && qp_type(qp) == IB_QPT_RC &&
	    pkt->opcode == IB_OPCODE_RC_ACKNOWLEDGE && (aeth_syn(pkt) & AETH_TYPE_MASK) == AETH_ACK &&
	    answered && answered->protocol == htons(ETH_P_IP) &&
	    INET_ECN_is_ce(ip_hdr(answered)->tos))
		bth_set_becn(pkt, 1);
}

/* Puts it there, behind the datagram that the packet is so far. */
void rxe_int_put(struct rxe_qp *qp, struct rxe_pkt_info *pkt, struct sk_buff *skb)
{
	u32 bytes = rxe_int_room(qp, pkt->mask), n;
	const u8 *asked;
	u8 *header;

	rxe_echo_mark(qp, pkt);
	if (!bytes)
		return;
	header = skb_put_zero(skb, bytes);
	if (pkt->mask & RXE_REQ_MASK) {
		header[0] = GW_INT_ASKED;
		header[2] = qp->congestion.set.int_hops;
		return;
	}
	asked = rxe_int_of(qp->congestion.answered, GW_INT_ASKED, &n);
	header[0] = GW_INT_ECHO;
	header[1] = header[2] = n;
	memcpy(header + GW_INT_HEADER_BYTES, asked, n * GW_INT_HOP_BYTES);
}

int rxe_congestion_init(struct rxe_dev *rxe, struct rxe_qp *qp)
{
	struct rxe_congestion *c = &qp->congestion;

	c->set = rxe->congestion.set;
	hrtimer_init(&c->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	c->timer.function = rxe_congestion_timer;
	rxe_selective_init(qp, c->set.selective, c->set.reordering_ns);
	if (rxe_paths_init(qp))
		return -ENOMEM;
	switch (c->set.rate.kind) {
	case RXE_RATE_DCQCN:
		rxe_dcqcn_init(&c->dcqcn, &c->set.rate);
		break;
	case RXE_RATE_TIMELY:
		rxe_timely_init(&c->timely, &c->set.rate);
		c->sent = kcalloc(RXE_SENT_TIMES, sizeof(*c->sent), GFP_KERNEL);
		return c->sent ? 0 : -ENOMEM;
	case RXE_RATE_HPCC:
		rxe_hpcc_init(&c->hpcc, &c->set.rate);
		break;
	case RXE_RATE_DCTCP:
		rxe_dctcp_init(&c->dctcp, c->set.window_bytes);
		break;
	case RXE_RATE_NSCC:
		rxe_nscc_init(&c->nscc, c->set.window_bytes);
		c->sent = kcalloc(RXE_SENT_TIMES, sizeof(*c->sent), GFP_KERNEL);
		return c->sent ? 0 : -ENOMEM;
	}
	return 0;
}

/* No timer of the queue pair fires any more. */
void rxe_congestion_stop(struct rxe_qp *qp)
{
	if (qp->congestion.timer.function)
		hrtimer_cancel(&qp->congestion.timer);
	rxe_selective_stop(qp);
}

void rxe_congestion_free(struct rxe_qp *qp)
{
	kfree(qp->congestion.sent);
	qp->congestion.sent = NULL;
	rxe_selective_forget(qp);
	rxe_paths_free(qp);
}

void rxe_congestion_init_device(struct rxe_dev *rxe)
{
	struct rxe_device_congestion *d = &rxe->congestion;

	spin_lock_init(&d->lock);
	INIT_LIST_HEAD(&d->blocks);
	d->set.ack_every = RXE_MAX_PKT_PER_ACK + 2;
}

void rxe_congestion_free_device(struct rxe_dev *rxe)
{
	struct rxe_sample_block *block, *next;

	list_for_each_entry_safe(block, next, &rxe->congestion.blocks, list)
		free_page((unsigned long)block);
}

/* The text that user space may write: NAME=NUMBER, as often as it likes, between blanks */
#define RXE_SETTING(name, field) \
	{ name, offsetof(struct rxe_congestion_settings, field) }

static const struct {
	const char	*name;
	size_t		 offset;
} rxe_setting_names[] = {
	RXE_SETTING("kind", rate.kind),
	RXE_SETTING("line_bps", rate.line_bps),
	RXE_SETTING("min_bps", rate.min_bps),
	RXE_SETTING("additive_bps", rate.additive_bps),
	RXE_SETTING("hyper_bps", rate.hyper_bps),
	RXE_SETTING("cnp_interval_ns", rate.cnp_interval_ns),
	RXE_SETTING("alpha_interval_ns", rate.alpha_interval_ns),
	RXE_SETTING("decrease_interval_ns", rate.decrease_interval_ns),
	RXE_SETTING("increase_interval_ns", rate.increase_interval_ns),
	RXE_SETTING("gain_q32", rate.gain_q32),
	RXE_SETTING("fast_stages", rate.fast_stages),
	RXE_SETTING("clamp_target", rate.clamp_target),
	RXE_SETTING("rtt_min_ns", rate.rtt_min_ns),
	RXE_SETTING("rtt_low_ns", rate.rtt_low_ns),
	RXE_SETTING("rtt_high_ns", rate.rtt_high_ns),
	RXE_SETTING("ewma_q32", rate.ewma_q32),
	RXE_SETTING("beta_q32", rate.beta_q32),
	RXE_SETTING("hyper_after", rate.hyper_after),
	RXE_SETTING("base_rtt_ns", rate.base_rtt_ns),
	RXE_SETTING("target_q32", rate.target_q32),
	RXE_SETTING("max_stage", rate.max_stage),
	RXE_SETTING("target_delay_ns", rate.target_delay_ns),
	RXE_SETTING("scale_q16", rate.scale_q16),
	RXE_SETTING("ecn", ecn),
	RXE_SETTING("window_bytes", window_bytes),
	RXE_SETTING("window_by_rate", window_by_rate),
	RXE_SETTING("ack_every", ack_every),
	RXE_SETTING("int_hops", int_hops),
	RXE_SETTING("selective", selective),
	RXE_SETTING("reordering_ns", reordering_ns),
	RXE_SETTING("entropy_values", entropy.values),
	RXE_SETTING("entropy_least", entropy.least),
	RXE_SETTING("probe_interval_ns", entropy.probe_interval_ns),
	RXE_SETTING("trim", trim),
	RXE_SETTING("sample_interval_ns", sample_interval_ns),
	RXE_SETTING("sample_capacity", sample_capacity),
};

static int rxe_set(struct rxe_congestion_settings *set, char *word)
{
	char *number = strchr(word, '=');
	int i;

	if (!number)
		return -EINVAL;
	*number++ = '\0';
	for (i = 0; i < ARRAY_SIZE(rxe_setting_names); i++)
		if (!strcmp(word, rxe_setting_names[i].name))
			return kstrtou64(number, 10, (void *)set + rxe_setting_names[i].offset);
	return -ENOENT;
}

static bool rxe_entropy_right(const struct rxe_congestion_settings *set)
{
	const struct rxe_entropy_settings *e = &set->entropy;

	return !e->values || (e->values <= RXE_ENTROPY_MOST && e->least && e->least <= e->values &&
			      e->probe_interval_ns && set->selective);
}

/* Settings that would divide by nothing, or leave rxe's bounds */
static bool rxe_settings_right(const struct rxe_congestion_settings *set)
{
	const struct rxe_rate_settings *r = &set->rate;

	if (r->kind >= __RXE_RATE_KINDS || !set->ack_every ||
	    set->reordering_ns >= NSEC_PER_SEC || !rxe_entropy_right(set) ||
	    (set->window_by_rate && !r->line_bps))
		return false;
	if (r->kind == RXE_RATE_FIXED)
		return true;
	if (!r->min_bps || r->min_bps > r->line_bps || r->line_bps > 1ULL << 43)
		return false;
	switch (r->kind) {
	case RXE_RATE_DCQCN:
		return r->alpha_interval_ns && r->decrease_interval_ns &&
		       r->increase_interval_ns && r->gain_q32 && r->gain_q32 <= RXE_ONE_Q32;
	case RXE_RATE_TIMELY:
		return r->rtt_min_ns && r->rtt_low_ns <= r->rtt_high_ns &&
		       r->rtt_high_ns < NSEC_PER_SEC && r->ewma_q32 <= RXE_ONE_Q32 &&
		       r->beta_q32 <= RXE_ONE_Q32;
	case RXE_RATE_DCTCP:
		return set->window_bytes && set->window_bytes <= U32_MAX && set->ack_every == 1 &&
		       !set->selective && r->gain_q32 && r->gain_q32 <= RXE_ONE_Q32;
	case RXE_RATE_NSCC:
		return set->window_bytes && set->window_bytes <= U32_MAX && set->selective &&
		       set->entropy.values && r->base_rtt_ns && r->base_rtt_ns < NSEC_PER_SEC &&
		       r->target_delay_ns && r->target_delay_ns <= RXE_NSCC_MOST_DELAY_NS &&
		       r->scale_q16 <= RXE_NSCC_MOST_SCALE_Q16;
	default:
		return r->base_rtt_ns && r->base_rtt_ns < NSEC_PER_SEC && r->target_q32 &&
		       r->target_q32 <= RXE_ONE_Q32 && set->int_hops &&
		       set->int_hops <= GW_INT_MAX_HOPS;
	}
}

static ssize_t congestion_store(struct device *device, struct device_attribute *attr,
				const char *text, size_t size)
{
	struct rxe_dev *rxe = rdma_device_to_drv_device(device, struct rxe_dev, ib_dev);
	struct rxe_congestion_settings set = rxe->congestion.set;
	char *copy = kstrndup(text, size, GFP_KERNEL), *rest = copy, *word;
	int err = 0;

	if (!copy)
		return -ENOMEM;
	while (!err && (word = strsep(&rest, " \n")))
		if (*word)
			err = rxe_set(&set, word);
	kfree(copy);
	if (err)
		return err;
	if (!rxe_settings_right(&set))
		return -EINVAL;
	rxe->congestion.set = set;
	if (set.rate.kind == RXE_RATE_HPCC)
		gw_int_used = true;
	return size;
}

static ssize_t congestion_show(struct device *device, struct device_attribute *attr, char *text)
{
	struct rxe_dev *rxe = rdma_device_to_drv_device(device, struct rxe_dev, ib_dev);
	int i, at = 0;

	for (i = 0; i < ARRAY_SIZE(rxe_setting_names); i++)
		at += sysfs_emit_at(text, at, "%s=%llu\n", rxe_setting_names[i].name,
				    *(u64 *)((void *)&rxe->congestion.set +
					     rxe_setting_names[i].offset));
	return at + sysfs_emit_at(text, at, "samples_lost=%llu\n", rxe->congestion.samples_lost);
}

struct device_attribute rxe_congestion_attribute =
	__ATTR(congestion, 0644, congestion_show, congestion_store);

/* The samples, as struct rxe_rate_sample, in order of time */
static ssize_t rates_read(struct file *file, struct kobject *kobj, struct bin_attribute *attr,
			  char *to, loff_t at, size_t size)
{
	struct rxe_dev *rxe = rdma_device_to_drv_device(kobj_to_dev(kobj), struct rxe_dev, ib_dev);
	struct rxe_device_congestion *d = &rxe->congestion;
	size_t each = RXE_BLOCK_SAMPLES * sizeof(struct rxe_rate_sample), done = 0;
	struct rxe_sample_block *block;
	unsigned long flags;
	u64 start = 0, end;

	spin_lock_irqsave(&d->lock, flags);
	end = d->samples * sizeof(struct rxe_rate_sample);
	list_for_each_entry(block, &d->blocks, list) {
		u64 from = max_t(u64, start, at + done), until = min3(start + each, end, at + size);

		if (from < until) {
			memcpy(to + done, (char *)block->sample + (from - start), until - from);
			done += until - from;
		}
		start += each;
	}
	spin_unlock_irqrestore(&d->lock, flags);
	return done;
}

struct bin_attribute rxe_rates_attribute = __BIN_ATTR(rates, 0444, rates_read, NULL, 0);
