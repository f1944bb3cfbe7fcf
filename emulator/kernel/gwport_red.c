// SPDX-License-Identifier: GPL-2.0
/*
 * gwport_red.c	Random early detection (Floyd and Jacobson 1993).
 *
 * The average moves with every arrival, and while the port is idle as if small packets
 * had found it empty. Marking is by an independent draw per packet, as switches do for
 * DCQCN (Zhu et al., SIGCOMM 2015, figure 5), not spaced by the count since the last
 * mark, so that the probability is the line's.
 */

#include <linux/math64.h>

#include "gwport_discipline.h"
#include "gwport_queue.h"

static int gw_red_validate(const struct tc_gwport_qopt *opt, struct netlink_ext_ack *extack)
{
	if (opt->kmin_bytes <= opt->kmax_bytes)
		return 0;
	NL_SET_ERR_MSG(extack, "gwport: kmin must not be above kmax");
	return -EINVAL;
}

/* An arrival that finds so many bytes moves the average. */
static void gw_red_average(struct gw_port *p, struct gw_class *c, u64 bytes, u64 now)
{
	const struct tc_gwport_qopt *opt = c->opt;
	u64 q = bytes << 16;

	if (opt->red_weight_q32 == U32_MAX) {
		c->red_avg = q;
		return;
	}
	if (!p->backlog_packets && p->idle_since_ns && p->idle_since_ns < now) {
		u64 bits = 8ULL * (psched_mtu(p->dev) + p->overhead_bytes);
		u64 packet_ns = max(1ULL, div64_u64(bits * NSEC_PER_SEC, p->rate_bps));
		u64 missed = div64_u64(now - p->idle_since_ns, packet_ns);
		u64 keep = U32_MAX - opt->red_weight_q32;

		for (; missed && c->red_avg; missed >>= 1) {
			if (missed & 1)
				c->red_avg = mul_u64_u64_shr(c->red_avg, keep, 32);
			keep = (keep * keep) >> 32;
		}
	}
	if (q >= c->red_avg)
		c->red_avg += mul_u64_u64_shr(q - c->red_avg, opt->red_weight_q32, 32);
	else
		c->red_avg -= mul_u64_u64_shr(c->red_avg - q, opt->red_weight_q32, 32);
}

/* Whether the line from kmin to kmax says that a packet is marked or dropped, at such a queue. */
bool gw_red_hits(struct gw_port *p, const struct gw_class *c, u64 queue_q16)
{
	u64 kmin = c->opt->kmin_bytes << 16, kmax = c->opt->kmax_bytes << 16;

	if (queue_q16 < kmin)
		return false;
	if (queue_q16 >= kmax)
		return true;
	return gw_chance(p, mul_u64_u64_div_u64(c->opt->red_pmax_q32, queue_q16 - kmin,
						kmax - kmin));
}

static int gw_red_admit(struct gw_port *p, struct gw_queue *q, struct sk_buff *skb, u64 now)
{
	int reason = gw_admit_to_buffer(p, q, skb, now);
	bool hit;

	/* A packet that does not fit is an arrival all the same */
	gw_red_average(p, q->class, q->bytes, now);
	hit = gw_red_hits(p, q->class, q->class->red_avg);
	if (reason != GW_ADMITTED || !hit)
		return reason;
	if (!(q->class->opt->flags & GWPORT_F_ECN))
		return GWPORT_DROP_RED;
	gw_mark(p, skb);
	return GW_ADMITTED;
}

const struct gw_discipline gw_red = {
	.validate	= gw_red_validate,
	.admit		= gw_red_admit,
};
