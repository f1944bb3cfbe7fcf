// SPDX-License-Identifier: GPL-2.0
/* gwroute_spray.c	Each packet goes its own way (Dixit et al., INFOCOM 2013). */

#include "gwroute.h"

u32 gwroute_spray(struct gwroute_state *s, const struct gwroute_hops *hops, u64 key, u64 now)
{
	return gwroute_choose(s, hops);
}
