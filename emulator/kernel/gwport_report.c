// SPDX-License-Identifier: GPL-2.0
/* gwport_report.c	What user space reads of ports: statistics, samples, who waits where. */

#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <net/gen_stats.h>
#include <net/net_namespace.h>

#include "gwport_link.h"
#include "gwport_report.h"
#include "gwport_switch.h"

/*
 * All ports, for who watches from the host (emulator/virtual/watched_ports.py), and where in
 * them is what is looked at. A watcher takes no lock: a port's last sample may be half
 * written, and while its interval changes all of them.
 */
LIST_HEAD(gwport_listed);
const u32 gwport_layout[] = {
	offsetof(struct gw_port, listed),
	offsetof(struct gw_port, dev),
	offsetof(struct net_device, name),
	offsetof(struct gw_port, samples),
	offsetof(struct gw_port, n_samples),
	offsetof(struct gw_port, sample_interval_ns),
	offsetof(struct gw_sample_block, sample),
	sizeof(struct gw_sample),
	GW_BLOCK_SAMPLES,
};

/* Whoever looks at a port finds it as it is now. */
static void gw_bring_up_to_date(struct gw_port *p, u64 now)
{
	gw_update(p, now);
	gw_arm_timer(p);
	gw_account(p, now);
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
	gw_bring_up_to_date(p, now);
	*st = p->st;
	st->max_backlog_bytes = p->max_backlog_bytes;
	st->backlog_bytes = p->backlog_bytes;
	st->backlog_packets = p->backlog_packets;
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
		st->class_tx_packets[i] = c->tx_packets;
		st->class_drops[i] = c->drops;
		st->class_ecn_marks[i] = c->ecn_marks;
		st->class_max_backlog_bytes[i] = c->max_bytes;
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

/*
 * /proc/net/gwport_samples: "ifindex interval_ns time_ns backlog_bytes peak_bytes tx_bytes
 * drops ecn_marks paused_classes", a sample a line. The position is the port's ifindex and, in
 * the low half, the sample's number. The switch is locked while a page is filled; nothing is
 * sent while it is read, so samples are not taken together meanwhile.
 */
struct gw_samples_iter {
	struct seq_net_private	 net;
	struct gw_sample_block	*block;
	u32			 n;	/* of the sample in its port */
};

static struct gw_switch *gw_samples_switch(struct seq_file *seq)
{
	return gw_switch_of(seq_file_net(seq));
}

/* The sample at *pos, or the first one of the ports behind; *pos is where it was found. */
static struct gw_port *gw_samples_at(struct seq_file *seq, loff_t *pos)
{
	struct gw_samples_iter *iter = seq->private;
	unsigned long i = *pos >> 32;
	u32 n = *pos, skip;
	struct gw_port *p;

	for (p = xa_find(&gw_samples_switch(seq)->ports, &i, ULONG_MAX, XA_PRESENT); p;
	     p = xa_find_after(&gw_samples_switch(seq)->ports, &i, ULONG_MAX, XA_PRESENT)) {
		if (i != *pos >> 32)
			n = 0;
		if (!n)
			gw_bring_up_to_date(p, ktime_get_ns());
		*pos = (loff_t)i << 32 | n;
		if (n < p->n_samples)
			break;
	}
	if (!p)
		return NULL;
	iter->n = n;
	skip = n / GW_BLOCK_SAMPLES;
	list_for_each_entry(iter->block, &p->samples, list)
		if (!skip--)
			break;
	return p;
}

static void *gw_samples_start(struct seq_file *seq, loff_t *pos)
{
	spin_lock_bh(&gw_samples_switch(seq)->lock);
	return gw_samples_at(seq, pos);
}

static void *gw_samples_next(struct seq_file *seq, void *v, loff_t *pos)
{
	struct gw_samples_iter *iter = seq->private;
	struct gw_port *p = v;

	++*pos;
	if (++iter->n >= p->n_samples)
		return gw_samples_at(seq, pos);
	if (iter->n % GW_BLOCK_SAMPLES == 0)
		iter->block = list_next_entry(iter->block, list);
	return p;
}

static void gw_samples_stop(struct seq_file *seq, void *v)
{
	spin_unlock_bh(&gw_samples_switch(seq)->lock);
}

static int gw_samples_show(struct seq_file *seq, void *v)
{
	struct gw_samples_iter *iter = seq->private;
	struct gw_sample *s = &iter->block->sample[iter->n % GW_BLOCK_SAMPLES];
	struct gw_port *p = v;

	seq_printf(seq, "%d %llu %llu %llu %llu %llu %llu %u %u\n", p->dev->ifindex,
		   p->sample_interval_ns, s->time, s->backlog, s->peak, s->tx_bytes, s->drops,
		   s->marks, s->paused);
	return 0;
}

static const struct seq_operations gw_samples_ops = {
	.start	= gw_samples_start,
	.next	= gw_samples_next,
	.stop	= gw_samples_stop,
	.show	= gw_samples_show,
};

/*
 * /proc/net/gwport_waiting: "egress ingress class bytes paused", who waits where: the
 * edges of the graph in which a cycle of paused ports is a deadlock.
 */
static int gw_waiting_show(struct seq_file *seq, void *v)
{
	struct gw_switch *sw = gw_switch_of(seq->private);
	struct gw_port *p, *in;
	unsigned long i, j;
	int class;

	spin_lock_bh(&sw->lock);
	xa_for_each(&sw->ports, i, p) {
		gw_bring_up_to_date(p, ktime_get_ns());
		xa_for_each(&sw->ports, j, in) {
			for (class = 0; class < GWPORT_CLASSES; class++) {
				struct gw_class *c = &p->class[class];
				struct gw_queue *q;
				struct sk_buff *skb;
				u64 bytes = 0;

				list_for_each_entry(q, &c->old_flows, active)
					for (skb = q->head; skb; skb = skb->next)
						if (gw_cb(skb)->ingress == j)
							bytes += skb->len;
				if (bytes)
					seq_printf(seq, "%lu %lu %d %llu %d\n", i, j, class,
						   bytes, !!(p->paused & BIT(class)));
			}
		}
	}
	spin_unlock_bh(&sw->lock);
	return 0;
}

static int __net_init gw_report_net_init(struct net *net)
{
	if (!proc_create_net("gwport_samples", 0444, net->proc_net, &gw_samples_ops,
			     sizeof(struct gw_samples_iter)))
		return -ENOMEM;
	if (!proc_create_net_single("gwport_waiting", 0444, net->proc_net, gw_waiting_show, NULL)) {
		remove_proc_entry("gwport_samples", net->proc_net);
		return -ENOMEM;
	}
	return 0;
}

static void __net_exit gw_report_net_exit(struct net *net)
{
	remove_proc_entry("gwport_waiting", net->proc_net);
	remove_proc_entry("gwport_samples", net->proc_net);
}

static struct pernet_operations gw_report_net_ops = {
	.init = gw_report_net_init,
	.exit = gw_report_net_exit,
};

int gw_report_module_init(void)
{
	return register_pernet_subsys(&gw_report_net_ops);
}

void gw_report_module_exit(void)
{
	unregister_pernet_subsys(&gw_report_net_ops);
}
