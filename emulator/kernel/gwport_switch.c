// SPDX-License-Identifier: GPL-2.0
/*
 * gwport_switch.c	What the ports of one switch (network namespace) have in common:
 *			its packet memory, and priority flow control (IEEE 802.1Qbb).
 *
 * A lossless port counts, per class, the bytes that came in by it and wait anywhere in
 * the switch. Above XOFF it sends a pause frame to its neighbour, below XON one that
 * takes the pause back. A pause frame is a real frame on the link: it waits for the one
 * in transmission, goes before all that waits, is serialised and propagates; only then
 * does the neighbour's port stop, after the frame that it is sending. The pause lasts
 * until it is taken back, as with a switch that refreshes the quanta in time.
 */

#include <linux/etherdevice.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

#include "gwport_port.h"

#define MAC_CONTROL_PFC	0x0101

static unsigned int gw_net_id __read_mostly;

struct gw_switch *gw_switch_of(struct net *net)
{
	return net_generic(net, gw_net_id);
}

struct gw_port *gw_switch_port(struct gw_switch *sw, u32 ifindex)
{
	return xa_load(&sw->ports, ifindex);
}

int gw_switch_join(struct gw_port *p)
{
	u32 ordinal = 0;
	struct gw_port *other;
	unsigned long i;

	/* The lowest number that no port has; ports join under RTNL */
again:
	xa_for_each(&p->sw->ports, i, other) {
		if (other->ordinal == ordinal && i != p->dev->ifindex) {
			ordinal++;
			goto again;
		}
	}
	p->ordinal = ordinal;
	return xa_err(xa_store_bh(&p->sw->ports, p->dev->ifindex, p, GFP_KERNEL));
}

void gw_switch_leave(struct gw_port *p)
{
	if (!p->sw)
		return;
	/* Where another qdisc has already taken the device, it is that one's entry */
	xa_cmpxchg_bh(&p->sw->ports, p->dev->ifindex, p, NULL, GFP_KERNEL);
	p->sw->headroom -= p->opt.headroom_bytes;
}

/* IEEE 802.1Q figure 36-3: class-enable vector, then the quanta of each class */
static void gw_send_pause(struct gw_port *in, u8 class, bool xoff, u64 now)
{
	struct net_device *dev = in->dev;
	struct sk_buff *skb = alloc_skb(NET_SKB_PAD + ETH_ZLEN, GFP_ATOMIC);
	struct gw_cb *cb;
	__be16 *words;

	if (!skb)	/* asked again by the next packet: xoff_sent is unchanged */
		return;
	in->class[class].xoff_sent = xoff;
	if (xoff)
		in->st.xoffs_sent++;
	else
		in->st.xons_sent++;

	skb_reserve(skb, NET_SKB_PAD);
	words = skb_put_zero(skb, ETH_ZLEN) + ETH_HLEN;
	words[0] = htons(MAC_CONTROL_PFC);
	words[1] = htons(BIT(class));
	words[2 + class] = htons(xoff ? 0xffff : 0);
	skb->dev = dev;
	skb->protocol = htons(ETH_P_PAUSE);
	skb_reset_mac_header(skb);
	skb_set_network_header(skb, ETH_HLEN);
	eth_hdr(skb)->h_proto = htons(ETH_P_PAUSE);
	ether_addr_copy(eth_hdr(skb)->h_source, dev->dev_addr);
	ether_addr_copy(eth_hdr(skb)->h_dest, (const u8 []){ 0x01, 0x80, 0xc2, 0, 0, 1 });

	cb = gw_cb(skb);
	cb->time = now;
	cb->ingress = 0;
	cb->class = class;
	cb->fate = GW_CONTROL;
	cb->control = BIT(class) << 8 | (xoff ? BIT(class) : 0);

	if (gw_ready_ns(in) < now && !gw_pickable(in))
		gw_idle(in, now);
	skb->next = NULL;
	if (in->control_head)
		in->control_tail->next = skb;
	else
		in->control_head = skb;
	in->control_tail = skb;
	gw_arm(in);
}

static struct gw_class *gw_ingress_class(struct gw_port *p, struct sk_buff *skb,
					 struct gw_port **in)
{
	const struct gw_cb *cb = gw_cb(skb);

	if (p->opt.kind != GWPORT_LOSSLESS || !cb->ingress ||
	    (p->opt.lossy_classes & BIT(cb->class)))
		return NULL;
	*in = gw_switch_port(p->sw, cb->ingress);
	return *in && (*in)->opt.kind == GWPORT_LOSSLESS ? &(*in)->class[cb->class] : NULL;
}

/* Whether skb can be taken and given within one moment: no pause frame would come of it. */
bool gw_memory_pass(struct gw_port *p, struct sk_buff *skb)
{
	struct gw_port *in;
	struct gw_class *c = gw_ingress_class(p, skb, &in);

	if (!c)
		return true;
	if (c->xoff_sent || c->ingress_bytes + skb->len > in->opt.xoff_bytes)
		return false;
	in->st.ingress_max_bytes = max(in->st.ingress_max_bytes, c->ingress_bytes + skb->len);
	return true;
}

/* skb waits at p from now on */
void gw_memory_take(struct gw_port *p, struct sk_buff *skb, u64 now)
{
	struct gw_port *in;
	struct gw_class *c = gw_ingress_class(p, skb, &in);

	p->sw->bytes += skb->len;
	if (!c)
		return;
	c->ingress_bytes += skb->len;
	in->st.ingress_max_bytes = max(in->st.ingress_max_bytes, c->ingress_bytes);
	if (!c->xoff_sent && c->ingress_bytes > in->opt.xoff_bytes)
		gw_send_pause(in, gw_cb(skb)->class, true, now);
}

/* skb waits at p no longer */
void gw_memory_give(struct gw_port *p, struct sk_buff *skb, u64 now)
{
	struct gw_port *in;
	struct gw_class *c = gw_ingress_class(p, skb, &in);

	p->sw->bytes -= skb->len;
	if (!c)
		return;
	/* Packets may outlive the port that they came in by; a new one starts from 0 */
	c->ingress_bytes -= min_t(u64, skb->len, c->ingress_bytes);
	if (c->xoff_sent && c->ingress_bytes < in->opt.xon_bytes)
		gw_send_pause(in, gw_cb(skb)->class, false, now);
}

/* Pause those of the classes that are in pause, resume the others of them. */
void gw_pause(struct gw_port *p, u8 classes, u8 pause, u64 now)
{
	u8 before = p->paused;
	int i;

	gw_account(p, now);
	for (i = 0; i < GWPORT_CLASSES; i++) {
		struct gw_class *c = &p->class[i];

		if (!(classes & BIT(i)))
			continue;
		if (pause & ~p->paused & BIT(i))
			c->paused_at = now;
		else if (~pause & p->paused & BIT(i))
			c->paused_ns += now - c->paused_at;
	}
	p->paused = (p->paused & ~classes) | (pause & classes);
	if (p->paused && !before)
		p->paused_at = now;
	else if (!p->paused && before)
		p->st.paused_ns += now - p->paused_at;
}

/* A pause frame that dev sent has arrived at its peer. */
void gw_pause_received(struct net_device *dev, u16 control)
{
	struct net_device *peer = NULL;
	struct gw_port *p;
	struct Qdisc *q;
	u64 now;

	rcu_read_lock();
	if (dev->netdev_ops->ndo_get_peer_dev)
		peer = dev->netdev_ops->ndo_get_peer_dev(dev);
	q = peer ? rcu_dereference(peer->qdisc) : NULL;
	if (q && q->ops == &gwport_qdisc_ops) {
		p = gw_port(q);
		spin_lock(&p->sw->lock);
		now = ktime_get_ns();
		gw_run(p, now);
		if (control & 0xff)
			p->st.pauses++;
		else
			p->st.resumes++;
		gw_pause(p, control >> 8, control, now);
		gw_run(p, now);
		gw_arm(p);
		spin_unlock(&p->sw->lock);
	}
	rcu_read_unlock();
}

/* /proc/net/gwport_samples: "ifindex time_ns backlog_bytes ecn_marks paused_classes" */
static int gw_samples_show(struct seq_file *seq, void *v)
{
	struct gw_switch *sw = gw_switch_of(seq->private);
	struct gw_port *p;
	unsigned long i;
	u32 n;

	spin_lock_bh(&sw->lock);
	xa_for_each(&sw->ports, i, p) {
		gw_run(p, ktime_get_ns());
		gw_arm(p);
		gw_account(p, ktime_get_ns());
		for (n = 0; n < p->n_samples; n++)
			seq_printf(seq, "%lu %llu %llu %llu %llu\n", i, p->samples[n].time,
				   p->samples[n].backlog, p->samples[n].marks,
				   p->samples[n].paused);
	}
	spin_unlock_bh(&sw->lock);
	return 0;
}

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
		gw_run(p, ktime_get_ns());
		gw_arm(p);
		xa_for_each(&sw->ports, j, in) {
			for (class = 0; class < GWPORT_CLASSES; class++) {
				struct gw_class *c = &p->class[class];
				struct gw_queue *q;
				struct sk_buff *skb;
				u64 bytes = 0;

				list_for_each_entry(q, &c->served, turn)
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

static int __net_init gw_net_init(struct net *net)
{
	struct gw_switch *sw = gw_switch_of(net);

	spin_lock_init(&sw->lock);
	xa_init_flags(&sw->ports, XA_FLAGS_LOCK_BH);
	if (!proc_create_net_single("gwport_samples", 0444, net->proc_net, gw_samples_show, NULL))
		return -ENOMEM;
	if (!proc_create_net_single("gwport_waiting", 0444, net->proc_net, gw_waiting_show, NULL)) {
		remove_proc_entry("gwport_samples", net->proc_net);
		return -ENOMEM;
	}
	return 0;
}

static void __net_exit gw_net_exit(struct net *net)
{
	remove_proc_entry("gwport_waiting", net->proc_net);
	remove_proc_entry("gwport_samples", net->proc_net);
	xa_destroy(&gw_switch_of(net)->ports);
}

static struct pernet_operations gw_net_ops = {
	.init = gw_net_init,
	.exit = gw_net_exit,
	.id = &gw_net_id,
	.size = sizeof(struct gw_switch),
};

int gw_switch_module_init(void)
{
	return register_pernet_subsys(&gw_net_ops);
}

void gw_switch_module_exit(void)
{
	unregister_pernet_subsys(&gw_net_ops);
}
