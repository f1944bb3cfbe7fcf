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

/* Where the next sample goes, or NULL when there is no room. */
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

/* Store the port's state at the sampling points up to t, when it differs from the one before. */
static void gw_sample(struct gw_port *p, u64 t)
{
	struct gw_sample now = { p->next_sample_ns, p->backlog_bytes, p->st.ecn_marks, p->paused };
	struct gw_sample *last = gw_last_sample(p), *next;

	p->next_sample_ns += p->opt.sample_interval_ns *
		DIV64_U64_ROUND_UP(t - p->next_sample_ns, p->opt.sample_interval_ns);
	if (last && last->backlog == now.backlog && last->marks == now.marks &&
	    last->paused == now.paused)
		return;
	next = gw_new_sample(p);
	if (next)
		*next = now;
	else
		p->st.samples_lost++;
}

/* gw_account(), when there is something to be counted. */
void gw_account_backlog(struct gw_port *p, u64 t)
{
	if (p->backlog_bytes) {
		p->byte_ns += p->backlog_bytes * (t - p->account_ns);
		p->st.backlog_byte_us += p->byte_ns / NSEC_PER_USEC;
		p->byte_ns %= NSEC_PER_USEC;
	}
	if (p->opt.sample_interval_ns && p->next_sample_ns < t)
		gw_sample(p, t);
}

void gw_count_drop(struct gw_port *p, struct sk_buff *skb, enum gwport_drop reason)
{
	p->st.drops[reason]++;
	p->st.drop_bytes += skb->len;
	p->class[gw_cb(skb)->class].drops++;
	qdisc_qstats_drop(p->sch);
}
