// SPDX-License-Identifier: GPL-2.0
/*
 * rxe_hpcc.c	HPCC (Li et al., SIGCOMM 2019): a rate by the fullest link of the path, as its
 * ports have written it into the packet that is acknowledged.
 *
 * The window W of the paper is the line rate times the base RTT; a link of B bits/s with q
 * bytes waiting is so full: rate / B + 8 q / (B T).
 */

#include "rxe_rate.h"

void rxe_hpcc_init(struct rxe_hpcc *s, const struct rxe_rate_settings *set)
{
	*s = (struct rxe_hpcc) {
		.rate_bps = set->line_bps,
		.reference_bps = set->line_bps,
		.utilisation_q20 = 1 << 20,
	};
}

/* The utilisation of one hop between two acknowledgements; sets how much time was between them */
static u64 rxe_hpcc_hop(const struct gw_int_hop *old, const struct gw_int_hop *new, u64 base_rtt_ns,
			u64 *between_ns)
{
	u64 link_bps = (u64)new->rate_100mbps * 100000000;
	u64 ns = (u32)(new->time_ns - old->time_ns);
	u64 bytes = (u32)(new->tx_bytes - old->tx_bytes);
	u64 queue_bytes = old->queue < new->queue ? old->queue : new->queue;
	u64 sent_bps, queued_bps;

	*between_ns = ns;
	if (!ns || !link_bps || ns > RXE_NS_PER_S)
		return 0;
	sent_bps = (bytes < 1ULL << 31 ? bytes : 1ULL << 31) * 8 * RXE_NS_PER_S / ns;
	queued_bps = queue_bytes * GW_INT_QUEUE_UNIT * 8 * RXE_NS_PER_S / base_rtt_ns;
	if (sent_bps + queued_bps > 1ULL << 43)
		return 1ULL << 30;
	return ((sent_bps + queued_bps) << 20) / link_bps;
}

void rxe_hpcc_ack(struct rxe_hpcc *s, const struct rxe_rate_settings *set,
		  const struct gw_int_hop *hops, u32 n, bool round_over)
{
	u64 fullest_q20 = 0, tau_ns = 0, c_q20, rate;
	bool known = s->hop_valid && s->hops == n;
	u32 i;

	for (i = 0; i < n && i < GW_INT_MAX_HOPS; i++) {
		u64 ns, full_q20;

		if (known) {
			full_q20 = rxe_hpcc_hop(&s->last[i], &hops[i], set->base_rtt_ns, &ns);
			if (full_q20 > fullest_q20) {
				fullest_q20 = full_q20;
				tau_ns = ns;
			}
		}
		s->last[i] = hops[i];
	}
	s->hops = n;
	s->hop_valid = true;
	if (!known || !tau_ns)
		return;
	if (tau_ns > set->base_rtt_ns)
		tau_ns = set->base_rtt_ns;
	s->utilisation_q20 = (s->utilisation_q20 * (set->base_rtt_ns - tau_ns) +
			      fullest_q20 * tau_ns) / set->base_rtt_ns;

	c_q20 = (s->utilisation_q20 << 32) / set->target_q32;
	if (c_q20 >= 1 << 20 || s->stage >= set->max_stage) {
		rate = (s->reference_bps << 20) / (c_q20 ? c_q20 : 1) + set->additive_bps;
		if (round_over)
			s->stage = 0;
	} else {
		rate = s->reference_bps + set->additive_bps;
		if (round_over)
			s->stage++;
	}
	s->rate_bps = rxe_clamp_rate(rate, set);
	if (round_over)
		s->reference_bps = s->rate_bps;
}
