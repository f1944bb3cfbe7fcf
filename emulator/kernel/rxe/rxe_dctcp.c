// SPDX-License-Identifier: GPL-2.0
/*
 * rxe_dctcp.c	DCTCP (Alizadeh et al., SIGCOMM 2010; RFC 8257) for a queue pair: a window by the
 * share of packets that were marked.
 *
 * Each packet is acknowledged, and its acknowledgement says whether it was marked. Alpha is
 * brought up to date once a round. The first mark of a round takes alpha / 2 of the window;
 * a round without one adds a packet. As Linux has it (tcp_dctcp.c), alpha begins as 1.
 */

#include "rxe_rate.h"

void rxe_dctcp_init(struct rxe_dctcp *s, u64 window_bytes)
{
	*s = (struct rxe_dctcp) {
		.window_bytes = window_bytes,
		.alpha_q32 = RXE_ONE_Q32,
	};
}

/* A packet of so many bytes at most is acknowledged; round_over: all that were under way when the
 * round began are */
void rxe_dctcp_ack(struct rxe_dctcp *s, const struct rxe_rate_settings *set, u64 packet_bytes,
		   bool marked, bool round_over)
{
	u64 share_q32;

	s->acked++;
	s->marked += marked;
	if (marked && !s->reduced) {
		s->window_bytes = rxe_mul_q32(s->window_bytes, RXE_ONE_Q32 - s->alpha_q32 / 2);
		if (s->window_bytes < packet_bytes)
			s->window_bytes = packet_bytes;
		s->reduced = true;
	}
	if (!round_over)
		return;
	share_q32 = ((u64)s->marked << 32) / s->acked;
	s->alpha_q32 = rxe_mul_q32(s->alpha_q32, RXE_ONE_Q32 - set->gain_q32) +
		       rxe_mul_q32(share_q32, set->gain_q32);
	if (s->alpha_q32 > RXE_ONE_Q32)
		s->alpha_q32 = RXE_ONE_Q32;
	if (!s->reduced)
		s->window_bytes += packet_bytes;
	s->acked = s->marked = 0;
	s->reduced = false;
}
