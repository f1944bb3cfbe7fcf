// SPDX-License-Identifier: GPL-2.0
/*
 * rxe_selective.c	Selective repeat of reliable queue pairs, which bears packets that overtake.
 *
 * Each packet of a WRITE says where it goes, so that one that comes before its turn is placed at
 * once; what is kept of it is its headers. Other requests wait for their turn as they are. An early
 * packet is answered at once, by an acknowledgement of what has come in order and a bitmap of the
 * 64 packets up to it (the cumulative and the selective acknowledgement of IRN, Mittal et al.,
 * SIGCOMM 2018). A packet is lost when one that was sent after it has come for longer than packets
 * may overtake each other, and it has not; this holds for what was sent again, too (the order of
 * RACK, RFC 8985, by PSN instead of time). Nothing else is sent again before the time-out, after
 * which all is sent that is not known to have come. READs, atomics and requests for which no
 * receive is posted go back, as without selective repeat.
 */

#include "rxe.h"
#include "rxe_loc.h"
#include "rxe_queue.h"

struct rxe_hole {
	struct list_head	list;
	u32			psn;
	u32			sent_before_psn;	/* what was first sent at or after it, was sent later */
	u64			since_ns;
	bool			lost;			/* it is to be sent again */
};

static bool rxe_has_bitmap(int opcode)
{
	return opcode == RXE_SELECTIVE_ACKNOWLEDGE || opcode == RXE_TRIMMED_NACK;
}

static void rxe_is_lost(struct rxe_selective *s, struct rxe_hole *hole)
{
	hole->lost = true;
	list_move_tail(&hole->list, &s->lost);
}

/* A packet did not come in time. */
static void rxe_missed(struct rxe_qp *qp, u32 psn)
{
	rxe_paths_lost(qp, psn);
	rxe_congestion_lost(qp);
}

static u32 rxe_next(u32 psn)
{
	return (psn + 1) & BTH_PSN_MASK;
}

/* The requester */

static struct rxe_hole *rxe_add_hole(struct rxe_selective *s, u32 psn)
{
	struct rxe_hole *hole = kmalloc(sizeof(*hole), GFP_ATOMIC);

	if (!hole)
		return NULL;
	hole->psn = psn;
	hole->lost = false;
	INIT_LIST_HEAD(&hole->list);
	if (xa_err(xa_store(&s->holes, psn, hole, GFP_ATOMIC))) {
		kfree(hole);
		return NULL;
	}
	s->hole_count++;
	return hole;
}

static bool rxe_fill_hole(struct rxe_selective *s, u32 psn)
{
	struct rxe_hole *hole = s->hole_count ? xa_erase(&s->holes, psn) : NULL;

	if (!hole)
		return false;
	list_del(&hole->list);
	kfree(hole);
	s->hole_count--;
	return true;
}

/* Nothing is known of any packet that was sent. */
void rxe_selective_forget(struct rxe_qp *qp)
{
	struct rxe_selective *s = &qp->congestion.selective;
	struct rxe_hole *hole;
	unsigned long psn;

	xa_for_each(&s->holes, psn, hole)
		rxe_fill_hole(s, psn);
	s->known_psn = qp->comp.psn;
	s->go_back = false;
	s->timed_out = false;
}

/* The opcode of the packet: of a WRITE that says in each where it goes */
int rxe_selective_opcode(struct rxe_qp *qp, int opcode)
{
	if (!qp->congestion.selective.on)
		return opcode;
	switch (opcode) {
	case IB_OPCODE_RC_RDMA_WRITE_MIDDLE:
	case IB_OPCODE_RC_RDMA_WRITE_LAST:
	case IB_OPCODE_RC_RDMA_WRITE_LAST_WITH_IMMEDIATE:
		return RXE_SELECTIVE_TYPE | opcode;
	default:
		return opcode;
	}
}

/* How many packets were sent and are not known to have come */
u32 rxe_selective_flight(struct rxe_qp *qp)
{
	struct rxe_selective *s = &qp->congestion.selective;

	return ((qp->req.psn - s->known_psn) & BTH_PSN_MASK) + s->hole_count;
}

/* Whether so many packets are on their way that no other may be sent */
bool rxe_selective_full(struct rxe_qp *qp, u32 window)
{
	struct rxe_selective *s = &qp->congestion.selective;
	u32 span = (qp->req.psn - qp->comp.psn) & BTH_PSN_MASK;

	if (!s->on)
		return psn_compare(qp->req.psn, qp->comp.psn + window) >= 0;
	return span >= RXE_MAX_UNACKED_PSNS || rxe_selective_flight(qp) >= window;
}

static enum hrtimer_restart rxe_selective_timer(struct hrtimer *timer)
{
	return rxe_congestion_wake(container_of(timer, struct rxe_qp, congestion.selective.timer));
}

/* Whether a packet is lost, and which is to be sent again first */
bool rxe_selective_lost(struct rxe_qp *qp, u32 *psn)
{
	struct rxe_selective *s = &qp->congestion.selective;
	struct rxe_hole *hole, *next;
	u64 now;

	if (!s->hole_count)
		return false;
	now = ktime_get_ns();
	list_for_each_entry_safe(hole, next, &s->waiting, list) {
		if (hole->since_ns + s->reordering_ns > now) {
			hrtimer_start(&s->timer, ns_to_ktime(hole->since_ns + s->reordering_ns),
				      HRTIMER_MODE_ABS);
			break;
		}
		rxe_is_lost(s, hole);
		rxe_missed(qp, hole->psn);
	}
	if (list_empty(&s->lost))
		return false;
	*psn = list_first_entry(&s->lost, struct rxe_hole, list)->psn;
	return true;
}

/* That one was. */
void rxe_selective_sent_again(struct rxe_qp *qp)
{
	struct rxe_selective *s = &qp->congestion.selective;
	struct rxe_hole *hole = list_first_entry(&s->lost, struct rxe_hole, list);

	hole->sent_before_psn = qp->req.psn;
	hole->lost = false;
	list_move_tail(&hole->list, &s->sent);
	rxe_counter_inc(to_rdev(qp->ibqp.device), RXE_CNT_RESENT);
}

/* After a time-out: whether what is not known to have come can be sent again by itself */
bool rxe_selective_retry(struct rxe_qp *qp)
{
	struct rxe_selective *s = &qp->congestion.selective;
	struct rxe_queue *q = qp->sq.queue;
	u32 prod = queue_get_producer(q, QUEUE_TYPE_FROM_CLIENT), at;
	bool again = s->on && !s->go_back && !s->timed_out;
	struct rxe_hole *hole, *next;

	for (at = queue_get_consumer(q, QUEUE_TYPE_FROM_CLIENT); again && at != prod;
	     at = queue_next_index(q, at)) {
		struct rxe_send_wqe *wqe = queue_addr_from_index(q, at);

		if (wqe->state == wqe_state_posted)
			break;
		if (!(wr_opcode_mask(wqe->wr.opcode, qp) & WR_WRITE_OR_SEND_MASK))
			again = false;
	}
	if (!again) {
		rxe_selective_forget(qp);
		return false;
	}
	s->timed_out = true;
	list_splice_tail_init(&s->sent, &s->waiting);
	list_for_each_entry_safe(hole, next, &s->waiting, list) {
		rxe_is_lost(s, hole);
		rxe_missed(qp, hole->psn);
	}
	for (; s->known_psn != qp->req.psn; s->known_psn = rxe_next(s->known_psn)) {
		hole = rxe_add_hole(s, s->known_psn);
		if (!hole)
			break;
		rxe_is_lost(s, hole);
		rxe_missed(qp, hole->psn);
	}
	if (!s->hole_count) {	/* all has come, and the acknowledgement was lost: ask for another */
		hole = rxe_add_hole(s, qp->comp.psn);
		if (hole)
			rxe_is_lost(s, hole);
	}
	return true;
}

static struct rxe_sack *rxe_sack_of(struct rxe_pkt_info *pkt)
{
	return (struct rxe_sack *)(pkt->hdr + RXE_BTH_BYTES + RXE_AETH_BYTES);
}

/* The PSN of the request that an acknowledgement answers */
u32 rxe_selective_answers(struct rxe_pkt_info *pkt)
{
	return rxe_has_bitmap(pkt->opcode) ?
		be32_to_cpu(rxe_sack_of(pkt)->answers) & BTH_PSN_MASK : pkt->psn;
}

/* Whether it is known that a packet has come */
bool rxe_selective_knows(struct rxe_qp *qp, u32 psn)
{
	struct rxe_selective *s = &qp->congestion.selective;

	return s->on && psn_compare(psn, s->known_psn) < 0 &&
	       !(s->hole_count && xa_load(&s->holes, psn));
}

/* A bitmap of the packets up to one that has come. Whether it says something new. */
static bool rxe_selective_sacked(struct rxe_qp *qp, struct rxe_pkt_info *pkt)
{
	struct rxe_selective *s = &qp->congestion.selective;
	u32 last = rxe_selective_answers(pkt), back, psn;
	struct rxe_hole *hole, *next;
	u64 now = ktime_get_ns(), came;
	bool new = false;

	if (psn_compare(last, qp->comp.psn) < 0 || psn_compare(last, qp->req.psn) >= 0)
		return false;
	if (bth_becn(pkt))
		rxe_paths_marked(qp, last);
	came = (u64)be32_to_cpu(rxe_sack_of(pkt)->came[0]) << 32 |
	       be32_to_cpu(rxe_sack_of(pkt)->came[1]);
	for (back = 0; s->hole_count && back < RXE_SACK_PACKETS; back++)
		if (came >> back & 1)
			new |= rxe_fill_hole(s, (last - back) & BTH_PSN_MASK);
	for (; psn_compare(s->known_psn, last) <= 0; s->known_psn = rxe_next(s->known_psn)) {
		psn = s->known_psn;
		back = (last - psn) & BTH_PSN_MASK;
		if (back < RXE_SACK_PACKETS && came >> back & 1) {
			new = true;
			continue;
		}
		hole = rxe_add_hole(s, psn);
		if (!hole)
			break;
		hole->since_ns = now;
		list_add_tail(&hole->list, &s->waiting);
	}
	list_for_each_entry_safe(hole, next, &s->sent, list) {
		if (psn_compare(last, hole->sent_before_psn) < 0)
			break;
		hole->since_ns = now;
		list_move_tail(&hole->list, &s->waiting);
	}
	hole = pkt->opcode == RXE_TRIMMED_NACK ? xa_load(&s->holes, last) : NULL;
	if (hole && !hole->lost) {
		rxe_counter_inc(to_rdev(qp->ibqp.device), RXE_CNT_TRIMMED);
		rxe_is_lost(s, hole);
		new = true;
	}
	return new;
}

/* An acknowledgement has come. Whether it says something new. */
bool rxe_selective_acked(struct rxe_qp *qp, struct rxe_pkt_info *pkt)
{
	struct rxe_selective *s = &qp->congestion.selective;
	u32 psn, known = s->known_psn, holes = s->hole_count;
	bool new = false;

	if (!s->on)
		return false;
	if ((aeth_syn(pkt) & AETH_TYPE_MASK) != AETH_ACK) {
		s->go_back = (aeth_syn(pkt) & AETH_TYPE_MASK) == AETH_RNR_NAK;
		return false;
	}
	if (psn_compare(pkt->psn, qp->req.psn) >= 0)
		return false;
	for (psn = qp->comp.psn; s->hole_count && psn_compare(psn, pkt->psn) <= 0;
	     psn = rxe_next(psn))
		rxe_fill_hole(s, psn);
	if (psn_compare(pkt->psn, s->known_psn) >= 0)
		s->known_psn = rxe_next(pkt->psn);
	if (psn_compare(pkt->psn, qp->comp.psn) >= 0)
		new = true;
	if (rxe_has_bitmap(pkt->opcode))
		new |= rxe_selective_sacked(qp, pkt);
	rxe_congestion_heard(qp, rxe_selective_answers(pkt),
			     ((s->known_psn - known) & BTH_PSN_MASK) + holes - s->hole_count,
			     rxe_has_bitmap(pkt->opcode) && bth_becn(pkt),
			     pkt->opcode == RXE_TRIMMED_NACK);
	if (new)
		s->timed_out = false;
	return new;
}

/* The responder */

static void rxe_send_bitmap(struct rxe_qp *qp, struct rxe_pkt_info *pkt, int opcode, bool marked)
{
	struct rxe_selective *s = &qp->congestion.selective;
	struct rxe_pkt_info ack = {};
	struct rxe_sack *sack;
	struct sk_buff *skb;
	u64 came = opcode == RXE_SELECTIVE_ACKNOWLEDGE;
	u32 back;

	for (back = 1; back < RXE_SACK_PACKETS; back++) {
		u32 psn = (pkt->psn - back) & BTH_PSN_MASK;

		if (psn_compare(psn, qp->resp.psn) < 0)
			came |= 1ULL << back;
		else if (xa_load(&s->early, psn))
			came |= 1ULL << back;
	}
	qp->congestion.answered = PKT_TO_SKB(pkt);
	skb = rxe_prepare_ack_packet(qp, &ack, opcode, 0,
				     (qp->resp.psn - 1) & BTH_PSN_MASK, AETH_ACK_UNLIMITED);
	qp->congestion.answered = NULL;
	if (!skb)
		return;
	if (marked)
		bth_set_becn(&ack, 1);
	sack = rxe_sack_of(&ack);
	sack->answers = cpu_to_be32(pkt->psn);
	sack->came[0] = cpu_to_be32(came >> 32);
	sack->came[1] = cpu_to_be32((u32)came);
	rxe_xmit_packet(qp, &ack, skb);
}

/* Answers a packet that has come, by a bitmap of those up to it. */
void rxe_selective_answer(struct rxe_qp *qp, struct rxe_pkt_info *pkt)
{
	rxe_send_bitmap(qp, pkt, RXE_SELECTIVE_ACKNOWLEDGE, pkt->mask & RXE_MARKED_MASK);
}

/*
 * The headers of a packet have come that has lost its payload. Another path would not help where
 * the port of this host has cut it.
 */
void rxe_selective_trimmed(struct rxe_qp *qp, struct rxe_pkt_info *pkt)
{
	struct rxe_selective *s = &qp->congestion.selective;

	if (psn_compare(pkt->psn, qp->resp.psn) < 0 || xa_load(&s->early, pkt->psn))
		return;
	rxe_send_bitmap(qp, pkt, RXE_TRIMMED_NACK, pkt->mask & RXE_MARKED_MASK);
}

/* Writes an early packet of a WRITE to where it goes. Errors are found again when it has its turn. */
static bool rxe_place(struct rxe_qp *qp, struct rxe_pkt_info *pkt)
{
	struct rxe_mr *mr;
	u32 rkey;
	bool placed;

	if (!(pkt->mask & RXE_WRITE_MASK) || !(pkt->mask & RXE_RETH_MASK) || !payload_size(pkt) ||
	    !(qp->attr.qp_access_flags & IB_ACCESS_REMOTE_WRITE))
		return false;
	rkey = reth_rkey(pkt);
	if (rkey_is_mw(rkey))
		return false;
	mr = lookup_mr(qp->pd, IB_ACCESS_REMOTE_WRITE, rkey, RXE_LOOKUP_REMOTE);
	if (!mr)
		return false;
	placed = !mr_check_range(mr, reth_va(pkt), payload_size(pkt)) &&
		 !rxe_mr_copy(mr, reth_va(pkt), payload_addr(pkt), payload_size(pkt), RXE_TO_MR_OBJ);
	rxe_put(mr);
	return placed;
}

/* The headers of a packet, without what has been placed; they hold what the packet has held */
static struct sk_buff *rxe_headers(struct rxe_pkt_info *pkt)
{
	struct sk_buff *all = PKT_TO_SKB(pkt), *kept = alloc_skb(header_size(pkt), GFP_ATOMIC);
	struct rxe_pkt_info *info;

	if (!kept)
		return NULL;
	info = SKB_TO_PKT(kept);
	*info = *pkt;
	info->hdr = skb_put_data(kept, pkt->hdr, header_size(pkt));
	info->mask |= RXE_PLACED_MASK;
	kept->dev = all->dev;
	return kept;
}

/* A packet has come before its turn. Whether it is kept, and is none of the queue's any more. */
bool rxe_selective_early(struct rxe_qp *qp, struct rxe_pkt_info *pkt)
{
	struct rxe_selective *s = &qp->congestion.selective;
	struct rxe_dev *rxe = to_rdev(qp->ibqp.device);
	struct sk_buff *skb = PKT_TO_SKB(pkt), *kept = skb;

	if (((pkt->psn - qp->resp.psn) & BTH_PSN_MASK) >= RXE_MAX_UNACKED_PSNS)
		return false;
	if (xa_load(&s->early, pkt->psn)) {
		rxe_counter_inc(rxe, RXE_CNT_DUP_REQ);
		rxe_selective_answer(qp, pkt);
		return false;
	}
	if (rxe_place(qp, pkt))
		kept = rxe_headers(pkt);
	if (!kept || xa_err(xa_store(&s->early, pkt->psn, kept, GFP_ATOMIC))) {
		if (kept && kept != skb)
			kfree_skb(kept);
		return false;
	}
	SKB_TO_PKT(kept)->mask |= RXE_EARLY_MASK;
	rxe_counter_inc(rxe, RXE_CNT_OUT_OF_SEQ_REQ);
	rxe_selective_answer(qp, pkt);
	skb_dequeue(&qp->req_pkts);
	if (kept != skb)
		kfree_skb(skb);
	return true;
}

/* The early packet whose turn it is comes first; after the last one in a row all is acknowledged. */
void rxe_selective_next(struct rxe_qp *qp)
{
	struct rxe_selective *s = &qp->congestion.selective;
	struct rxe_pkt_info ack = {};
	struct sk_buff *skb;

	if (!s->on || qp->resp.res || (!s->caught_up && xa_empty(&s->early)))
		return;
	skb = xa_erase(&s->early, qp->resp.psn);
	if (skb) {
		skb_queue_head(&qp->req_pkts, skb);
		s->caught_up = true;
		return;
	}
	if (!s->caught_up)
		return;
	s->caught_up = false;
	skb = rxe_prepare_ack_packet(qp, &ack, IB_OPCODE_RC_ACKNOWLEDGE, 0,
				     (qp->resp.psn - 1) & BTH_PSN_MASK, AETH_ACK_UNLIMITED);
	if (skb)
		rxe_xmit_packet(qp, &ack, skb);
}

void rxe_selective_drain(struct rxe_qp *qp)
{
	struct rxe_selective *s = &qp->congestion.selective;
	struct sk_buff *skb;
	unsigned long psn;

	s->caught_up = false;
	xa_for_each(&s->early, psn, skb) {
		xa_erase(&s->early, psn);
		rxe_put(qp);
		kfree_skb(skb);
		ib_device_put(qp->ibqp.device);
	}
}

void rxe_selective_init(struct rxe_qp *qp, u64 on, u64 reordering_ns)
{
	struct rxe_selective *s = &qp->congestion.selective;

	xa_init(&s->holes);
	xa_init(&s->early);
	INIT_LIST_HEAD(&s->waiting);
	INIT_LIST_HEAD(&s->lost);
	INIT_LIST_HEAD(&s->sent);
	hrtimer_init(&s->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	s->timer.function = rxe_selective_timer;
	s->on = on && qp_type(qp) == IB_QPT_RC;
	s->reordering_ns = reordering_ns;
}

/* No timer of the queue pair fires any more. */
void rxe_selective_stop(struct rxe_qp *qp)
{
	if (qp->congestion.selective.timer.function)
		hrtimer_cancel(&qp->congestion.selective.timer);
}
