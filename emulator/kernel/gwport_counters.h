/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _GWPORT_COUNTERS_H
#define _GWPORT_COUNTERS_H

#include "gwport_port.h"

void gw_count_drop(struct gw_port *p, struct sk_buff *skb, enum gwport_drop reason);
void gw_free_samples(struct list_head *blocks);
void gw_start_samples(struct gw_port *p, u64 now);
void gw_account_backlog(struct gw_port *p, u64 t);

/* Bring the backlog's integral and samples up to t; to be called before anything changes. */
static inline void gw_account(struct gw_port *p, u64 t)
{
	if (t <= p->account_ns)
		return;
	if (p->backlog_bytes || p->sample_interval_ns)
		gw_account_backlog(p, t);
	p->account_ns = t;
}

#endif
