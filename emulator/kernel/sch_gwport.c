// SPDX-License-Identifier: GPL-2.0
/*
 * sch_gwport.c	One qdisc that is the whole directed link of an egress port.
 *
 *	enqueue -> queues (gwport_queue.c) -> transmitter -> wire (gwport_link.c) -> device
 *	           a discipline decides
 *
 * This is what the kernel and user space see of it: packets come in, options are set.
 * Frames are handed to the device by a timer, when their last bit has arrived at the
 * far end; the qdisc's own dequeue never returns a packet.
 */

#include <linux/ethtool.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/module.h>
#include <linux/rtnetlink.h>
#include <net/gso.h>
#include <net/netlink.h>

#include "gwport_cells.h"
#include "gwport_discipline.h"
#include "gwport_link.h"
#include "gwport_queue.h"
#include "gwport_report.h"
#include "gwport_switch.h"

static const struct gw_discipline *const gw_disciplines[__GWPORT_KINDS] = {
	[GWPORT_DROPTAIL]	= &gw_droptail,
	[GWPORT_RED]		= &gw_red,
	[GWPORT_DCTCP]		= &gw_droptail,	/* with a threshold, k_bytes */
	[GWPORT_CODEL]		= &gw_codel,
	[GWPORT_FQ_CODEL]	= &gw_fq_codel,
	[GWPORT_SHARED]		= &gw_shared,
	[GWPORT_VOQ]		= &gw_voq,
	[GWPORT_LOSSLESS]	= &gw_lossless,
	[GWPORT_CREDITS]	= &gw_credits,
	[GWPORT_CELLS]		= &gw_cells,
};

static struct kmem_cache *gw_ports __read_mostly;

/* The DSCP class selector of a packet */
static u8 gw_selector_of(struct sk_buff *skb)
{
	switch (skb_protocol(skb, true)) {
	case htons(ETH_P_IP):
		return pskb_network_may_pull(skb, sizeof(struct iphdr)) ? ip_hdr(skb)->tos >> 5 : 0;
	case htons(ETH_P_IPV6):
		return pskb_network_may_pull(skb, sizeof(struct ipv6hdr)) ?
			ipv6_hdr(skb)->priority >> 1 : 0;
	default:
		return 0;
	}
}

static int gw_enqueue_frame(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct gw_port *p = gw_port(sch);
	struct gw_cb *cb = gw_cb(skb);
	u64 now = ktime_get_ns();
	int reason = GW_ADMITTED;

	cb->time = now;
	cb->ingress = skb->skb_iif;
	cb->class = p->single_class ? 0 : p->class_map >> 4 * gw_selector_of(skb) & 7;
	cb->outcome = GW_DELIVER;

	spin_lock(&p->sw->lock);
	gw_update(p, now);
	if (gw_bypass(p, skb, now)) {
		gw_account(p, now);
		p->max_backlog_bytes = max_t(u64, p->max_backlog_bytes, skb->len);
		gw_transmit(p, skb);
	} else {
		reason = gw_enqueue(p, skb, now);
		if (reason == GW_ADMITTED)
			gw_update(p, now);
		else
			gw_count_drop(p, skb, reason);
	}
	if (reason == GW_ADMITTED)
		gw_arm_timer(p);
	spin_unlock(&p->sw->lock);

	if (reason == GW_ADMITTED)
		return NET_XMIT_SUCCESS;
	__qdisc_drop(skb, to_free);
	return NET_XMIT_DROP;
}

/* Segments as a NIC's offload does: every frame is a packet of its own on the wire. */
static int gw_enqueue_segments(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	netdev_features_t features = netif_skb_features(skb);
	struct sk_buff *segment, *next;
	int ret = NET_XMIT_DROP;

	segment = skb_gso_segment(skb, features & ~NETIF_F_GSO_MASK);
	if (IS_ERR_OR_NULL(segment))
		return qdisc_drop(skb, sch, to_free);

	skb_list_walk_safe(segment, segment, next) {
		skb_mark_not_on_list(segment);
		qdisc_skb_cb(segment)->pkt_len = segment->len;
		if (gw_enqueue_frame(segment, sch, to_free) == NET_XMIT_SUCCESS)
			ret = NET_XMIT_SUCCESS;
	}
	consume_skb(skb);
	return ret;
}

static int gwport_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	return skb_is_gso(skb) ? gw_enqueue_segments(skb, sch, to_free) :
				 gw_enqueue_frame(skb, sch, to_free);
}

/* Frames go to the device by a timer; this is only how a device says that it has room again. */
static struct sk_buff *gwport_dequeue(struct Qdisc *sch)
{
	struct gw_port *p = gw_port(sch);

	if (unlikely(p->stalled)) {
		spin_lock(&p->sw->lock);
		p->stalled = false;
		p->stalled_until = ktime_get_ns() + 1;	/* when a timer set to the past fires */
		gw_arm_timer(p);
		spin_unlock(&p->sw->lock);
	}
	return NULL;
}

static const struct nla_policy gwport_policy[TCA_GWPORT_MAX + 1] = {
	[TCA_GWPORT_PARMS] = NLA_POLICY_EXACT_LEN(sizeof(struct tc_gwport_qopt)),
	[TCA_GWPORT_CLASSES] =
		NLA_POLICY_EXACT_LEN(GWPORT_CLASSES * sizeof(struct tc_gwport_qopt)),
};

/* Refuse what a queue can not be, or return 0 */
static int gw_check_queue(const struct tc_gwport_qopt *opt, struct netlink_ext_ack *extack)
{
	if (opt->version != GWPORT_VERSION)
		NL_SET_ERR_MSG(extack, "gwport: made for another version of gwport.h");
	else if (opt->kind >= __GWPORT_KINDS)
		NL_SET_ERR_MSG(extack, "gwport: unknown kind");
	else if (!opt->queues || opt->queues > 65536)
		NL_SET_ERR_MSG(extack, "gwport: queues must be 1 to 65536");
	else if (opt->queues > 1 && !opt->quantum_bytes)
		NL_SET_ERR_MSG(extack, "gwport: quantum must be above 0");
	else if (opt->interval_ns > U32_MAX)	/* its square has 64 bits */
		NL_SET_ERR_MSG(extack, "gwport: interval must be below 4.29 s");
	else if (gw_disciplines[opt->kind]->validate)
		return gw_disciplines[opt->kind]->validate(opt, extack);
	else
		return 0;
	return -EINVAL;
}

/* The port's options, and those of each class; NULL: they have the port's */
static int gw_parse(struct nlattr *nested, struct tc_gwport_qopt *opt,
		    const struct tc_gwport_qopt **classes, struct netlink_ext_ack *extack)
{
	struct nlattr *tb[TCA_GWPORT_MAX + 1];
	int err, i;

	if (!nested) {
		NL_SET_ERR_MSG(extack, "gwport: options are required");
		return -EINVAL;
	}
	err = nla_parse_nested_deprecated(tb, TCA_GWPORT_MAX, nested, gwport_policy,
					  extack);
	if (err)
		return err;
	if (!tb[TCA_GWPORT_PARMS]) {
		NL_SET_ERR_MSG(extack, "gwport: TCA_GWPORT_PARMS is missing");
		return -EINVAL;
	}
	memcpy(opt, nla_data(tb[TCA_GWPORT_PARMS]), sizeof(*opt));

	err = gw_check_queue(opt, extack);
	if (err)
		return err;
	if (!opt->rate_bps) {
		NL_SET_ERR_MSG(extack, "gwport: rate must be above 0");
		return -EINVAL;
	}
	if (opt->sample_interval_ns && !opt->sample_capacity) {
		NL_SET_ERR_MSG(extack, "gwport: samples need a capacity");
		return -EINVAL;
	}
	if (opt->class_map & ~0x77777777) {
		NL_SET_ERR_MSG(extack, "gwport: classes are 0 to 7");
		return -EINVAL;
	}
	*classes = NULL;
	if (!tb[TCA_GWPORT_CLASSES])
		return 0;
	*classes = nla_data(tb[TCA_GWPORT_CLASSES]);
	for (i = 0; i < GWPORT_CLASSES && !err; i++) {
		err = gw_check_queue(*classes + i, extack);
		if (!err && (*classes)[i].kind == GWPORT_CELLS) {
			NL_SET_ERR_MSG(extack, "gwport: cells have no classes");
			return -EINVAL;
		}
	}
	return err;
}

/* Whether a class, or the port, keeps what its queues were made for */
static bool gw_same_queues(const struct tc_gwport_qopt *a, const struct tc_gwport_qopt *b)
{
	return a->kind == b->kind && a->queues == b->queues;
}

/* Sets up each class, by its own options or the port's */
static void gw_apply_classes(struct gw_port *p, const struct tc_gwport_qopt *classes)
{
	u64 headroom = classes ? 0 : p->opt.headroom_bytes;
	int i;

	p->weighted = 0;
	p->shares_buffer = false;
	p->can_bypass = false;
	if (classes)
		memcpy(p->class_opt, classes, GWPORT_CLASSES * sizeof(*classes));
	for (i = 0; i < GWPORT_CLASSES; i++) {
		struct gw_class *c = &p->class[i];

		c->opt = classes ? p->class_opt + i : &p->opt;
		c->discipline = gw_disciplines[c->opt->kind];
		p->shares_buffer |= c->discipline->shares_buffer;
		p->can_bypass |= c->discipline->can_bypass;
		if (classes)
			headroom += c->opt->headroom_bytes;
		if (c->opt->class_quantum_bytes)
			p->weighted |= BIT(i);
	}
	p->can_bypass &= !(p->opt.flags & GWPORT_F_DOWN);
	p->by_class = classes;
	p->single_class = !classes && p->class[0].discipline->single_class;
	p->sw->headroom += headroom - p->headroom_bytes;
	p->headroom_bytes = headroom;
}

static void gw_apply(struct gw_port *p, const struct tc_gwport_qopt *opt,
		     const struct tc_gwport_qopt *classes, u64 now)
{
	if (p->opt.rate_bps != opt->rate_bps && p->free_frac) {
		p->free_ns++;	/* the fraction is in units of the old rate */
		p->free_frac = 0;
	}
	if (p->opt.seed != opt->seed || !p->opt.version) {
		prandom_seed_state(&p->random, opt->seed);
		p->flow_key.key[0] = opt->seed;
		p->flow_key.key[1] = ~opt->seed;
	}
	p->last_wire = 0;
	p->opt = *opt;
	p->rate_bps = opt->rate_bps;
	p->delay_ns = opt->delay_ns + opt->extra_delay_ns;
	p->buffer_bytes = opt->buffer_bytes;
	p->overhead_bytes = opt->overhead_bytes;
	p->min_frame_bytes = opt->min_frame_bytes;
	p->class_map = opt->class_map;
	p->faulty = (opt->flags & GWPORT_F_DOWN) || opt->loss_q32 || opt->corrupt_q32;
	gw_apply_classes(p, classes);
	if (p->cells)
		p->cells->rate_bps = p->rate_bps;
}

/* Shown to ethtool, and to programs that choose by a link's speed. Under RTNL. */
static void gw_tell_speed(struct gw_port *p)
{
	const struct ethtool_ops *ops = p->dev->ethtool_ops;
	struct ethtool_link_ksettings link;

	if (!ops || !ops->set_link_ksettings || __ethtool_get_link_ksettings(p->dev, &link))
		return;
	link.base.speed = min_t(u64, DIV_ROUND_CLOSEST_ULL(p->rate_bps, 1000000), INT_MAX);
	ops->set_link_ksettings(p->dev, &link);
}

static int gwport_change(struct Qdisc *sch, struct nlattr *nested, struct netlink_ext_ack *extack)
{
	struct gw_port *p = gw_port(sch);
	const struct tc_gwport_qopt *classes;
	struct tc_gwport_qopt opt;
	LIST_HEAD(samples);
	bool resample, same;
	u64 now;
	int err, i;

	err = gw_parse(nested, &opt, &classes, extack);
	if (err)
		return err;
	same = gw_same_queues(&opt, &p->opt) && !classes == !p->class_opt;
	for (i = 0; i < GWPORT_CLASSES && classes && same; i++)
		same = gw_same_queues(classes + i, p->class_opt + i);
	if (!same) {
		NL_SET_ERR_MSG(extack, "gwport: a change keeps the kind and the number of queues");
		return -EINVAL;
	}
	resample = opt.sample_interval_ns != p->opt.sample_interval_ns ||
		   opt.sample_capacity != p->opt.sample_capacity;

	sch_tree_lock(sch);
	spin_lock(&p->sw->lock);
	now = ktime_get_ns();
	gw_update(p, now);
	gw_account(p, now);
	gw_apply(p, &opt, classes, now);
	if (resample) {
		list_splice_init(&p->samples, &samples);
		gw_start_samples(p, now);
	}
	gw_update(p, now);
	gw_arm_timer(p);
	spin_unlock(&p->sw->lock);
	sch_tree_unlock(sch);
	gw_free_samples(&samples);
	gw_tell_speed(p);
	return 0;
}

/* How many queues a class has; all that comes goes to the first one where there are no classes. */
static u32 gw_queues_of_class(const struct tc_gwport_qopt *opt,
			      const struct tc_gwport_qopt *classes, int class)
{
	if (classes)
		return classes[class].queues;
	return class && gw_disciplines[opt->kind]->single_class ? 0 : opt->queues;
}

static int gwport_init(struct Qdisc *sch, struct nlattr *nested, struct netlink_ext_ack *extack)
{
	struct gw_port *p = kmem_cache_zalloc(gw_ports, GFP_KERNEL);
	const struct tc_gwport_qopt *classes;
	struct tc_gwport_qopt opt;
	u32 queues = 0;
	int err, i, n;

	if (!p)
		return -ENOMEM;
	*(struct gw_port **)qdisc_priv(sch) = p;
	p->sch = sch;
	p->dev = qdisc_dev(sch);
	gw_link_init(p);
	INIT_LIST_HEAD(&p->samples);
	INIT_LIST_HEAD(&p->listed);
	for (i = 0; i < GWPORT_CLASSES; i++) {
		INIT_LIST_HEAD(&p->class[i].new_flows);
		INIT_LIST_HEAD(&p->class[i].old_flows);
	}

	if (sch->parent != TC_H_ROOT) {
		NL_SET_ERR_MSG(extack, "gwport: is a whole link and can only be a device's root");
		return -EOPNOTSUPP;
	}
	err = gw_parse(nested, &opt, &classes, extack);
	if (err)
		return err;

	if (classes) {
		p->class_opt = kcalloc(GWPORT_CLASSES, sizeof(*classes), GFP_KERNEL);
		if (!p->class_opt)
			return -ENOMEM;
	}
	for (i = 0; i < GWPORT_CLASSES; i++)
		queues += gw_queues_of_class(&opt, classes, i);
	p->queues = kvcalloc(queues, sizeof(*p->queues), GFP_KERNEL);
	if (!p->queues)
		return -ENOMEM;
	for (i = 0, queues = 0; i < GWPORT_CLASSES; i++) {
		p->class[i].queues = p->queues + queues;
		for (n = gw_queues_of_class(&opt, classes, i); n; n--, queues++) {
			INIT_LIST_HEAD(&p->queues[queues].active);
			p->queues[queues].class = &p->class[i];
		}
	}

	p->since_ns = ktime_get_ns();
	p->account_ns = p->since_ns;
	p->free_ns = p->since_ns;
	p->sw = gw_switch_of(dev_net(p->dev));
	gw_apply(p, &opt, classes, p->since_ns);
	gw_start_samples(p, p->since_ns);
	gw_tell_speed(p);
	if (opt.kind == GWPORT_CELLS) {
		err = gw_chassis_join(p, extack);
		if (err)
			return err;
	}
	err = gw_switch_join(p);
	if (!err)
		list_add_tail(&p->listed, &gwport_listed);
	return err;
}

static void gw_drop_list(struct gw_port *p, struct sk_buff *skb)
{
	while (skb) {
		struct sk_buff *next = skb->next;

		skb_mark_not_on_list(skb);
		if (gw_cb(skb)->outcome != GW_PAUSE)
			gw_count_drop(p, skb, GWPORT_DROP_DOWN);
		rtnl_kfree_skbs(skb, skb);
		skb = next;
	}
}

/* The device goes down: all that waits or flies is lost. */
static void gwport_reset(struct Qdisc *sch)
{
	struct gw_port *p = gw_port(sch);
	struct sk_buff *skb;
	u64 now;
	int i;

	if (!p || !p->sw || !p->queues)
		return;
	gw_link_stop(p);

	spin_lock_bh(&p->sw->lock);
	now = ktime_get_ns();
	/* The neighbour's port has lost its carrier too, and no longer knows of any pause */
	gw_pause_classes(p, p->paused, 0, now);
	for (i = 0; i < GWPORT_CLASSES; i++) {
		p->class[i].xoff_sent = false;
		p->class[i].spent = 0;
	}
	while ((skb = gw_dequeue(p, now)))
		gw_drop_list(p, skb);
	gw_drop_list(p, p->flight_head);
	while ((skb = gw_chassis_drop(p)))
		gw_drop_list(p, skb);
	gw_drop_credits(p);
	p->flight_head = NULL;
	p->flight_packets = 0;
	p->sending = NULL;
	p->stalled = false;
	gw_transmitter_idle(p, now);
	spin_unlock_bh(&p->sw->lock);
}

static void gwport_destroy(struct Qdisc *sch)
{
	struct gw_port *p = gw_port(sch);

	if (!p)
		return;
	gw_link_stop(p);
	gw_chassis_leave(p);
	gw_switch_leave(p);
	list_del(&p->listed);
	gw_drop_credits(p);
	kvfree(p->queues);
	kfree(p->class_opt);
	gw_free_samples(&p->samples);
	kfree_rcu(p, rcu);	/* a pause frame may be arriving */
}

static int gwport_dump(struct Qdisc *sch, struct sk_buff *skb)
{
	struct gw_port *p = gw_port(sch);
	struct nlattr *nest = nla_nest_start_noflag(skb, TCA_OPTIONS);

	if (!nest || nla_put(skb, TCA_GWPORT_PARMS, sizeof(p->opt), &p->opt))
		return -EMSGSIZE;
	if (p->class_opt && nla_put(skb, TCA_GWPORT_CLASSES,
				    GWPORT_CLASSES * sizeof(*p->class_opt), p->class_opt))
		return -EMSGSIZE;
	return nla_nest_end(skb, nest);
}

static struct Qdisc_ops gwport_qdisc_ops __read_mostly = {
	.id		= "gwport",
	.priv_size	= sizeof(struct gw_port *),
	.enqueue	= gwport_enqueue,
	.dequeue	= gwport_dequeue,
	.peek		= qdisc_peek_dequeued,
	.init		= gwport_init,
	.change		= gwport_change,
	.reset		= gwport_reset,
	.destroy	= gwport_destroy,
	.dump		= gwport_dump,
	.dump_stats	= gwport_dump_stats,
	.owner		= THIS_MODULE,
};

static int __init gwport_module_init(void)
{
	int err;

	gw_ports = KMEM_CACHE(gw_port, SLAB_HWCACHE_ALIGN | SLAB_NO_MERGE);
	if (!gw_ports)
		return -ENOMEM;
	err = gw_link_module_init();
	if (err)
		goto no_link;
	err = gw_switch_module_init();
	if (err)
		goto no_switch;
	err = gw_report_module_init();
	if (err)
		goto no_report;
	err = register_qdisc(&gwport_qdisc_ops);
	if (err)
		goto no_qdisc;
	return 0;

no_qdisc:
	gw_report_module_exit();
no_report:
	gw_switch_module_exit();
no_switch:
	gw_link_module_exit();
no_link:
	kmem_cache_destroy(gw_ports);
	return err;
}

static void __exit gwport_module_exit(void)
{
	unregister_qdisc(&gwport_qdisc_ops);
	gw_report_module_exit();
	gw_switch_module_exit();
	gw_link_module_exit();
	rcu_barrier();
	kmem_cache_destroy(gw_ports);
}
module_init(gwport_module_init)
module_exit(gwport_module_exit)
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Exact egress port and link: serialise, queue, mark, pause, propagate");
