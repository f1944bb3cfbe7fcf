// SPDX-License-Identifier: GPL-2.0
/* gwport_codel.c	CoDel (RFC 8289), and CoDel of each flow (RFC 8290). */

#include <linux/math64.h>

#include "gwport_discipline.h"
#include "gwport_queue.h"

/* RFC 8289 section 5.5: q's first packet, and whether it waited too long for too long */
static struct sk_buff *gw_codel_pop(struct gw_port *p, struct gw_queue *q, u64 t, bool *too_long)
{
	const struct tc_gwport_qopt *opt = q->class->opt;
	struct sk_buff *skb = gw_queue_pop(p, q, t);
	struct gw_codel *codel = &q->codel;

	*too_long = false;
	if (!skb || t - gw_cb(skb)->time < opt->target_ns ||
	    q->bytes <= psched_mtu(p->dev))
		codel->first_above = 0;
	else if (!codel->first_above)
		codel->first_above = t + opt->interval_ns;
	else
		*too_long = t >= codel->first_above;
	return skb;
}

/* t + interval / sqrt(count), in ns */
static u64 gw_codel_control_law(const struct tc_gwport_qopt *opt, u64 t, u32 count)
{
	return t + int_sqrt64(div_u64(opt->interval_ns * opt->interval_ns, count));
}

static struct sk_buff *gw_codel_dequeue(struct gw_port *p, struct gw_queue *q, u64 t)
{
	const struct tc_gwport_qopt *opt = q->class->opt;
	struct gw_codel *codel = &q->codel;
	bool too_long;
	struct sk_buff *skb = gw_codel_pop(p, q, t, &too_long);

	if (!too_long) {
		codel->dropping = false;
	} else if (!codel->dropping) {
		u32 delta = codel->count - codel->last_count;

		codel->dropping = true;
		codel->count = delta > 1 && t < codel->drop_next + 16 * opt->interval_ns ?
			delta : 1;
		codel->last_count = codel->count;
		if (!(opt->flags & GWPORT_F_ECN) || !gw_mark(p, skb)) {
			gw_count_drop(p, skb, GWPORT_DROP_CODEL);
			kfree_skb(skb);
			skb = gw_codel_pop(p, q, t, &too_long);
		}
		codel->drop_next = gw_codel_control_law(opt, t, codel->count);
	} else {
		while (codel->dropping && t >= codel->drop_next) {
			u64 next;

			codel->count++;
			next = gw_codel_control_law(opt, codel->drop_next, codel->count);
			if ((opt->flags & GWPORT_F_ECN) && gw_mark(p, skb)) {
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
	if (skb && t - gw_cb(skb)->time > opt->ce_threshold_ns)
		gw_mark(p, skb);
	return skb;
}

const struct gw_discipline gw_codel = {
	.admit		= gw_admit_to_buffer,
	.dequeue	= gw_codel_dequeue,
};

static u32 gw_flow_index(struct gw_port *p, struct sk_buff *skb)
{
	return reciprocal_scale(skb_get_hash_perturb(skb, &p->flow_key),
				p->class[gw_cb(skb)->class].opt->queues);
}

static void gw_drop_from_longest(struct gw_port *p, struct gw_class *c, u64 now)
{
	struct gw_queue *q, *longest = NULL;
	struct sk_buff *skb;

	list_for_each_entry(q, &c->new_flows, active)
		if (!longest || q->bytes > longest->bytes)
			longest = q;
	list_for_each_entry(q, &c->old_flows, active)
		if (!longest || q->bytes > longest->bytes)
			longest = q;

	skb = gw_queue_pop(p, longest, now);
	gw_count_drop(p, skb, GWPORT_DROP_BUFFER);
	kfree_skb(skb);
}

/* RFC 8290 section 4.1.3: make room at the head of the longest queue */
static int gw_fq_codel_admit(struct gw_port *p, struct gw_queue *q, struct sk_buff *skb, u64 now)
{
	while (q->class->packets && gw_backlog(p, q) + skb->len > q->class->opt->buffer_bytes)
		gw_drop_from_longest(p, q->class, now);
	return gw_admit_to_buffer(p, q, skb, now);
}

const struct gw_discipline gw_fq_codel = {
	.single_class	= true,	/* flows are apart anyway */
	.has_flows	= true,
	.queue_index	= gw_flow_index,
	.admit		= gw_fq_codel_admit,
	.dequeue	= gw_codel_dequeue,
};
