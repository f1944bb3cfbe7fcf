// SPDX-License-Identifier: GPL-2.0
/*
 * gwport_counters.c	What a port counts: drops, the backlog over time, samples of it.
 */

#include <linux/math64.h>
#include <net/gen_stats.h>

#include "gwport_port.h"

/* Store the port's state at the sampling points up to t, when it differs from the one before. */
static void gw_sample(struct gw_port *p, u64 t)
{
	struct gw_sample now = { p->next_sample_ns, p->bytes, p->st.ecn_marks, p->paused };
	struct gw_sample *last = p->n_samples ? &p->samples[p->n_samples - 1] : NULL;

	p->next_sample_ns += p->opt.sample_interval_ns *
		DIV64_U64_ROUND_UP(t - p->next_sample_ns, p->opt.sample_interval_ns);
	if (last && last->backlog == now.backlog && last->marks == now.marks &&
	    last->paused == now.paused)
		return;
	if (p->n_samples < p->opt.sample_capacity)
		p->samples[p->n_samples++] = now;
	else
		p->st.samples_lost++;
}

void gw_account_change(struct gw_port *p, u64 t)
{
	if (p->bytes) {
		p->byte_ns += p->bytes * (t - p->account_ns);
		p->st.backlog_byte_us += p->byte_ns / NSEC_PER_USEC;
		p->byte_ns %= NSEC_PER_USEC;
	}
	if (p->samples && p->next_sample_ns < t)
		gw_sample(p, t);
}

void gw_count_drop(struct gw_port *p, struct sk_buff *skb, enum gwport_drop reason)
{
	p->st.drops[reason]++;
	p->st.drop_bytes += skb->len;
	p->class[gw_cb(skb)->class].drops++;
	qdisc_qstats_drop(p->sch);
}

int gwport_dump_stats(struct Qdisc *sch, struct gnet_dump *d)
{
	struct gw_port *p = gw_port(sch);
	u64 now = ktime_get_ns();
	struct tc_gwport_xstats *st;
	int i, ret;

	st = kzalloc(sizeof(*st), GFP_ATOMIC);
	if (!st)
		return -ENOMEM;

	spin_lock_bh(&p->sw->lock);
	gw_run(p, now);
	gw_arm(p);
	gw_account(p, now);
	*st = p->st;
	st->max_backlog_bytes = p->max_bytes;
	st->backlog_bytes = p->bytes;
	st->backlog_packets = p->packets;
	st->observed_ns = now - p->since_ns;
	st->inflight_packets = p->flight_packets;
	if (p->paused)
		st->paused_ns += now - p->paused_at;
	for (i = 0; i < GWPORT_CLASSES; i++) {
		struct gw_class *c = &p->class[i];

		st->class_paused_ns[i] = c->paused_ns;
		if (p->paused & BIT(i))
			st->class_paused_ns[i] += now - c->paused_at;
		st->class_tx_bytes[i] = c->tx_bytes;
		st->class_drops[i] = c->drops;
		st->ingress_bytes += c->ingress_bytes;
	}
	st->switch_bytes = p->sw->bytes;
	st->paused_classes = p->paused;
	st->samples = p->n_samples;
	spin_unlock_bh(&p->sw->lock);

	ret = gnet_stats_copy_app(d, st, sizeof(*st));
	kfree(st);
	return ret;
}
