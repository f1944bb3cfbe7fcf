// SPDX-License-Identifier: GPL-2.0
/*
 * rxe_nscc.c	NSCC, the congestion control of Ultra Ethernet 1.0 at the sender, for a queue pair of
 * many paths: a window by whether a packet was marked, and by how long it had waited.
 *
 *	marked	waited		the window
 *	no	below target	grows by the distance to the target; fast after a window without waiting
 *	no	above target	grows by a little, for each the same
 *	yes	below target	stays: another path will do
 *	yes	above target	shrinks by what is above the target, once a round, to half at most
 *
 * Each round it grows by a little besides. A trimmed packet takes itself from the window, and where
 * a round has brought an eighth of the most or less, the window becomes what it has brought (quick
 * adapt); what was under way then is not heeded.
 *
 * Rules and constants are those of htsim's model (uec.cpp of Broadcom/csg-htsim, whose authors wrote
 * NSCC), in integers: gamma 0.8, averages of 1/80, increases of 4, 5 and 0.15 packets, all times
 * `scale`, the product of rate and base RTT by that of 100 Gb/s and 12 us.
 */

#include "rxe_rate.h"

#define RXE_REFERENCE_RTT_NS	12000
#define RXE_NO_WAIT_NS		1000	/* the window grows fast below it */
#define RXE_ADJUST_PACKETS	8
#define RXE_ADAPT_SHIFT		3	/* quick adapt: below an eighth of the most */

void rxe_nscc_init(struct rxe_nscc *s, u64 window_bytes)
{
	*s = (struct rxe_nscc) { .window_bytes = window_bytes };
}

static void rxe_nscc_bound(struct rxe_nscc *s, const struct rxe_nscc_heard *h)
{
	if (s->window_bytes > h->most_bytes)
		s->window_bytes = h->most_bytes;
	if (s->window_bytes < h->packet_bytes)
		s->window_bytes = h->packet_bytes;
}

static void rxe_nscc_average(struct rxe_nscc *s, u64 waited_ns)
{
	s->average_q8 += ((s64)(waited_ns << 8) - s->average_q8) / 80;
}

/* Whether the window is what a round has brought, or this packet was under way when it became that */
static bool rxe_nscc_adapts(struct rxe_nscc *s, const struct rxe_rate_settings *set,
			    const struct rxe_nscc_heard *h, bool marked, u64 waited_ns)
{
	bool done = false;

	if (s->ignored_bytes < s->ignore_bytes && marked) {
		done = true;
	} else if (h->now_ns > s->round_ends_ns) {
		if (s->round_ends_ns && (s->trimmed || waited_ns > 4 * set->target_delay_ns) &&
		    s->round_bytes < h->most_bytes >> RXE_ADAPT_SHIFT) {
			s->window_bytes = s->round_bytes;
			rxe_nscc_bound(s, h);
			s->ignore_bytes = h->flight_bytes;
			s->ignored_bytes = 0;
			s->trimmed = false;
			done = true;
		}
		s->round_bytes = 0;
		s->round_ends_ns = h->now_ns + set->base_rtt_ns + set->target_delay_ns;
	}
	if (done)
		s->increase = s->adjust_bytes = 0;
	return done;
}

/* Packets, times the settings' scale */
static u64 rxe_nscc_packets(const struct rxe_rate_settings *set, const struct rxe_nscc_heard *h,
			    u64 hundredths)
{
	return (h->packet_bytes * hundredths / 100 * set->scale_q16) >> 16;
}

static bool rxe_nscc_grows_fast(struct rxe_nscc *s, const struct rxe_nscc_heard *h,
				u64 waited_ns)
{
	if (waited_ns >= RXE_NO_WAIT_NS) {
		s->fast_bytes = 0;
		return false;
	}
	s->fast_bytes += h->acked_bytes;
	return s->fast || s->fast_bytes > s->window_bytes;
}

/* So many bytes are acknowledged; the packet that is answered came back after rtt_ns (0: unknown) */
void rxe_nscc_acked(struct rxe_nscc *s, const struct rxe_rate_settings *set,
		    const struct rxe_nscc_heard *h, u64 rtt_ns, bool marked)
{
	u64 waited_ns = rtt_ns > set->base_rtt_ns ? rtt_ns - set->base_rtt_ns : 0, average_ns, kept_q16;

	s->round_bytes += h->acked_bytes;
	s->adjust_bytes += h->acked_bytes;
	s->ignored_bytes += h->acked_bytes;
	if (!rtt_ns)
		return;
	rxe_nscc_average(s, !marked && waited_ns > set->target_delay_ns ? set->base_rtt_ns / 4 :
									  waited_ns);
	if (rxe_nscc_adapts(s, set, h, marked, waited_ns))
		return;
	if (!marked && waited_ns >= set->target_delay_ns) {
		s->increase += rxe_nscc_packets(set, h, 500) * h->acked_bytes;
	} else if (!marked) {
		s->fast = rxe_nscc_grows_fast(s, h, waited_ns);
		if (s->fast)
			s->window_bytes += (h->acked_bytes * set->scale_q16) >> 18;
		else
			s->increase += rxe_nscc_packets(set, h, 400) *
				       (set->target_delay_ns - waited_ns) / RXE_REFERENCE_RTT_NS *
				       h->acked_bytes;
	} else if (waited_ns >= set->target_delay_ns) {
		s->fast = false;
		s->fast_bytes = 0;
		average_ns = s->average_q8 > 0 ? (u64)s->average_q8 >> 8 : 0;
		if (average_ns > set->target_delay_ns &&
		    h->now_ns - s->shrank_ns > set->base_rtt_ns) {
			kept_q16 = 65536 - 52429 * (average_ns - set->target_delay_ns) / average_ns;
			if (kept_q16 < 32768)
				kept_q16 = 32768;
			s->window_bytes = (s->window_bytes * kept_q16) >> 16;
			s->shrank_ns = h->now_ns;
		}
	}
	rxe_nscc_bound(s, h);
	if (s->adjust_bytes > RXE_ADJUST_PACKETS * h->packet_bytes ||
	    h->now_ns - s->adjusted_ns > set->base_rtt_ns) {
		s->window_bytes += s->increase / s->window_bytes;
		if (h->now_ns - s->adjusted_ns >= set->base_rtt_ns) {
			s->window_bytes += rxe_nscc_packets(set, h, 15);
			s->adjusted_ns = h->now_ns;
		}
		s->increase = s->adjust_bytes = 0;
		rxe_nscc_bound(s, h);
	}
}

/* A packet was trimmed on its way. */
void rxe_nscc_trimmed(struct rxe_nscc *s, const struct rxe_rate_settings *set,
		      const struct rxe_nscc_heard *h)
{
	s->round_bytes += h->acked_bytes;
	s->adjust_bytes += h->acked_bytes;
	s->ignored_bytes += h->acked_bytes + h->packet_bytes;
	rxe_nscc_average(s, set->base_rtt_ns);
	s->trimmed = true;
	if (!rxe_nscc_adapts(s, set, h, true, 0))
		rxe_nscc_lost(s, h->packet_bytes);
}

/* A packet of so many bytes is sent again. */
void rxe_nscc_lost(struct rxe_nscc *s, u64 packet_bytes)
{
	s->window_bytes = s->window_bytes > 2 * packet_bytes ? s->window_bytes - packet_bytes :
							       packet_bytes;
}
