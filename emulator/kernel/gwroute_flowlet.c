// SPDX-License-Identifier: GPL-2.0
/*
 * gwroute_flowlet.c	A flow keeps its way until it pauses (Vanini et al., NSDI 2017): if the
 * pause is longer than what the ways differ by, nothing is overtaken.
 */

#include "gwroute.h"

u32 gwroute_flowlet(struct gwroute_state *s, const struct gwroute_hops *hops, u64 key, u64 now)
{
	struct gwroute_flow *flow = &s->flows[key % GWROUTE_FLOWS];
	u32 hop = gwroute_position(s, hops, flow);

	if (hop == hops->count || now - flow->last_ns > s->set.gap_ns) {
		hop = gwroute_choose(s, hops);
		s->moves += flow->hop && flow->hop != hops->id[hop] + 1;
		flow->hop = hops->id[hop] + 1;
		flow->moved_ns = now;
	}
	flow->last_ns = now;
	return hop;
}
