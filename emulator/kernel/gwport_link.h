/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _GWPORT_LINK_H
#define _GWPORT_LINK_H

#include "gwport_queue.h"

extern bool gw_int_used;

void gw_link_init(struct gw_port *p);
void gw_link_stop(struct gw_port *p);
void gw_transmit(struct gw_port *p, struct sk_buff *skb);
void gw_transmitter_idle(struct gw_port *p, u64 now);
void gw_transmit_until(struct gw_port *p, u64 now);
void gw_arm_timer(struct gw_port *p);
void gw_pause_classes(struct gw_port *p, u8 classes, u8 pause, u64 now);
void gw_send_pause_frame(struct gw_port *p, struct sk_buff *skb, u64 now);
void gw_give_credits(struct gw_port *p, u64 now);
void gw_drop_credits(struct gw_port *p);
struct gw_port *gw_neighbour(struct gw_port *p);
void gw_int_stamp(struct gw_port *p, struct sk_buff *skb);
void gw_is_due(struct gw_due *due);
void gw_is_not_due(struct gw_due *due);
int gw_link_module_init(void);
void gw_link_module_exit(void);

/* Let the port do all that it did until now. */
static inline void gw_update(struct gw_port *p, u64 now)
{
	if (gw_ready_ns(p) <= now)
		gw_transmit_until(p, now);
}

#endif
