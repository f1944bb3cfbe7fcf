// SPDX-License-Identifier: GPL-2.0
/*
 * gwroute_source.c	A packet says its path: its number has a digit for each layer of switches, in
 * the base of how many hops these have. Senders take paths by turns by counting up.
 */

#include "gwroute.h"

u32 gwroute_source(const struct gwroute_state *s, const struct gwroute_hops *hops)
{
	u32 stride = s->set.stride ? s->set.stride : 1;

	return hops->number / stride % hops->count;
}
