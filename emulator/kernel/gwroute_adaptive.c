// SPDX-License-Identifier: GPL-2.0
/*
 * gwroute_adaptive.c	A flow takes the hop with the shortest queue. It moves to another when its own
 * has grown longer than the shortest by a threshold, but not before it has been there for a
 * while; and after a pause as long as that to the shortest, whatever its own is.
 */

#include "gwroute.h"

u32 gwroute_adaptive(struct gwroute_state *s, const struct gwroute_hops *hops, u64 key, u64 now)
{
	struct gwroute_flow *flow = &s->flows[key % GWROUTE_FLOWS];
	u32 hop = gwroute_position(s, hops, flow);
	u32 other = hop;

	if (hop == hops->count || now - flow->last_ns > s->set.hold_ns) {
		other = gwroute_least(s, hops);
	} else if (now - flow->moved_ns >= s->set.hold_ns) {
		u32 least = gwroute_least(s, hops);

		if (hops->load(hops->of, hop) >
		    hops->load(hops->of, least) + 2 * s->set.threshold_bytes)
			other = least;
	}
	if (other != hop) {
		s->moves += flow->hop != 0;
		flow->hop = hops->id[other] + 1;
		flow->moved_ns = now;
	}
	flow->last_ns = now;
	return other;
}
