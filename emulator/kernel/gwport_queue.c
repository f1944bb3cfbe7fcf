// SPDX-License-Identifier: GPL-2.0
/*
 * gwport_queue.c	The queues of a port: packets wait in them, and leave in their order.
 *
 * A class is a DSCP class selector (RFC 2474 section 4.2.2); a higher one is always
 * served before a lower one, unless they share the port by weight. Within a class is one FIFO, or several that deficit round
 * robin serves. All other decisions are the discipline's.
 *
 * Backlog is what waits: a packet leaves it when its transmission starts. Thresholds
 * are compared with the backlog that an arriving packet finds.
 */

#include <linux/prefetch.h>
#include <net/inet_ecn.h>

#include "gwport_queue.h"

void gw_queue_append(struct gw_queue *q, struct sk_buff *skb)
{
	skb->next = NULL;
	if (q->head)
		q->tail->next = skb;
	else
		q->head = skb;
	q->tail = skb;
	q->bytes += skb->len;
}

/* q's first packet, which there is */
struct sk_buff *gw_queue_unlink(struct gw_queue *q)
{
	struct sk_buff *skb = q->head;

	q->head = skb->next;
	q->bytes -= skb->len;
	skb_mark_not_on_list(skb);
	return skb;
}

/* The transmitter may take skb, the last of q. */
void gw_queue_offer(struct gw_port *p, struct gw_queue *q, struct sk_buff *skb)
{
	struct gw_class *c = &p->class[gw_cb(skb)->class];

	gw_queue_append(q, skb);
	if (list_empty(&q->active)) {
		q->deficit = c->opt->quantum_bytes;
		list_add_tail(&q->active,
			      c->discipline->has_flows ? &c->new_flows : &c->old_flows);
	}
	c->packets++;
	p->backlogged |= BIT(gw_cb(skb)->class);
}

/* skb waits for the port. */
void gw_queue_count(struct gw_port *p, const struct sk_buff *skb)
{
	struct gw_class *c = &p->class[gw_cb(skb)->class];

	c->bytes += skb->len;
	c->max_bytes = max(c->max_bytes, c->bytes);
	p->backlog_bytes += skb->len;
	p->backlog_packets++;
	p->max_backlog_bytes = max(p->max_backlog_bytes, p->backlog_bytes);
	p->peak_bytes = max(p->peak_bytes, p->backlog_bytes);
	p->sch->q.qlen++;
	p->sch->qstats.backlog += skb->len;
}

/* .. and no longer. */
void gw_queue_uncount(struct gw_port *p, const struct sk_buff *skb)
{
	p->class[gw_cb(skb)->class].bytes -= skb->len;
	p->backlog_bytes -= skb->len;
	p->backlog_packets--;
	p->sch->q.qlen--;
	p->sch->qstats.backlog -= skb->len;
}

static void gw_queue_push(struct gw_port *p, struct gw_queue *q, struct sk_buff *skb, u64 now)
{
	const struct gw_discipline *d = p->class[gw_cb(skb)->class].discipline;

	gw_queue_offer(p, q, skb);
	gw_queue_count(p, skb);
	if (p->shares_buffer && d->charge)
		d->charge(p, skb, now);
}

/* q's first packet, or NULL; t is when it leaves */
struct sk_buff *gw_queue_pop(struct gw_port *p, struct gw_queue *q, u64 t)
{
	struct sk_buff *skb = q->head;
	struct gw_class *c;

	if (!skb)
		return NULL;
	gw_account(p, t);
	c = &p->class[gw_cb(skb)->class];
	gw_queue_unlink(q);
	/* A long queue has left the processor's caches: its next packet is wanted soon */
	prefetch(q->head);
	prefetch((void *)q->head + SMP_CACHE_BYTES);
	if (!--c->packets)
		p->backlogged &= ~BIT(gw_cb(skb)->class);
	gw_queue_uncount(p, skb);
	if (p->shares_buffer && c->discipline->uncharge)
		c->discipline->uncharge(p, skb, t);
	return skb;
}

/* Set CE; counts only what was not yet marked by this or an earlier port */
bool gw_mark(struct gw_port *p, struct sk_buff *skb)
{
	int dsfield = skb_get_dsfield(skb);

	if (dsfield >= 0 && INET_ECN_is_ce(dsfield))
		return true;
	if (INET_ECN_set_ce(skb)) {
		p->st.ecn_marks++;
		p->class[gw_cb(skb)->class].ecn_marks++;
		return true;
	}
	p->st.ecn_refused++;
	return false;
}

/* Drop-tail: the port's buffer is for all that waits at it, a class's own for what waits in it. */
int gw_admit_to_buffer(struct gw_port *p, struct gw_queue *q, struct sk_buff *skb, u64 now)
{
	return gw_backlog(p, q) + skb->len > q->class->opt->buffer_bytes ?
		GWPORT_DROP_BUFFER : GW_ADMITTED;
}

/*
 * Whether an arriving packet need not be queued: nothing waits, and the transmitter becomes
 * free within this nanosecond. So it is with every packet of a stream on its second and all
 * further links of the same rate, where it would otherwise wait for a part of a nanosecond.
 */
bool gw_bypass(struct gw_port *p, struct sk_buff *skb, u64 now)
{
	const struct gw_class *c = &p->class[gw_cb(skb)->class];

	if (!p->can_bypass || p->free_ns > now || p->backlog_packets || p->pause_head || p->paused)
		return false;
	/* Somebody is to see the start of this transmission, or the end of the last, in its time */
	if (p->free_frac && (p->sending || gw_tapped(p)))
		return false;
	if (!p->shares_buffer && !p->by_class)
		return skb->len <= p->buffer_bytes;
	if (!c->discipline->can_bypass)
		return false;
	return c->discipline->bypass ? c->discipline->bypass(p, skb) :
				       skb->len <= c->opt->buffer_bytes;
}

/* Queue an arriving packet, or return the reason to drop it (enum gwport_drop). */
int gw_enqueue(struct gw_port *p, struct sk_buff *skb, u64 now)
{
	struct gw_class *c = &p->class[gw_cb(skb)->class];
	const struct gw_discipline *d = c->discipline;
	struct gw_queue *q = &c->queues[d->queue_index ? d->queue_index(p, skb) : 0];
	int reason;

	gw_account(p, now);
	if (p->opt.flags & GWPORT_F_DOWN)
		return GWPORT_DROP_DOWN;
	reason = d->admit(p, q, skb, now);
	if (reason != GW_ADMITTED) {
		if (!(c->opt->flags & GWPORT_F_TRIM) || !gw_trim(p, skb))
			return reason;
		c = &p->class[gw_cb(skb)->class];
		if (c->bytes + skb->len > c->opt->buffer_bytes)
			return reason;
		gw_queue_push(p, c->queues, skb, now);
		return GW_ADMITTED;
	}
	/* Step marking, which any discipline may have on top of its own */
	if (q->bytes > c->opt->k_bytes)
		gw_mark(p, skb);
	if (d->mark)
		d->mark(p, q, skb);
	if (d->hold)
		d->hold(p, q, skb, now);
	else
		gw_queue_push(p, q, skb, now);
	return GW_ADMITTED;
}

static struct sk_buff *gw_dequeue_from(struct gw_port *p, struct gw_queue *q, u64 t)
{
	if (q->class->discipline->dequeue)
		return q->class->discipline->dequeue(p, q, t);
	return gw_queue_pop(p, q, t);
}

/* Deficit round robin; new flows go first (RFC 8290 section 4.2) */
static struct sk_buff *gw_round_robin(struct gw_port *p, struct gw_class *c, u64 t)
{
	for (;;) {
		bool is_new = !list_empty(&c->new_flows);
		struct list_head *flows = is_new ? &c->new_flows : &c->old_flows;
		struct gw_queue *q = list_first_entry_or_null(flows, struct gw_queue, active);
		struct sk_buff *skb;

		if (!q)
			return NULL;
		if (q->deficit <= 0) {
			q->deficit += c->opt->quantum_bytes;
			list_move_tail(&q->active, &c->old_flows);
			continue;
		}
		skb = gw_dequeue_from(p, q, t);
		if (skb) {
			q->deficit -= skb->len;
			return skb;
		}
		/* A flow that was new must wait its turn before it is new again */
		if (is_new && !list_empty(&c->old_flows))
			list_move_tail(&q->active, &c->old_flows);
		else
			list_del_init(&q->active);
	}
}

static struct sk_buff *gw_dequeue_class(struct gw_port *p, struct gw_class *c, u64 t)
{
	if (c->opt->queues > 1)
		return gw_round_robin(p, c, t);
	return gw_dequeue_from(p, c->queues, t);
}

/*
 * These classes take turns by deficit round robin (Shreedhar and Varghese 1996). A class sends while it
 * has not used up its share, by bytes on the wire, and what it overdraws is taken off the next one.
 * A class that has nothing to send keeps nothing.
 */
static struct sk_buff *gw_dequeue_weighted(struct gw_port *p, u8 classes, u64 t)
{
	while (classes) {
		struct gw_class *c = &p->class[p->turn];
		struct sk_buff *skb;

		if ((classes & BIT(p->turn)) && c->deficit > 0) {
			skb = gw_dequeue_class(p, c, t);
			if (skb) {
				c->deficit -= max(skb->len, p->min_frame_bytes) +
					p->overhead_bytes;
				return skb;
			}
			classes &= ~BIT(p->turn);
			if (!classes)
				break;
		}
		if (!(p->backlogged & BIT(p->turn)))
			c->deficit = min(c->deficit, 0LL);
		do {
			p->turn = (p->turn + 1) % GWPORT_CLASSES;
		} while (!(classes & BIT(p->turn)));
		p->class[p->turn].deficit += p->class[p->turn].opt->class_quantum_bytes;
	}
	return NULL;
}

/*
 * The packet to send at time t, or NULL: there is none, or all of it paused. A class of strict priority
 * goes before those of lower ones, and all of them before those that share by weight.
 */
struct sk_buff *gw_dequeue(struct gw_port *p, u64 t)
{
	struct sk_buff *skb = p->pause_head;
	u8 classes = p->backlogged & ~p->paused & ~p->weighted;

	if (skb) {
		p->pause_head = skb->next;
		return skb;
	}
	while (classes) {
		int i = __fls(classes);

		classes &= ~BIT(i);
		skb = gw_dequeue_class(p, &p->class[i], t);
		if (skb)
			return skb;
	}
	if (!p->weighted)
		return NULL;
	return gw_dequeue_weighted(p, p->backlogged & ~p->paused & p->weighted, t);
}
