// SPDX-License-Identifier: GPL-2.0
/*
 * rxe_timely.c	TIMELY (Mittal et al., SIGCOMM 2015): a rate by the gradient of the RTT,
 * from the end of a packet's serialisation to its acknowledgement, once a round.
 */

#include "rxe_rate.h"

#define RXE_LONGEST_RTT_NS	RXE_NS_PER_S

void rxe_timely_init(struct rxe_timely *s, const struct rxe_rate_settings *set)
{
	*s = (struct rxe_timely) { .rate_bps = set->line_bps };
}

static void rxe_timely_increase(struct rxe_timely *s, const struct rxe_rate_settings *set)
{
	bool hyper = ++s->increases > set->hyper_after;

	s->rate_bps = rxe_clamp_rate(s->rate_bps + (hyper ? set->hyper_bps : set->additive_bps),
				     set);
}

/* R (1 - beta x); x may be more than 1 */
static void rxe_timely_decrease(struct rxe_timely *s, const struct rxe_rate_settings *set,
				u64 x_q32)
{
	u64 part = rxe_mul_q32(x_q32, set->beta_q32);

	s->increases = 0;
	s->rate_bps = part < RXE_ONE_Q32 ? rxe_mul_q32(s->rate_bps, RXE_ONE_Q32 - part) : 0;
	s->rate_bps = rxe_clamp_rate(s->rate_bps, set);
}

void rxe_timely_rtt(struct rxe_timely *s, const struct rxe_rate_settings *set, u64 rtt_ns)
{
	s64 new_q16;

	if (rtt_ns > RXE_LONGEST_RTT_NS)
		rtt_ns = RXE_LONGEST_RTT_NS;
	if (!s->previous_rtt_ns) {
		s->previous_rtt_ns = rtt_ns;
		return;
	}
	new_q16 = ((s64)rtt_ns - (s64)s->previous_rtt_ns) * 65536;
	s->difference_q16 += (new_q16 - s->difference_q16) / 65536 * (s64)(set->ewma_q32 >> 16) +
			     (new_q16 - s->difference_q16) % 65536 * (s64)(set->ewma_q32 >> 16) /
			     65536;
	s->previous_rtt_ns = rtt_ns;

	if (rtt_ns < set->rtt_low_ns)
		rxe_timely_increase(s, set);
	else if (rtt_ns > set->rtt_high_ns)
		rxe_timely_decrease(s, set,
				    RXE_ONE_Q32 - (set->rtt_high_ns << 32) / rtt_ns);
	else if (s->difference_q16 <= 0)
		rxe_timely_increase(s, set);
	else
		rxe_timely_decrease(s, set, ((u64)s->difference_q16 << 16) / set->rtt_min_ns);
}
