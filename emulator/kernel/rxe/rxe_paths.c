// SPDX-License-Identifier: GPL-2.0
/*
 * rxe_paths.c	Many paths of one queue pair: each packet leaves from the UDP port of an entropy
 * value, by which switches hash it.
 *
 * A sender keeps by which value each packet went. It hears of marks by the BECN bit of an
 * acknowledgement with a bitmap, and of losses by rxe_selective.c. Answers take their values from
 * the same turns as requests, as a queue pair knows of no other ones that its packets come through.
 */

#include "rxe.h"
#include "rxe_loc.h"

static void rxe_send_probe(struct rxe_qp *qp, int opcode, u32 value)
{
	struct rxe_pkt_info pkt = {};
	struct sk_buff *skb = rxe_prepare_ack_packet(qp, &pkt, opcode, 0, value, 0);

	if (skb && !rxe_xmit_packet(qp, &pkt, skb) && opcode == RXE_PROBE)
		rxe_counter_inc(to_rdev(qp->ibqp.device), RXE_CNT_PROBES);
}

/* The UDP port that a packet is sent from */
u16 rxe_paths_port(struct rxe_qp *qp, struct rxe_pkt_info *pkt)
{
	struct rxe_paths *p = &qp->congestion.paths;
	const struct rxe_entropy_settings *set = &qp->congestion.set.entropy;
	u32 value, probe = set->values;

	if (!p->entropy)
		return qp->src_port;
	value = pkt->opcode == RXE_PROBE ? pkt->psn :
		rxe_entropy_take(p->entropy, set, ktime_get_ns(), &probe);
	if (pkt->mask & RXE_REQ_MASK)
		p->value_of[pkt->psn % RXE_MAX_UNACKED_PSNS] = value;
	if (probe < set->values)
		rxe_send_probe(qp, RXE_PROBE, probe);
	return RXE_ROCE_V2_SPORT | ((qp->src_port + value) & 0x3fff);
}

/* A packet came, and was marked or trimmed on its way. */
void rxe_paths_marked(struct rxe_qp *qp, u32 psn)
{
	struct rxe_paths *p = &qp->congestion.paths;

	if (!p->entropy)
		return;
	rxe_entropy_marked(p->entropy, p->value_of[psn % RXE_MAX_UNACKED_PSNS]);
	rxe_counter_inc(to_rdev(qp->ibqp.device), RXE_CNT_PATHS_SKIPPED);
}

/* A packet did not come. */
void rxe_paths_lost(struct rxe_qp *qp, u32 psn)
{
	struct rxe_paths *p = &qp->congestion.paths;

	if (p->entropy && rxe_entropy_lost(p->entropy, &qp->congestion.set.entropy,
					   p->value_of[psn % RXE_MAX_UNACKED_PSNS],
					   ktime_get_ns()))
		rxe_counter_inc(to_rdev(qp->ibqp.device), RXE_CNT_PATHS_BAD);
}

/* A probe has come, or an answer to one. */
void rxe_paths_probed(struct rxe_qp *qp, struct rxe_pkt_info *pkt)
{
	struct rxe_paths *p = &qp->congestion.paths;

	if (!p->entropy || pkt->psn >= qp->congestion.set.entropy.values)
		return;
	if (pkt->opcode == RXE_PROBE)
		rxe_send_probe(qp, RXE_PROBE_ANSWER, pkt->psn);
	else
		rxe_entropy_answered(p->entropy, pkt->psn);
}

int rxe_paths_init(struct rxe_qp *qp)
{
	struct rxe_paths *p = &qp->congestion.paths;

	if (!qp->congestion.set.entropy.values || qp_type(qp) != IB_QPT_RC)
		return 0;
	p->entropy = kmalloc(sizeof(*p->entropy), GFP_KERNEL);
	p->value_of = kvzalloc(RXE_MAX_UNACKED_PSNS, GFP_KERNEL);
	if (!p->entropy || !p->value_of)
		return -ENOMEM;
	rxe_entropy_init(p->entropy);
	return 0;
}

void rxe_paths_free(struct rxe_qp *qp)
{
	struct rxe_paths *p = &qp->congestion.paths;

	kfree(p->entropy);
	kvfree(p->value_of);
	p->entropy = NULL;
	p->value_of = NULL;
}
