// SPDX-License-Identifier: GPL-2.0
/*
 * gwport_shared.c	One packet memory for all ports of a switch, by the dynamic threshold:
 *			a queue may have alpha times what is free (Choudhury and Hahne 1998).
 */

#include <linux/math64.h>

#include "gwport_discipline.h"
#include "gwport_queue.h"

static int gw_shared_admit(struct gw_port *p, struct gw_queue *q, struct sk_buff *skb, u64 now)
{
	const struct tc_gwport_qopt *opt = q->class->opt;
	u64 waiting = p->sw->bytes;
	u64 room = opt->buffer_bytes > waiting ? opt->buffer_bytes - waiting : 0;

	if (skb->len > room || q->bytes + skb->len > mul_u64_u64_shr(room, opt->alpha_q16, 16))
		return GWPORT_DROP_BUFFER;
	return GW_ADMITTED;
}

static void gw_shared_charge(struct gw_port *p, struct sk_buff *skb, u64 now)
{
	p->sw->bytes += skb->len;
}

static void gw_shared_uncharge(struct gw_port *p, struct sk_buff *skb, u64 t)
{
	p->sw->bytes -= skb->len;
}

static bool gw_shared_bypass(struct gw_port *p, struct sk_buff *skb)
{
	struct gw_queue *q = p->class[gw_cb(skb)->class].queues;

	return gw_shared_admit(p, q, skb, 0) == GW_ADMITTED;
}

const struct gw_discipline gw_shared = {
	.shares_buffer	= true,
	.can_bypass	= true,
	.admit		= gw_shared_admit,
	.charge		= gw_shared_charge,
	.uncharge	= gw_shared_uncharge,
	.bypass		= gw_shared_bypass,
};
