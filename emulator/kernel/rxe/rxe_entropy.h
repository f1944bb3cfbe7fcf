/* SPDX-License-Identifier: GPL-2.0 */
/*
 * rxe_entropy.h	Which entropy value the next packet of a queue pair takes, as pure functions.
 *
 * The kernel has it beside rxe; the packet engine and tests compile the same file for user space.
 */
#ifndef _RXE_ENTROPY_H
#define _RXE_ENTROPY_H

#include "rxe_rate.h"

#define RXE_ENTROPY_MOST	256

/* All of them 64 bits, as in rxe_rate.h */
struct rxe_entropy_settings {
	u64	values;		/* 0: a queue pair sends from one port */
	u64	least;		/* so many values are never assumed to be bad */
	u64	probe_interval_ns;
};

/*
 * A value is good, is skipped at its next turn, or is assumed to be bad until an answer to a probe
 * has come over it.
 */
struct rxe_entropy {
	u32	next;
	u32	bad;				/* how many are */
	bool	skipped[RXE_ENTROPY_MOST];
	u64	probe_ns[RXE_ENTROPY_MOST];	/* when a bad one is probed next; 0: it is not bad */
};

void rxe_entropy_init(struct rxe_entropy *e);
u32 rxe_entropy_take(struct rxe_entropy *e, const struct rxe_entropy_settings *set, u64 now,
		     u32 *probe);
void rxe_entropy_marked(struct rxe_entropy *e, u32 value);
bool rxe_entropy_lost(struct rxe_entropy *e, const struct rxe_entropy_settings *set, u32 value,
		      u64 now);
void rxe_entropy_answered(struct rxe_entropy *e, u32 value);

#endif
