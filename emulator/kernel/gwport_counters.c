// SPDX-License-Identifier: GPL-2.0
/* gwport_counters.c	What a port counts: drops, the backlog over time, samples of it. */

#include <linux/math64.h>
#include <linux/slab.h>

#include "gwport_counters.h"

static struct gw_sample *gw_last_sample(struct gw_port *p)
{
	struct gw_sample_block *last;

	if (!p->n_samples)
		return NULL;
	last = list_last_entry(&p->samples, struct gw_sample_block, list);
	return &last->sample[(p->n_samples - 1) % GW_BLOCK_SAMPLES];
}

/* The place of the next sample, or NULL when there is no room. */
static struct gw_sample *gw_new_sample(struct gw_port *p)
{
	struct gw_sample_block *block;

	if (p->n_samples >= p->opt.sample_capacity)
		return NULL;
	if (p->n_samples % GW_BLOCK_SAMPLES) {
		p->n_samples++;
		return gw_last_sample(p);
	}
	block = kmalloc(PAGE_SIZE, GFP_ATOMIC | __GFP_NOWARN);
	if (!block)
		return NULL;
	list_add_tail(&block->list, &p->samples);
	p->n_samples++;
	return block->sample;
}

void gw_free_samples(struct list_head *blocks)
{
	struct gw_sample_block *block, *next;

	list_for_each_entry_safe(block, next, blocks, list)
		kfree(block);
	INIT_LIST_HEAD(blocks);
}

static u64 gw_drops(struct gw_port *p)
{
	u64 drops = 0;
	int reason;

	for (reason = 0; reason < ARRAY_SIZE(p->st.drops); reason++)
		drops += p->st.drops[reason];
	return drops;
}

/* Sample from now on, by the options of the port. */
void gw_start_samples(struct gw_port *p, u64 now)
{
	p->n_samples = 0;
	p->sample_interval_ns = p->opt.sample_interval_ns;
	p->first_sample_ns = now;
	p->next_sample_ns = now;
	p->peak_bytes = p->backlog_bytes;
}

/* The first sampling point that is not before t. */
static u64 gw_sampling_point(struct gw_port *p, u64 t)
{
	return p->first_sample_ns + p->sample_interval_ns *
		DIV64_U64_ROUND_UP(t - p->first_sample_ns, p->sample_interval_ns);
}

/*
 * Double the interval, and keep what was at the points that are left: a sample stands for all
 * points up to the next one, so of those that lie between two points the last one stays.
 */
static void gw_coarsen(struct gw_port *p)
{
	struct gw_sample_block *from, *to, *next;
	struct gw_sample *last = NULL;
	u32 n, kept = 0;

	p->sample_interval_ns *= 2;
	from = to = list_first_entry(&p->samples, struct gw_sample_block, list);
	for (n = 0; n < p->n_samples; n++) {
		struct gw_sample sample;

		if (n && n % GW_BLOCK_SAMPLES == 0)
			from = list_next_entry(from, list);
		sample = from->sample[n % GW_BLOCK_SAMPLES];
		sample.time = gw_sampling_point(p, sample.time);
		if (last && last->time == sample.time) {
			sample.peak = max(sample.peak, last->peak);
		} else {
			if (kept && kept % GW_BLOCK_SAMPLES == 0)
				to = list_next_entry(to, list);
			last = &to->sample[kept++ % GW_BLOCK_SAMPLES];
		}
		*last = sample;
	}
	p->n_samples = kept;
	list_for_each_entry_safe_continue(to, next, &p->samples, list) {
		list_del(&to->list);
		kfree(to);
	}
}

/* Store the port's state at the sampling points up to t, when it differs from the one before. */
static void gw_sample(struct gw_port *p, u64 t)
{
	struct gw_sample now = { p->next_sample_ns, p->backlog_bytes, p->peak_bytes,
				 p->st.tx_bytes, gw_drops(p), p->st.ecn_marks, p->paused };
	struct gw_sample *last = gw_last_sample(p), *next;

	if (last && last->backlog == now.backlog && last->tx_bytes == now.tx_bytes &&
	    last->drops == now.drops && last->marks == now.marks && last->paused == now.paused)
		goto out;
	while (p->opt.flags & GWPORT_F_COARSEN && p->n_samples > 1 &&
	       p->n_samples >= p->opt.sample_capacity) {
		gw_coarsen(p);
		now.time = gw_sampling_point(p, now.time);
	}
	if (now.time >= t) {	/* more may happen before this point */
		p->next_sample_ns = now.time;
		return;
	}
	last = gw_last_sample(p);
	if (last && last->time == now.time) {
		now.peak = max(now.peak, last->peak);
		next = last;
	} else {
		next = gw_new_sample(p);
	}
	if (next)
		*next = now;
	else
		p->st.samples_lost++;
	p->peak_bytes = p->backlog_bytes;
out:
	p->next_sample_ns = gw_sampling_point(p, t);
}

/* gw_account(), when there is something to be counted. */
void gw_account_backlog(struct gw_port *p, u64 t)
{
	if (p->backlog_bytes) {
		p->byte_ns += p->backlog_bytes * (t - p->account_ns);
		p->st.backlog_byte_us += p->byte_ns / NSEC_PER_USEC;
		p->byte_ns %= NSEC_PER_USEC;
	}
	if (p->sample_interval_ns && p->next_sample_ns < t)
		gw_sample(p, t);
}

void gw_count_drop(struct gw_port *p, struct sk_buff *skb, enum gwport_drop reason)
{
	p->st.drops[reason]++;
	p->st.drop_bytes += skb->len;
	p->class[gw_cb(skb)->class].drops++;
	qdisc_qstats_drop(p->sch);
}
