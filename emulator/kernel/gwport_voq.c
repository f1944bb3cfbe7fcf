// SPDX-License-Identifier: GPL-2.0
/* gwport_voq.c		Virtual output queues: a buffer for each port that packets came in by. */

#include "gwport_discipline.h"
#include "gwport_queue.h"
#include "gwport_switch.h"

/* The first queue is for what is made on this node. */
static u32 gw_ingress_index(struct gw_port *p, struct sk_buff *skb)
{
	struct gw_port *in = gw_cb(skb)->ingress ? gw_switch_port(p->sw, gw_cb(skb)->ingress) : NULL;

	return in ? (in->ordinal + 1) % p->class[gw_cb(skb)->class].opt->queues : 0;
}

static int gw_voq_admit(struct gw_port *p, struct gw_queue *q, struct sk_buff *skb, u64 now)
{
	return q->bytes + skb->len > q->class->opt->buffer_bytes ?
		GWPORT_DROP_BUFFER : GW_ADMITTED;
}

const struct gw_discipline gw_voq = {
	.queue_index	= gw_ingress_index,
	.admit		= gw_voq_admit,
};
