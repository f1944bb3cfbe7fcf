// SPDX-License-Identifier: GPL-2.0
/*
 * gwport_queue.c	The queues of a port: which packets get in, which get marked,
 *			which leaves next.
 *
 * A class is a DSCP class selector (RFC 2474 section 4.2.2); a higher one is always
 * served before a lower one. Within a class is one FIFO, or one per ingress port
 * (voq) or hashed flow (fq_codel), served by deficit round robin.
 *
 * Backlog is what waits: a packet leaves it when its transmission starts. Thresholds
 * are compared with the backlog that an arriving packet finds.
 */

#include <linux/math64.h>
#include <linux/prefetch.h>
#include <net/inet_ecn.h>

#include "gwport_port.h"

static struct gw_queue *gw_queue_of(struct gw_port *p, struct sk_buff *skb)
{
	struct gw_class *c = &p->class[gw_cb(skb)->class];
	struct gw_port *in;
	u32 i = 0;

	switch (p->opt.kind) {
	case GWPORT_FQ_CODEL:
		i = reciprocal_scale(skb_get_hash_perturb(skb, &p->flow_key), p->opt.queues);
		break;
	case GWPORT_VOQ:
		in = gw_cb(skb)->ingress ? gw_switch_port(p->sw, gw_cb(skb)->ingress) : NULL;
		i = in ? (in->ordinal + 1) % p->opt.queues : 0;
		break;
	}
	return &c->queues[i];
}

static void gw_push(struct gw_port *p, struct gw_queue *q, struct sk_buff *skb, u64 now)
{
	struct gw_class *c = &p->class[gw_cb(skb)->class];

	skb->next = NULL;
	if (q->head)
		q->tail->next = skb;
	else
		q->head = skb;
	q->tail = skb;
	q->bytes += skb->len;
	if (list_empty(&q->turn)) {
		q->deficit = p->opt.quantum_bytes;
		list_add_tail(&q->turn, p->opt.kind == GWPORT_FQ_CODEL ? &c->fresh : &c->served);
	}

	c->packets++;
	p->waiting |= BIT(gw_cb(skb)->class);
	p->bytes += skb->len;
	p->packets++;
	p->max_bytes = max(p->max_bytes, p->bytes);
	p->sch->q.qlen++;
	p->sch->qstats.backlog += skb->len;
	if (p->eager)
		gw_memory_take(p, skb, now);
}

/* q's first packet, or NULL; t is when it leaves */
static struct sk_buff *gw_pop(struct gw_port *p, struct gw_queue *q, u64 t)
{
	struct sk_buff *skb = q->head;
	struct gw_class *c;

	if (!skb)
		return NULL;
	gw_account(p, t);
	c = &p->class[gw_cb(skb)->class];
	q->head = skb->next;
	/* A long queue has left the processor's caches: its next packet is wanted soon */
	prefetch(q->head);
	prefetch((void *)q->head + SMP_CACHE_BYTES);
	skb_mark_not_on_list(skb);
	q->bytes -= skb->len;
	if (!--c->packets)
		p->waiting &= ~BIT(gw_cb(skb)->class);
	p->bytes -= skb->len;
	p->packets--;
	p->sch->q.qlen--;
	p->sch->qstats.backlog -= skb->len;
	if (p->eager)
		gw_memory_give(p, skb, t);
	return skb;
}

/*
 * Random early detection (Floyd and Jacobson 1993). The average moves with every
 * arrival, and while the port is idle as if small packets had found it empty. Marking
 * is by an independent draw per packet, as switches do for DCQCN (Zhu et al.,
 * SIGCOMM 2015, figure 5), not spaced by the count since the last mark, so that the
 * probability is the line's.
 */
static bool gw_red_hits(struct gw_port *p, u64 bytes, u64 now)
{
	const struct tc_gwport_qopt *opt = &p->opt;
	u64 kmin = opt->kmin_bytes << 16, kmax = opt->kmax_bytes << 16, q = bytes << 16;

	if (opt->red_weight_q32 == U32_MAX) {
		p->red_avg = q;
	} else {
		if (!p->packets && p->idle_since_ns && p->idle_since_ns < now) {
			u64 bits = 8ULL * (psched_mtu(p->dev) + opt->overhead_bytes);
			u64 packet_ns = max(1ULL, div64_u64(bits * NSEC_PER_SEC, opt->rate_bps));
			u64 missed = div64_u64(now - p->idle_since_ns, packet_ns);
			u64 keep = U32_MAX - opt->red_weight_q32;

			for (; missed && p->red_avg; missed >>= 1) {
				if (missed & 1)
					p->red_avg = mul_u64_u64_shr(p->red_avg, keep, 32);
				keep = (keep * keep) >> 32;
			}
		}
		if (q >= p->red_avg)
			p->red_avg += mul_u64_u64_shr(q - p->red_avg, opt->red_weight_q32, 32);
		else
			p->red_avg -= mul_u64_u64_shr(p->red_avg - q, opt->red_weight_q32, 32);
	}

	if (p->red_avg < kmin)
		return false;
	if (p->red_avg >= kmax)
		return true;
	return gw_chance(p, mul_u64_u64_div_u64(opt->red_pmax_q32, p->red_avg - kmin, kmax - kmin));
}

/* Set CE; counts only what was not yet marked by this or an earlier port */
static bool gw_mark(struct gw_port *p, struct sk_buff *skb)
{
	int dsfield = skb_get_dsfield(skb);

	if (dsfield >= 0 && INET_ECN_is_ce(dsfield))
		return true;
	if (INET_ECN_set_ce(skb)) {
		p->st.ecn_marks++;
		return true;
	}
	p->st.ecn_refused++;
	return false;
}

/* Room for a packet: the reason to drop it, or -1 */
static int gw_room(struct gw_port *p, struct gw_queue *q, struct sk_buff *skb)
{
	const struct tc_gwport_qopt *opt = &p->opt;
	struct gw_switch *sw = p->sw;
	struct gw_port *in;
	u64 room;

	switch (opt->kind) {
	case GWPORT_SHARED:
		/* Dynamic threshold: alpha * free buffer (Choudhury and Hahne 1998) */
		room = opt->buffer_bytes > sw->bytes ? opt->buffer_bytes - sw->bytes : 0;
		if (skb->len > room ||
		    q->bytes + skb->len > mul_u64_u64_shr(room, opt->alpha_q16, 16))
			return GWPORT_DROP_BUFFER;
		return -1;
	case GWPORT_VOQ:
		return q->bytes + skb->len > opt->buffer_bytes ? GWPORT_DROP_BUFFER : -1;
	case GWPORT_LOSSLESS:
		room = opt->buffer_bytes;
		if (opt->lossy_classes & BIT(gw_cb(skb)->class)) {
			/* must not take what keeps the others lossless */
			room = room > sw->headroom ? room - sw->headroom : 0;
		} else if (gw_cb(skb)->ingress) {
			in = gw_switch_port(sw, gw_cb(skb)->ingress);
			if (in && in->class[gw_cb(skb)->class].ingress_bytes + skb->len >
			    in->opt.xoff_bytes + in->opt.headroom_bytes)
				return GWPORT_DROP_HEADROOM;
		}
		return sw->bytes + skb->len > room ? GWPORT_DROP_BUFFER : -1;
	default:
		return p->bytes + skb->len > opt->buffer_bytes ? GWPORT_DROP_BUFFER : -1;
	}
}

/* RFC 8290 section 4.1.3: make room at the head of the longest queue */
static void gw_shorten_longest(struct gw_port *p, u64 now)
{
	struct gw_queue *q, *longest = NULL;
	struct sk_buff *skb;

	list_for_each_entry(q, &p->class[0].fresh, turn)
		if (!longest || q->bytes > longest->bytes)
			longest = q;
	list_for_each_entry(q, &p->class[0].served, turn)
		if (!longest || q->bytes > longest->bytes)
			longest = q;

	skb = gw_pop(p, longest, now);
	gw_count_drop(p, skb, GWPORT_DROP_BUFFER);
	kfree_skb(skb);
}

/*
 * Whether an arriving packet need not be queued: nothing waits, and the transmitter becomes
 * free within this nanosecond. So it is with every packet of a stream on its second and all
 * further links of the same rate, where it would otherwise wait for a part of a nanosecond.
 */
bool gw_passes(struct gw_port *p, struct sk_buff *skb, u64 now)
{
	if (!p->plain || p->free_ns > now || p->packets || p->control_head || p->paused)
		return false;
	/* Somebody is to see the start of this transmission, or the end of the last, in its time */
	if (p->free_frac && (p->sending || gw_tapped(p)))
		return false;
	if (!p->eager)
		return skb->len <= p->buffer_bytes;
	return gw_room(p, p->class[gw_cb(skb)->class].queues, skb) < 0 && gw_memory_pass(p, skb);
}

/* Queue an arriving packet, or return the reason (enum gwport_drop) to drop it; -1: queued */
int gw_admit(struct gw_port *p, struct sk_buff *skb, u64 now)
{
	const struct tc_gwport_qopt *opt = &p->opt;
	struct gw_queue *q = gw_queue_of(p, skb);
	int reason;

	gw_account(p, now);
	if (opt->flags & GWPORT_F_DOWN)
		return GWPORT_DROP_DOWN;

	if (opt->kind == GWPORT_FQ_CODEL)
		while (p->packets && p->bytes + skb->len > opt->buffer_bytes)
			gw_shorten_longest(p, now);
	reason = gw_room(p, q, skb);
	if (reason >= 0) {
		if (opt->kind == GWPORT_RED)
			gw_red_hits(p, q->bytes, now);	/* an arrival all the same */
		return reason;
	}

	if (opt->kind == GWPORT_RED && gw_red_hits(p, q->bytes, now)) {
		if (!(opt->flags & GWPORT_F_ECN))
			return GWPORT_DROP_RED;
		gw_mark(p, skb);
	}
	if (q->bytes > opt->k_bytes)
		gw_mark(p, skb);

	gw_push(p, q, skb, now);
	return -1;
}

/* RFC 8289 section 5.5: q's first packet, and whether it waited too long for too long */
static struct sk_buff *gw_codel_pop(struct gw_port *p, struct gw_queue *q, u64 t, bool *too_long)
{
	struct sk_buff *skb = gw_pop(p, q, t);
	struct gw_codel *codel = &q->codel;

	*too_long = false;
	if (!skb || t - gw_cb(skb)->time < p->opt.target_ns ||
	    q->bytes <= psched_mtu(p->dev))
		codel->first_above = 0;
	else if (!codel->first_above)
		codel->first_above = t + p->opt.interval_ns;
	else
		*too_long = t >= codel->first_above;
	return skb;
}

/* t + interval / sqrt(count), in ns */
static u64 gw_codel_law(struct gw_port *p, u64 t, u32 count)
{
	return t + int_sqrt64(div_u64(p->opt.interval_ns * p->opt.interval_ns, count));
}

static struct sk_buff *gw_codel_dequeue(struct gw_port *p, struct gw_queue *q, u64 t)
{
	struct gw_codel *codel = &q->codel;
	bool too_long;
	struct sk_buff *skb = gw_codel_pop(p, q, t, &too_long);

	if (!too_long) {
		codel->dropping = false;
	} else if (!codel->dropping) {
		u32 delta = codel->count - codel->last_count;

		codel->dropping = true;
		codel->count = delta > 1 && t < codel->drop_next + 16 * p->opt.interval_ns ?
			delta : 1;
		codel->last_count = codel->count;
		if (!(p->opt.flags & GWPORT_F_ECN) || !gw_mark(p, skb)) {
			gw_count_drop(p, skb, GWPORT_DROP_CODEL);
			kfree_skb(skb);
			skb = gw_codel_pop(p, q, t, &too_long);
		}
		codel->drop_next = gw_codel_law(p, t, codel->count);
	} else {
		while (codel->dropping && t >= codel->drop_next) {
			u64 next;

			codel->count++;
			next = gw_codel_law(p, codel->drop_next, codel->count);
			if ((p->opt.flags & GWPORT_F_ECN) && gw_mark(p, skb)) {
				codel->drop_next = next;
				break;
			}
			gw_count_drop(p, skb, GWPORT_DROP_CODEL);
			kfree_skb(skb);
			skb = gw_codel_pop(p, q, t, &too_long);
			if (too_long)
				codel->drop_next = next;
			else
				codel->dropping = false;
		}
	}
	if (skb && t - gw_cb(skb)->time > p->opt.ce_threshold_ns)
		gw_mark(p, skb);
	return skb;
}

static struct sk_buff *gw_take(struct gw_port *p, struct gw_queue *q, u64 t)
{
	if (p->opt.kind == GWPORT_CODEL || p->opt.kind == GWPORT_FQ_CODEL)
		return gw_codel_dequeue(p, q, t);
	return gw_pop(p, q, t);
}

/* Deficit round robin; new flows go first (RFC 8290 section 4.2) */
static struct sk_buff *gw_round_robin(struct gw_port *p, struct gw_class *c, u64 t)
{
	for (;;) {
		bool fresh = !list_empty(&c->fresh);
		struct list_head *turns = fresh ? &c->fresh : &c->served;
		struct gw_queue *q = list_first_entry_or_null(turns, struct gw_queue, turn);
		struct sk_buff *skb;

		if (!q)
			return NULL;
		if (q->deficit <= 0) {
			q->deficit += p->opt.quantum_bytes;
			list_move_tail(&q->turn, &c->served);
			continue;
		}
		skb = gw_take(p, q, t);
		if (skb) {
			q->deficit -= skb->len;
			return skb;
		}
		/* A flow that was new must wait its turn before it is new again */
		if (fresh && !list_empty(&c->served))
			list_move_tail(&q->turn, &c->served);
		else
			list_del_init(&q->turn);
	}
}

/* What is to be sent at time t, or NULL: nothing, or all of it paused */
struct sk_buff *gw_pick(struct gw_port *p, u64 t)
{
	struct sk_buff *skb = p->control_head;
	u8 classes = p->waiting & ~p->paused;

	if (skb) {
		p->control_head = skb->next;
		return skb;
	}
	while (classes) {
		int i = __fls(classes);
		struct gw_class *c = &p->class[i];

		classes &= ~BIT(i);
		if (p->opt.queues > 1)
			skb = gw_round_robin(p, c, t);
		else
			skb = gw_take(p, c->queues, t);
		if (skb)
			return skb;
	}
	return NULL;
}
