/* SPDX-License-Identifier: GPL-2.0 */
/*
 * rxe_selective.h	What a queue pair of rxe has for selective repeat.
 */
#ifndef _RXE_SELECTIVE_H
#define _RXE_SELECTIVE_H

#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/skbuff.h>
#include <linux/xarray.h>

struct rxe_qp;
struct rxe_pkt_info;

/*
 * Opcodes that InfiniBand leaves to manufacturers (volume 1, 9.2: 110 and 111 in the upper three
 * bits). They are RC's, with 0xc0: WRITEs whose middle and last packets have a RETH, too, and an
 * acknowledgement that has a bitmap behind its AETH.
 */
#define RXE_SELECTIVE_TYPE		0xc0
#define RXE_SELECTIVE_WRITE_MIDDLE	(RXE_SELECTIVE_TYPE | IB_OPCODE_RC_RDMA_WRITE_MIDDLE)
#define RXE_SELECTIVE_WRITE_LAST	(RXE_SELECTIVE_TYPE | IB_OPCODE_RC_RDMA_WRITE_LAST)
#define RXE_SELECTIVE_WRITE_LAST_IMM \
	(RXE_SELECTIVE_TYPE | IB_OPCODE_RC_RDMA_WRITE_LAST_WITH_IMMEDIATE)
#define RXE_SELECTIVE_ACKNOWLEDGE	(RXE_SELECTIVE_TYPE | IB_OPCODE_RC_ACKNOWLEDGE)

/* The opcode of RC that one of these stands for; any other is itself */
static inline int rxe_base_opcode(int opcode)
{
	return (opcode & 0xe0) == RXE_SELECTIVE_TYPE ? opcode & 0x1f : opcode;
}

/* Behind the AETH of an acknowledgement with a bitmap */
struct rxe_sack {
	__be32	answers;	/* PSN of the packet that is answered */
	__be32	came[2];	/* bit n: PSN answers - n has come; the upper half first */
};

#define RXE_SACK_PACKETS	64

struct rxe_selective {
	bool			on;
	u64			reordering_ns;

	/*
	 * Requester. A packet that was sent below known_psn is acknowledged, or is a hole. A hole waits,
	 * from when a packet that was sent after it had come, for as long as packets may overtake
	 * each other; then it is lost, and sent again; then it is sent. Each list is in order.
	 */
	struct xarray		holes;
	u32			hole_count;
	u32			known_psn;
	struct list_head	waiting, lost, sent;
	struct hrtimer		timer;
	bool			go_back;	/* the next retry is a go-back */
	bool			timed_out;	/* and nothing was heard since */

	/* Responder: packets that came before their turn */
	struct xarray		early;
	bool			caught_up;	/* some of them have had their turn since the last ACK */
};

void rxe_selective_init(struct rxe_qp *qp, u64 on, u64 reordering_ns);
void rxe_selective_stop(struct rxe_qp *qp);
void rxe_selective_forget(struct rxe_qp *qp);

int rxe_selective_opcode(struct rxe_qp *qp, int opcode);
u32 rxe_selective_flight(struct rxe_qp *qp);
bool rxe_selective_full(struct rxe_qp *qp, u32 window);
bool rxe_selective_lost(struct rxe_qp *qp, u32 *psn);
void rxe_selective_sent_again(struct rxe_qp *qp);
bool rxe_selective_retry(struct rxe_qp *qp);
u32 rxe_selective_answers(struct rxe_pkt_info *pkt);
bool rxe_selective_knows(struct rxe_qp *qp, u32 psn);
bool rxe_selective_acked(struct rxe_qp *qp, struct rxe_pkt_info *pkt);

bool rxe_selective_early(struct rxe_qp *qp, struct rxe_pkt_info *pkt);
void rxe_selective_next(struct rxe_qp *qp);
void rxe_selective_drain(struct rxe_qp *qp);
void rxe_selective_trimmed(struct rxe_qp *qp, struct rxe_pkt_info *pkt);
void rxe_selective_answer(struct rxe_qp *qp, struct rxe_pkt_info *pkt);

#endif
