// SPDX-License-Identifier: GPL-2.0
/*
 * rxe_entropy.c	Entropy values of a queue pair: each packet takes one, by turns.
 *
 * The states are those of MRC (OCP Multipath Reliable Connection 1.0; mrc_ctl.h of its repository
 * has GOOD, ASSUMED_BAD and ev_min_active): a value whose packet was marked or trimmed is skipped
 * once; one whose packet was lost is assumed to be bad, and probed until an answer comes.
 */

#include "rxe_entropy.h"

void rxe_entropy_init(struct rxe_entropy *e)
{
	u32 value;

	e->next = e->bad = 0;
	for (value = 0; value < RXE_ENTROPY_MOST; value++) {
		e->skipped[value] = false;
		e->probe_ns[value] = 0;
	}
}

/*
 * The value of the next packet. *probe: one that is to be probed now; the number of all values
 * where there is none.
 */
u32 rxe_entropy_take(struct rxe_entropy *e, const struct rxe_entropy_settings *set, u64 now,
		     u32 *probe)
{
	u32 value = e->next, left;

	*probe = set->values;
	for (left = 2 * set->values; left; left--) {
		value = e->next;
		e->next = value + 1 == set->values ? 0 : value + 1;
		if (e->probe_ns[value]) {
			if (*probe == set->values && now >= e->probe_ns[value]) {
				*probe = value;
				e->probe_ns[value] = now + set->probe_interval_ns;
			}
		} else if (e->skipped[value]) {
			e->skipped[value] = false;
		} else {
			break;
		}
	}
	return value;
}

/* A packet met a queue on its way. */
void rxe_entropy_marked(struct rxe_entropy *e, u32 value)
{
	e->skipped[value] = true;
}

/* A packet was lost. Whether its value is assumed to be bad since then. */
bool rxe_entropy_lost(struct rxe_entropy *e, const struct rxe_entropy_settings *set, u32 value,
		      u64 now)
{
	if (e->probe_ns[value] || e->bad + set->least >= set->values)
		return false;
	e->bad++;
	e->probe_ns[value] = now + set->probe_interval_ns;
	return true;
}

/* A probe has come back. */
void rxe_entropy_answered(struct rxe_entropy *e, u32 value)
{
	if (!e->probe_ns[value])
		return;
	e->bad--;
	e->probe_ns[value] = 0;
}
