// SPDX-License-Identifier: GPL-2.0
/*
 * rxe_dcqcn.c	DCQCN's reaction point (Zhu et al., SIGCOMM 2015), by timers alone, with
 * alpha, decrease and increase each on a clock of its own, as network cards have it.
 *
 * The first CNP starts the clocks, with alpha 1. At the same moment alpha goes first, then
 * the decrease, then the increase. A decrease starts the increase's clock again.
 */

#include "rxe_rate.h"

void rxe_dcqcn_init(struct rxe_dcqcn *s, const struct rxe_rate_settings *set)
{
	*s = (struct rxe_dcqcn) {
		.rate_bps = set->line_bps,
		.target_bps = set->line_bps,
	};
}

static void rxe_dcqcn_decrease(struct rxe_dcqcn *s, const struct rxe_rate_settings *set)
{
	if (set->clamp_target || s->stage)
		s->target_bps = s->rate_bps;
	s->rate_bps = rxe_clamp_rate(rxe_mul_q32(s->rate_bps, RXE_ONE_Q32 - s->alpha_q32 / 2),
				     set);
	s->stage = 0;
}

/* Fast recovery, then additive, then hyper increase */
static void rxe_dcqcn_increase(struct rxe_dcqcn *s, const struct rxe_rate_settings *set)
{
	if (s->stage == set->fast_stages)
		s->target_bps = rxe_clamp_rate(s->target_bps + set->additive_bps, set);
	else if (s->stage > set->fast_stages)
		s->target_bps = rxe_clamp_rate(s->target_bps + set->hyper_bps, set);
	s->rate_bps = (s->rate_bps + s->target_bps + 1) / 2;
	if (s->stage <= set->fast_stages)
		s->stage++;
}

/* The first tick after now of a clock whose ticks until now change nothing */
static u64 rxe_skip(u64 next_ns, u64 interval_ns, u64 now_ns)
{
	return next_ns + ((now_ns - next_ns) / interval_ns + 1) * interval_ns;
}

void rxe_dcqcn_advance(struct rxe_dcqcn *s, const struct rxe_rate_settings *set, u64 now_ns)
{
	while (s->active) {
		if (s->next_alpha_ns <= now_ns && s->next_alpha_ns <= s->next_decrease_ns &&
		    s->next_alpha_ns <= s->next_increase_ns) {
			if (!s->alpha_q32 && !s->cnp_for_alpha) {
				s->next_alpha_ns = rxe_skip(s->next_alpha_ns,
							    set->alpha_interval_ns, now_ns);
				continue;
			}
			s->alpha_q32 = rxe_mul_q32(s->alpha_q32, RXE_ONE_Q32 - set->gain_q32);
			if (s->cnp_for_alpha)
				s->alpha_q32 += set->gain_q32;
			s->cnp_for_alpha = false;
			s->next_alpha_ns += set->alpha_interval_ns;
		} else if (s->next_decrease_ns <= now_ns &&
			   s->next_decrease_ns <= s->next_increase_ns) {
			if (s->cnp_for_decrease) {
				rxe_dcqcn_decrease(s, set);
				s->cnp_for_decrease = false;
				s->next_increase_ns =
					s->next_decrease_ns + set->increase_interval_ns;
				s->next_decrease_ns += set->decrease_interval_ns;
			} else {
				s->next_decrease_ns = rxe_skip(s->next_decrease_ns,
							       set->decrease_interval_ns, now_ns);
			}
		} else if (s->next_increase_ns <= now_ns) {
			if (s->rate_bps == set->line_bps && s->stage > set->fast_stages) {
				s->next_increase_ns = rxe_skip(s->next_increase_ns,
							       set->increase_interval_ns, now_ns);
				continue;
			}
			rxe_dcqcn_increase(s, set);
			s->next_increase_ns += set->increase_interval_ns;
		} else {
			break;
		}
	}
}

void rxe_dcqcn_cnp(struct rxe_dcqcn *s, const struct rxe_rate_settings *set, u64 now_ns)
{
	rxe_dcqcn_advance(s, set, now_ns);
	s->cnp_for_decrease = true;
	s->cnp_for_alpha = s->active;
	if (s->active)
		return;
	s->active = true;
	s->alpha_q32 = RXE_ONE_Q32;
	s->next_alpha_ns = now_ns + set->alpha_interval_ns;
	s->next_decrease_ns = now_ns + set->decrease_interval_ns;
	s->next_increase_ns = now_ns + set->increase_interval_ns;
}
