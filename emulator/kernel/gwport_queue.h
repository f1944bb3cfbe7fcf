/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _GWPORT_QUEUE_H
#define _GWPORT_QUEUE_H

#include "gwport_counters.h"

/* For the port */
bool gw_bypass(struct gw_port *p, struct sk_buff *skb, u64 now);
int gw_enqueue(struct gw_port *p, struct sk_buff *skb, u64 now);
struct sk_buff *gw_dequeue(struct gw_port *p, u64 t);

/* For disciplines */
void gw_queue_append(struct gw_queue *q, struct sk_buff *skb);
struct sk_buff *gw_queue_unlink(struct gw_queue *q);
void gw_queue_offer(struct gw_port *p, struct gw_queue *q, struct sk_buff *skb);
void gw_queue_count(struct gw_port *p, const struct sk_buff *skb);
void gw_queue_uncount(struct gw_port *p, const struct sk_buff *skb);
struct sk_buff *gw_queue_pop(struct gw_port *p, struct gw_queue *q, u64 t);
int gw_admit_to_buffer(struct gw_port *p, struct gw_queue *q, struct sk_buff *skb, u64 now);
bool gw_mark(struct gw_port *p, struct sk_buff *skb);
bool gw_trim(struct gw_port *p, struct sk_buff *skb);

/* The first ns at which the transmitter is free. */
static inline u64 gw_ready_ns(const struct gw_port *p)
{
	return p->free_ns + (p->free_frac ? 1 : 0);
}

/* Whether anything may be sent. */
static inline bool gw_can_send(const struct gw_port *p)
{
	return p->pause_head || (p->backlogged & ~p->paused);
}

/* Whether a packet socket sees what this port sends. */
static inline bool gw_tapped(const struct gw_port *p)
{
	return dev_nit_active(p->dev);
}

#endif
