// SPDX-License-Identifier: GPL-2.0
/*
 * gwport_credits.c	Credit-based flow control, hop by hop (Dally and Towles, Principles and
 *			Practices of Interconnection Networks, 2004, section 13.3.1).
 *
 * A port may send what has a place in its class's input buffer at the far end. A packet takes
 * its place when its transmission begins, and leaves it when it leaves the far node: when its
 * transmission begins at the next port, or at once where it goes no further. The sender hears
 * of that a link's delay later. Credits have wires of their own, as GARNET's credit links
 * (Agarwal et al., ISPASS 2009): they take nothing of the link's rate.
 *
 * Whether a packet goes further shows within the nanosecond in which it comes. So its place is
 * given back when it comes, and taken again when it waits; the sender hears of both at once.
 */

#include <linux/slab.h>

#include "gwport_discipline.h"
#include "gwport_link.h"
#include "gwport_queue.h"
#include "gwport_switch.h"

/* Whether the class has a next packet, and no credits for it. */
static void gw_look_for_credits(struct gw_port *p, u8 class, u64 t)
{
	struct gw_class *c = &p->class[class];
	const struct sk_buff *skb = c->queues->head;
	bool lacks = skb && c->spent + skb->len > c->opt->buffer_bytes;

	if (lacks == !!(p->paused & BIT(class)))
		return;
	if (lacks)
		p->st.pauses++;
	else
		p->st.resumes++;
	gw_pause_classes(p, BIT(class), lacks ? BIT(class) : 0, t);
}

/* Places become free at in, a port as an ingress, or are taken there (bytes below 0). */
static void gw_note_credit(struct gw_port *in, u8 class, s64 bytes, u64 t)
{
	struct gw_credit *last = in->credit_tail, *credit;
	u64 time = t + in->delay_ns;

	if (in->credit_head && last->time >= time && last->class == class) {
		last->bytes += bytes;
		return;
	}
	credit = kmalloc(sizeof(*credit), GFP_ATOMIC);
	if (WARN_ON_ONCE(!credit))
		return;
	*credit = (struct gw_credit){ .time = time, .bytes = bytes, .class = class };
	if (in->credit_head) {
		credit->time = max(time, last->time);
		last->next = credit;
	} else {
		in->credit_head = credit;
	}
	in->credit_tail = credit;
	gw_arm_timer(in);
}

/* The neighbour hears of what is due. Under the switch's lock, which is released meanwhile. */
void gw_give_credits(struct gw_port *in, u64 now)
{
	struct gw_credit *first = in->credit_head, *last = NULL, *credit;
	struct gw_port *p;
	int i;

	for (credit = first; credit && credit->time <= now; credit = credit->next)
		last = credit;
	if (!last)
		return;
	in->credit_head = last->next;
	last->next = NULL;
	spin_unlock(&in->sw->lock);

	rcu_read_lock();
	p = gw_neighbour(in);
	if (p) {
		spin_lock(&p->sw->lock);
		gw_update(p, now);
		for (credit = first; credit; credit = credit->next) {
			struct gw_class *c = &p->class[credit->class];

			/* A port that was reset has forgotten what it sent */
			if (c->discipline == &gw_credits)
				c->spent = max_t(s64, 0, (s64)c->spent - credit->bytes);
		}
		for (i = 0; i < GWPORT_CLASSES; i++)
			if (p->class[i].discipline == &gw_credits)
				gw_look_for_credits(p, i, now);
		gw_update(p, now);
		gw_arm_timer(p);
		spin_unlock(&p->sw->lock);
	}
	rcu_read_unlock();
	while (first) {
		credit = first->next;
		kfree(first);
		first = credit;
	}
	spin_lock(&in->sw->lock);
}

/* Nobody is to hear of them any more. */
void gw_drop_credits(struct gw_port *p)
{
	while (p->credit_head) {
		struct gw_credit *credit = p->credit_head;

		p->credit_head = credit->next;
		kfree(credit);
	}
}

/* The far end has a packet, which may go no further. */
static void gw_credits_arrived(struct gw_port *p, u8 class, u32 len, u64 now)
{
	struct gw_port *in;

	rcu_read_lock();
	in = gw_neighbour(p);
	if (in) {
		spin_lock(&in->sw->lock);
		gw_note_credit(in, class, len, now);
		spin_unlock(&in->sw->lock);
	}
	rcu_read_unlock();
}

/* All is taken: packets of others have had their place on this node before, and its own wait in it. */
static int gw_credits_admit(struct gw_port *p, struct gw_queue *q, struct sk_buff *skb, u64 now)
{
	return GW_ADMITTED;
}

static struct gw_port *gw_came_by(struct gw_port *p, struct sk_buff *skb)
{
	return gw_cb(skb)->ingress ? gw_switch_port(p->sw, gw_cb(skb)->ingress) : NULL;
}

static void gw_credits_charge(struct gw_port *p, struct sk_buff *skb, u64 now)
{
	struct gw_port *in = gw_came_by(p, skb);
	u8 class = gw_cb(skb)->class;

	if (in) {
		struct gw_class *c = &in->class[class];

		c->ingress_bytes += skb->len;
		in->st.ingress_max_bytes = max(in->st.ingress_max_bytes, c->ingress_bytes);
		gw_note_credit(in, class, -(s64)skb->len, now);
	}
	gw_look_for_credits(p, class, now);
}

static void gw_credits_uncharge(struct gw_port *p, struct sk_buff *skb, u64 t)
{
	struct gw_port *in = gw_came_by(p, skb);
	u8 class = gw_cb(skb)->class;

	if (!in)
		return;
	/* Packets may outlive the port that they came in by; a new one starts from 0 */
	in->class[class].ingress_bytes -= min_t(u64, skb->len, in->class[class].ingress_bytes);
	gw_note_credit(in, class, skb->len, t);
}

static void gw_credits_transmit(struct gw_port *p, struct sk_buff *skb, u64 t)
{
	u8 class = gw_cb(skb)->class;

	p->class[class].spent += skb->len;
	gw_look_for_credits(p, class, t);
}

static bool gw_credits_bypass(struct gw_port *p, struct sk_buff *skb)
{
	const struct gw_class *c = &p->class[gw_cb(skb)->class];

	return c->spent + skb->len <= c->opt->buffer_bytes;
}

const struct gw_discipline gw_credits = {
	.shares_buffer	= true,
	.can_bypass	= true,
	.admit		= gw_credits_admit,
	.charge		= gw_credits_charge,
	.uncharge	= gw_credits_uncharge,
	.transmit	= gw_credits_transmit,
	.arrived	= gw_credits_arrived,
	.bypass		= gw_credits_bypass,
};
