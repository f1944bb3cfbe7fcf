// SPDX-License-Identifier: GPL-2.0
/*
 * gwroute_choose.c	One of several next hops: by chance, in turn, the one with the shorter queue of
 * two that chance names (Mitzenmacher 2001), or the one with the shortest of all. Chance
 * takes one of equal ones, so that switches which see the same do not do the same.
 */

#include "gwroute.h"

/* From the first choice on, with the settings at hand */
void gwroute_begin(struct gwroute_state *s)
{
	s->random = s->set.seed;
	s->last_ns = 0;
	s->began_ns = 0;
	s->choices = 0;
	s->moves = 0;
}

/* A number below count */
u32 gwroute_below(struct gwroute_state *s, u32 count)
{
	u64 drawn = gwroute_mix(s->random);

	s->random += 0x9e3779b97f4a7c15ULL;
	return (drawn >> 32) * count >> 32;
}

u32 gwroute_least(struct gwroute_state *s, const struct gwroute_hops *hops)
{
	u32 least[GWROUTE_MOST_HOPS], found = 0, i;
	u64 load = 0;

	for (i = 0; i < hops->count; i++) {
		u64 own = hops->load(hops->of, i);

		if (!found || own < load) {
			load = own;
			found = 0;
		}
		if (own == load)
			least[found++] = i;
	}
	return least[found > 1 ? gwroute_below(s, found) : 0];
}

/* Switches begin at hops of their own */
static u32 gwroute_in_turn(struct gwroute_state *s, const struct gwroute_hops *hops)
{
	struct gwroute_turn *turn = hops->turn;

	if (turn->began_ns != s->began_ns) {
		turn->began_ns = s->began_ns;
		turn->count = 0;
	}
	return (turn->count++ + gwroute_mix(s->set.seed) % hops->count) % hops->count;
}

u32 gwroute_choose(struct gwroute_state *s, const struct gwroute_hops *hops)
{
	u32 first, second;

	switch (s->set.by) {
	case GWROUTE_ROUND_ROBIN:
		return gwroute_in_turn(s, hops);
	case GWROUTE_LEAST_OF_TWO:
		first = gwroute_below(s, hops->count);
		second = gwroute_below(s, hops->count - 1);
		second += second >= first;
		return hops->load(hops->of, second) < hops->load(hops->of, first) ? second : first;
	case GWROUTE_LEAST:
		return gwroute_least(s, hops);
	default:
		return gwroute_below(s, hops->count);
	}
}

/* The place of the hop that a flow has, or count: it has none of these */
u32 gwroute_position(const struct gwroute_state *s, const struct gwroute_hops *hops,
		     const struct gwroute_flow *flow)
{
	u32 i;

	for (i = 0; flow->hop && flow->last_ns >= s->began_ns && i < hops->count; i++)
		if (hops->id[i] + 1 == flow->hop)
			return i;
	return hops->count;
}

u32 gwroute_take(struct gwroute_state *s, const struct gwroute_hops *hops, u64 key, u64 now)
{
	if (now - s->last_ns > GWROUTE_REST_NS) {
		s->began_ns = now;
		s->random = s->set.seed;
	}
	s->last_ns = now;
	s->choices++;
	switch (s->set.kind) {
	case GWROUTE_FLOWLET:
		return gwroute_flowlet(s, hops, key, now);
	case GWROUTE_ADAPTIVE:
		return gwroute_adaptive(s, hops, key, now);
	case GWROUTE_SOURCE:
		return gwroute_source(s, hops);
	default:
		return gwroute_spray(s, hops, key, now);
	}
}
