/* SPDX-License-Identifier: GPL-2.0 */
/*
 * rxe_rate.h	Controllers of a queue pair's rate, as pure functions in integers.
 *
 * The kernel has them beside rxe; tests compile the same files for user space. Times are
 * ns, rates bits/s of the wire; Q32 stands for a number times 2^32.
 *
 * Nothing here has a timer: a controller is brought up to a moment when somebody asks for
 * its rate, or when something happens.
 */
#ifndef _RXE_RATE_H
#define _RXE_RATE_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stdint.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;
#endif

#include "gwport_int.h"

#define RXE_ONE_Q32	(1ULL << 32)
#define RXE_NS_PER_S	1000000000ULL

enum rxe_rate_kind {
	RXE_RATE_FIXED,		/* line rate */
	RXE_RATE_DCQCN,
	RXE_RATE_TIMELY,
	RXE_RATE_HPCC,
	RXE_RATE_DCTCP,		/* line rate, and a window */
	RXE_RATE_NSCC,		/* the same */
	__RXE_RATE_KINDS
};

/* All of them 64 bits: user space writes them by name, see rxe_congestion.c */
struct rxe_rate_settings {
	u64	kind;			/* enum rxe_rate_kind */
	u64	line_bps;
	u64	min_bps;
	u64	additive_bps;
	u64	hyper_bps;

	u64	cnp_interval_ns;	/* DCQCN: at the receiver, between two CNPs */
	u64	alpha_interval_ns;
	u64	decrease_interval_ns;
	u64	increase_interval_ns;
	u64	gain_q32;		/* .. and DCTCP */
	u64	fast_stages;
	u64	clamp_target;

	u64	rtt_min_ns;		/* TIMELY */
	u64	rtt_low_ns;
	u64	rtt_high_ns;
	u64	ewma_q32;
	u64	beta_q32;
	u64	hyper_after;

	u64	base_rtt_ns;		/* HPCC, NSCC */
	u64	target_q32;
	u64	max_stage;

	u64	target_delay_ns;	/* NSCC: in queues */
	u64	scale_q16;
};

/* a * q, of a below 2^44 and q at most 1 */
static inline u64 rxe_mul_q32(u64 a, u64 q32)
{
	return (a >> 32) * q32 + ((a & 0xffffffff) * q32 >> 32);
}

static inline u64 rxe_clamp_rate(u64 rate_bps, const struct rxe_rate_settings *set)
{
	if (rate_bps < set->min_bps)
		return set->min_bps;
	return rate_bps > set->line_bps ? set->line_bps : rate_bps;
}

struct rxe_dcqcn {
	u64	rate_bps;
	u64	target_bps;
	u64	alpha_q32;
	u64	next_alpha_ns;
	u64	next_decrease_ns;
	u64	next_increase_ns;
	u32	stage;			/* increases since the last decrease */
	u8	active;			/* there has been a CNP */
	u8	cnp_for_alpha;
	u8	cnp_for_decrease;
};

void rxe_dcqcn_init(struct rxe_dcqcn *s, const struct rxe_rate_settings *set);
void rxe_dcqcn_advance(struct rxe_dcqcn *s, const struct rxe_rate_settings *set, u64 now_ns);
void rxe_dcqcn_cnp(struct rxe_dcqcn *s, const struct rxe_rate_settings *set, u64 now_ns);

struct rxe_timely {
	u64	rate_bps;
	u64	previous_rtt_ns;	/* 0: none yet */
	s64	difference_q16;		/* of ns */
	u32	increases;		/* in a row */
};

void rxe_timely_init(struct rxe_timely *s, const struct rxe_rate_settings *set);
void rxe_timely_rtt(struct rxe_timely *s, const struct rxe_rate_settings *set, u64 rtt_ns);

struct rxe_hpcc {
	u64	rate_bps;
	u64	reference_bps;		/* of the last round */
	u64	utilisation_q20;
	u32	stage;
	u32	hops;
	u8	hop_valid;
	struct gw_int_hop last[GW_INT_MAX_HOPS];
};

void rxe_hpcc_init(struct rxe_hpcc *s, const struct rxe_rate_settings *set);
void rxe_hpcc_ack(struct rxe_hpcc *s, const struct rxe_rate_settings *set,
		  const struct gw_int_hop *hops, u32 n, bool round_over);

struct rxe_dctcp {
	u64	window_bytes;
	u64	alpha_q32;
	u32	acked;			/* packets of this round */
	u32	marked;
	u8	reduced;		/* .. and one of them was */
};

void rxe_dctcp_init(struct rxe_dctcp *s, u64 window_bytes);
void rxe_dctcp_ack(struct rxe_dctcp *s, const struct rxe_rate_settings *set, u64 packet_bytes,
		   bool marked, bool round_over);

/* With more than these its sums would leave 64 bits */
#define RXE_NSCC_MOST_DELAY_NS	100000000ULL
#define RXE_NSCC_MOST_SCALE_Q16	(1024ULL << 16)

struct rxe_nscc {
	u64	window_bytes;
	s64	average_q8;		/* ns of waiting */
	u64	increase;		/* square bytes: by the window it is what is added to that */
	u64	adjust_bytes;		/* acknowledged since the window was adjusted */
	u64	adjusted_ns;
	u64	shrank_ns;
	u64	fast_bytes;		/* acknowledged without waiting */
	u64	round_bytes;		/* acknowledged in this round */
	u64	round_ends_ns;		/* 0: none has begun */
	u64	ignore_bytes;		/* under way when the window became what a round had brought */
	u64	ignored_bytes;
	u8	fast;			/* it grows so */
	u8	trimmed;		/* a packet was */
};

/* As much as is known when a queue pair hears of its packets */
struct rxe_nscc_heard {
	u64	now_ns;
	u64	packet_bytes;		/* the most of one */
	u64	most_bytes;		/* of the window */
	u64	acked_bytes;		/* that are known to have come since */
	u64	flight_bytes;		/* on their way */
};

void rxe_nscc_init(struct rxe_nscc *s, u64 window_bytes);
void rxe_nscc_acked(struct rxe_nscc *s, const struct rxe_rate_settings *set,
		    const struct rxe_nscc_heard *h, u64 rtt_ns, bool marked);
void rxe_nscc_trimmed(struct rxe_nscc *s, const struct rxe_rate_settings *set,
		      const struct rxe_nscc_heard *h);
void rxe_nscc_lost(struct rxe_nscc *s, u64 packet_bytes);

#endif
