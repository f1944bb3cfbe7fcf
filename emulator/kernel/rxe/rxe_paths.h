/* SPDX-License-Identifier: GPL-2.0 */
/*
 * rxe_paths.h	What a queue pair of rxe has for many paths.
 */
#ifndef _RXE_PATHS_H
#define _RXE_PATHS_H

#include "rxe_entropy.h"

struct rxe_qp;
struct rxe_pkt_info;

/*
 * Opcodes of MRC (OCP, 2026), which are among those that InfiniBand leaves to manufacturers. A probe
 * is a BTH alone. Its PSN is the value that it goes by, and that of its answer the same.
 */
#define RXE_TRIMMED_NACK	0xdd	/* as RXE_SELECTIVE_ACKNOWLEDGE, of a request that has lost its payload */
#define RXE_PROBE		0xde
#define RXE_PROBE_ANSWER	0xdf

struct rxe_paths {
	struct rxe_entropy	*entropy;	/* NULL: one path */
	u8			*value_of;	/* by PSN, of the last time that it was sent */
};

int rxe_paths_init(struct rxe_qp *qp);
void rxe_paths_free(struct rxe_qp *qp);

u16 rxe_paths_port(struct rxe_qp *qp, struct rxe_pkt_info *pkt);
void rxe_paths_marked(struct rxe_qp *qp, u32 psn);
void rxe_paths_lost(struct rxe_qp *qp, u32 psn);
void rxe_paths_probed(struct rxe_qp *qp, struct rxe_pkt_info *pkt);

#endif
