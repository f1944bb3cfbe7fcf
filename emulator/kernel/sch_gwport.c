// SPDX-License-Identifier: GPL-2.0
/*
 * sch_gwport.c	One qdisc that is the whole directed link of an egress port.
 *
 *	enqueue -> queues (gwport_queue.c) -> transmitter -> wire -> device
 *
 * The transmitter serialises one frame after another at rate_bps, in integer
 * arithmetic that carries the fraction of a nanosecond, so that a busy port
 * neither gains nor loses time. A frame then spends delay_ns on the wire, a FIFO
 * that no queue limit counts, and is handed to the device in the nanosecond in
 * which its last bit arrives at the far end: what the peer of a veth sees is the
 * arrival. The qdisc's own dequeue never returns a packet.
 *
 * Time is exact without a timer for every step. What happens at a port is a
 * function of when packets came and of the port's own state, so gw_run() may
 * compute it later, whenever somebody looks: at the next enqueue, delivery, pause
 * or dump. A timer is only set where the outside world must see a step in its own
 * time: a delivery; the end of a transmission whose socket waits for it (TCP small
 * queues count a packet until it has left the NIC); the start of a transmission
 * that a packet socket records, or that frees memory which other ports share.
 */

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/rtnetlink.h>
#include <net/gso.h>
#include <net/netlink.h>
#include <net/sock.h>

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

/* Bring the backlog's integral and samples up to t; to be called before anything changes. */
void gw_account(struct gw_port *p, u64 t)
{
	if (t <= p->account_ns)
		return;
	if (p->bytes) {
		p->byte_ns += p->bytes * (t - p->account_ns);
		p->st.backlog_byte_us += p->byte_ns / NSEC_PER_USEC;
		p->byte_ns %= NSEC_PER_USEC;
	}
	p->account_ns = t;
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

static bool gw_tapped(const struct gw_port *p)
{
	return dev_nit_active(qdisc_dev(p->sch));
}

/* Begin to transmit skb as soon as the transmitter is free. */
static void gw_start(struct gw_port *p, struct sk_buff *skb)
{
	const struct tc_gwport_qopt *opt = &p->opt;
	struct gw_cb *cb = gw_cb(skb);
	u32 wire = max(skb->len, opt->min_frame_bytes) + opt->overhead_bytes;
	u64 wait = gw_ready_ns(p) - cb->time;

	p->idle_since_ns = 0;
	p->st.wire_bytes += wire;
	if (cb->fate != GW_CONTROL) {
		p->st.tx_packets++;
		p->st.tx_bytes += skb->len;
		p->class[cb->class].tx_bytes += skb->len;
		p->st.wait_sum_ns += wait;
		p->st.wait_max_ns = max(p->st.wait_max_ns, wait);
		qdisc_bstats_update(p->sch, skb);

		cb->fate = GW_DELIVER;
		if (opt->flags & GWPORT_F_DOWN) {
			gw_count_drop(p, skb, GWPORT_DROP_DOWN);
			cb->fate = GW_LOSE;
		} else if (gw_chance(p, opt->loss_q32)) {
			gw_count_drop(p, skb, GWPORT_DROP_LOSS);
			cb->fate = GW_LOSE;
		} else if (gw_chance(p, opt->corrupt_q32)) {
			gw_count_drop(p, skb, GWPORT_DROP_CORRUPT);
			cb->fate = GW_LOSE;
		}
	}
	if (gw_tapped(p))
		dev_queue_xmit_nit(skb, qdisc_dev(p->sch));

	if (wire != p->last_wire) {
		p->last_ns = div64_u64_rem((u64)wire * 8 * NSEC_PER_SEC, opt->rate_bps,
					   &p->last_frac);
		p->last_wire = wire;
	}
	p->free_ns += p->last_ns;
	p->free_frac += p->last_frac;
	if (p->free_frac >= opt->rate_bps) {
		p->free_frac -= opt->rate_bps;
		p->free_ns++;
	}
	if (skb->destructor)
		p->sending = skb;

	cb->time = gw_ready_ns(p) + opt->delay_ns + opt->extra_delay_ns;
	skb->next = NULL;
	if (p->flight_head) {
		/* A wire does not reorder, also when its delay was just shortened */
		cb->time = max(cb->time, gw_cb(p->flight_tail)->time);
		p->flight_tail->next = skb;
	} else {
		p->flight_head = skb;
	}
	p->flight_tail = skb;
	p->flight_packets++;
}

/* Nothing may be sent: the transmitter's next start is not before now. */
void gw_idle(struct gw_port *p, u64 now)
{
	if (!p->idle_since_ns)
		p->idle_since_ns = gw_ready_ns(p);
	p->free_ns = now;
	p->free_frac = 0;
}

/* Let the port do all that it did until now. */
void gw_run(struct gw_port *p, u64 now)
{
	struct sk_buff *skb;

	while (gw_ready_ns(p) <= now) {
		if (p->sending) {
			skb_orphan(p->sending);
			p->sending = NULL;
		}
		skb = gw_pick(p, gw_ready_ns(p));
		if (!skb) {
			gw_idle(p, now);
			return;
		}
		gw_start(p, skb);
	}
}

/* Set the timer to the next step that the outside world must see in its time. */
void gw_arm(struct gw_port *p)
{
	u64 next = U64_MAX;

	if (p->flight_head && !p->stalled)
		next = gw_cb(p->flight_head)->time;
	if (p->sending || (gw_pickable(p) && (p->eager || gw_tapped(p))))
		next = min(next, gw_ready_ns(p));
	if (next == p->armed_ns)
		return;

	p->armed_ns = next;
	if (next == U64_MAX)
		hrtimer_try_to_cancel(&p->timer);
	else
		hrtimer_start(&p->timer, ns_to_ktime(next), HRTIMER_MODE_ABS_PINNED_SOFT);
}

/* Hand over a frame whose last bit has arrived. Returns false when the device was busy. */
static bool gw_deliver(struct gw_port *p, struct sk_buff *skb, u64 now)
{
	/* What waited for room in the device's ring has arrived in time all the same */
	u64 due = max(gw_cb(skb)->time, p->stalled_until);
	u32 len = skb->len;
	int ret;

	switch (gw_cb(skb)->fate) {
	case GW_CONTROL:
		gw_pause_received(qdisc_dev(p->sch), gw_cb(skb)->control);
		consume_skb(skb);
		return true;
	case GW_LOSE:
		kfree_skb(skb);
		return true;
	}

	/* A veth whose ring was full has already made it its peer's */
	skb->dev = qdisc_dev(p->sch);
	ret = __dev_direct_xmit(skb, 0);
	if (!dev_xmit_complete(ret))
		return false;
	if (ret == NET_XMIT_DROP) {
		p->st.drops[GWPORT_DROP_RECEIVER]++;
		p->st.drop_bytes += len;
		qdisc_qstats_drop(p->sch);
		return true;
	}
	p->st.delivered_packets++;
	p->st.delivered_bytes += len;
	if (now > due) {
		p->st.late_packets++;
		p->st.late_max_ns = max(p->st.late_max_ns, now - due);
	}
	return true;
}

/* The next frame that has arrived by now, or NULL. */
static struct sk_buff *gw_land(struct gw_port *p, u64 now)
{
	struct sk_buff *skb = p->flight_head;

	if (!skb || p->stalled || gw_cb(skb)->time > now)
		return NULL;
	p->flight_head = skb->next;
	p->flight_packets--;
	skb_mark_not_on_list(skb);
	return skb;
}

static void gw_unland(struct gw_port *p, struct sk_buff *skb)
{
	skb->next = p->flight_head;
	if (!p->flight_head)
		p->flight_tail = skb;
	p->flight_head = skb;
	p->flight_packets++;
}

static enum hrtimer_restart gw_timer(struct hrtimer *timer)
{
	struct gw_port *p = container_of(timer, struct gw_port, timer);
	u64 now = ktime_get_ns();
	struct sk_buff *skb;

	spin_lock(&p->sw->lock);
	p->armed_ns = U64_MAX;
	gw_run(p, now);
	while ((skb = gw_land(p, now))) {
		bool taken;

		spin_unlock(&p->sw->lock);
		taken = gw_deliver(p, skb, now);
		spin_lock(&p->sw->lock);
		if (!taken) {
			/* Its ring is full; it calls gwport_dequeue() when there is room */
			gw_unland(p, skb);
			p->stalled = true;
		}
	}
	gw_arm(p);
	spin_unlock(&p->sw->lock);
	return HRTIMER_NORESTART;
}

static u8 gw_class_of(struct sk_buff *skb)
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
	struct gw_port *p = qdisc_priv(sch);
	struct gw_cb *cb = gw_cb(skb);
	u64 now = ktime_get_ns();
	int reason;

	cb->time = now;
	cb->ingress = skb->skb_iif;
	cb->class = p->opt.kind == GWPORT_FQ_CODEL ? 0 : gw_class_of(skb);
	cb->fate = GW_DELIVER;

	spin_lock(&p->sw->lock);
	gw_run(p, now);
	reason = gw_admit(p, skb, now);
	if (reason < 0) {
		gw_run(p, now);
		gw_arm(p);
	} else {
		gw_count_drop(p, skb, reason);
	}
	spin_unlock(&p->sw->lock);

	if (reason < 0)
		return NET_XMIT_SUCCESS;
	__qdisc_drop(skb, to_free);
	return NET_XMIT_DROP;
}

/* What a NIC's segmentation offload does: every frame is a packet of its own on the wire. */
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

/* Frames go to the device by gw_timer(); this is only how a device says that it has room again. */
static struct sk_buff *gwport_dequeue(struct Qdisc *sch)
{
	struct gw_port *p = qdisc_priv(sch);

	if (unlikely(p->stalled)) {
		spin_lock(&p->sw->lock);
		p->stalled = false;
		p->stalled_until = ktime_get_ns() + 1;	/* when a timer set to the past fires */
		gw_arm(p);
		spin_unlock(&p->sw->lock);
	}
	return NULL;
}

static const struct nla_policy gwport_policy[TCA_GWPORT_MAX + 1] = {
	[TCA_GWPORT_PARMS] = NLA_POLICY_EXACT_LEN(sizeof(struct tc_gwport_qopt)),
};

static int gw_parse(struct nlattr *nested, struct tc_gwport_qopt *opt,
		    struct netlink_ext_ack *extack)
{
	struct nlattr *tb[TCA_GWPORT_MAX + 1];
	int err;

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

	if (opt->version != GWPORT_VERSION)
		NL_SET_ERR_MSG(extack, "gwport: made for another version of gwport.h");
	else if (opt->kind >= __GWPORT_KINDS)
		NL_SET_ERR_MSG(extack, "gwport: unknown kind");
	else if (!opt->rate_bps)
		NL_SET_ERR_MSG(extack, "gwport: rate must be above 0");
	else if (!opt->queues || opt->queues > 65536)
		NL_SET_ERR_MSG(extack, "gwport: queues must be 1 to 65536");
	else if (opt->queues > 1 && !opt->quantum_bytes)
		NL_SET_ERR_MSG(extack, "gwport: quantum must be above 0");
	else if (opt->kind == GWPORT_RED && opt->kmin_bytes > opt->kmax_bytes)
		NL_SET_ERR_MSG(extack, "gwport: kmin must not be above kmax");
	else if (opt->interval_ns > U32_MAX)
		NL_SET_ERR_MSG(extack, "gwport: interval must be below 4.29 s");
	else if (opt->sample_interval_ns && !opt->sample_capacity)
		NL_SET_ERR_MSG(extack, "gwport: samples need a capacity");
	else
		return 0;
	return -EINVAL;
}

static void gw_apply(struct gw_port *p, const struct tc_gwport_qopt *opt, u64 now)
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
	p->sw->headroom += opt->headroom_bytes - p->opt.headroom_bytes;
	p->opt = *opt;
	p->eager = opt->kind == GWPORT_SHARED || opt->kind == GWPORT_LOSSLESS;
}

static int gwport_change(struct Qdisc *sch, struct nlattr *nested, struct netlink_ext_ack *extack)
{
	struct gw_port *p = qdisc_priv(sch);
	struct gw_sample *samples = NULL;
	struct tc_gwport_qopt opt;
	bool resample;
	u64 now;
	int err;

	err = gw_parse(nested, &opt, extack);
	if (err)
		return err;
	if (opt.kind != p->opt.kind || opt.queues != p->opt.queues) {
		NL_SET_ERR_MSG(extack, "gwport: a change keeps the kind and the number of queues");
		return -EINVAL;
	}
	resample = opt.sample_interval_ns != p->opt.sample_interval_ns ||
		   opt.sample_capacity != p->opt.sample_capacity;
	if (resample && opt.sample_interval_ns) {
		samples = kvcalloc(opt.sample_capacity, sizeof(*samples), GFP_KERNEL);
		if (!samples)
			return -ENOMEM;
	}

	sch_tree_lock(sch);
	spin_lock(&p->sw->lock);
	now = ktime_get_ns();
	gw_run(p, now);
	gw_account(p, now);
	gw_apply(p, &opt, now);
	if (resample) {
		swap(p->samples, samples);
		p->n_samples = 0;
		p->next_sample_ns = now;
	}
	gw_run(p, now);
	gw_arm(p);
	spin_unlock(&p->sw->lock);
	sch_tree_unlock(sch);
	kvfree(samples);
	return 0;
}

static int gwport_init(struct Qdisc *sch, struct nlattr *nested, struct netlink_ext_ack *extack)
{
	struct gw_port *p = qdisc_priv(sch);
	struct tc_gwport_qopt opt;
	u32 per_class;
	int err, i;

	p->sch = sch;
	p->armed_ns = U64_MAX;
	hrtimer_init(&p->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_PINNED_SOFT);
	p->timer.function = gw_timer;
	for (i = 0; i < GWPORT_CLASSES; i++) {
		INIT_LIST_HEAD(&p->class[i].fresh);
		INIT_LIST_HEAD(&p->class[i].served);
	}

	if (sch->parent != TC_H_ROOT) {
		NL_SET_ERR_MSG(extack, "gwport: is a whole link and can only be a device's root");
		return -EOPNOTSUPP;
	}
	err = gw_parse(nested, &opt, extack);
	if (err)
		return err;

	/* Flows are apart anyway in fq_codel, so it has one class */
	per_class = opt.kind == GWPORT_FQ_CODEL ? 0 : opt.queues;
	p->queues = kvcalloc(opt.queues + 7 * per_class, sizeof(*p->queues), GFP_KERNEL);
	if (!p->queues)
		return -ENOMEM;
	for (i = 0; i < opt.queues + 7 * per_class; i++)
		INIT_LIST_HEAD(&p->queues[i].turn);
	for (i = 0; i < GWPORT_CLASSES; i++)
		p->class[i].queues = p->queues + i * per_class;

	if (opt.sample_interval_ns) {
		p->samples = kvcalloc(opt.sample_capacity, sizeof(*p->samples), GFP_KERNEL);
		if (!p->samples)
			return -ENOMEM;
	}

	p->since_ns = ktime_get_ns();
	p->account_ns = p->since_ns;
	p->free_ns = p->since_ns;
	p->next_sample_ns = p->since_ns;
	p->sw = gw_switch_of(dev_net(qdisc_dev(sch)));
	gw_apply(p, &opt, p->since_ns);
	return gw_switch_join(p);
}

static void gw_drop_list(struct gw_port *p, struct sk_buff *skb)
{
	while (skb) {
		struct sk_buff *next = skb->next;

		skb_mark_not_on_list(skb);
		if (gw_cb(skb)->fate != GW_CONTROL)
			gw_count_drop(p, skb, GWPORT_DROP_DOWN);
		rtnl_kfree_skbs(skb, skb);
		skb = next;
	}
}

/* The device goes down: all that waits or flies is lost. */
static void gwport_reset(struct Qdisc *sch)
{
	struct gw_port *p = qdisc_priv(sch);
	struct sk_buff *skb;
	u64 now;
	int i;

	hrtimer_cancel(&p->timer);
	if (!p->sw || !p->queues)
		return;

	spin_lock_bh(&p->sw->lock);
	now = ktime_get_ns();
	/* The neighbour's port has lost its carrier too, and no longer knows of any pause */
	gw_pause(p, p->paused, 0, now);
	for (i = 0; i < GWPORT_CLASSES; i++)
		p->class[i].xoff_sent = false;
	while ((skb = gw_pick(p, now)))
		gw_drop_list(p, skb);
	gw_drop_list(p, p->flight_head);
	p->flight_head = NULL;
	p->flight_packets = 0;
	p->sending = NULL;
	p->stalled = false;
	p->armed_ns = U64_MAX;
	gw_idle(p, now);
	spin_unlock_bh(&p->sw->lock);
}

static void gwport_destroy(struct Qdisc *sch)
{
	struct gw_port *p = qdisc_priv(sch);

	hrtimer_cancel(&p->timer);
	gw_switch_leave(p);
	kvfree(p->queues);
	kvfree(p->samples);
}

static int gwport_dump(struct Qdisc *sch, struct sk_buff *skb)
{
	struct gw_port *p = qdisc_priv(sch);
	struct nlattr *nest = nla_nest_start_noflag(skb, TCA_OPTIONS);

	if (!nest || nla_put(skb, TCA_GWPORT_PARMS, sizeof(p->opt), &p->opt))
		return -EMSGSIZE;
	return nla_nest_end(skb, nest);
}

static int gwport_dump_stats(struct Qdisc *sch, struct gnet_dump *d)
{
	struct gw_port *p = qdisc_priv(sch);
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

struct Qdisc_ops gwport_qdisc_ops __read_mostly = {
	.id		= "gwport",
	.priv_size	= sizeof(struct gw_port),
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
	int err = gw_switch_module_init();

	if (err)
		return err;
	err = register_qdisc(&gwport_qdisc_ops);
	if (err)
		gw_switch_module_exit();
	return err;
}

static void __exit gwport_module_exit(void)
{
	unregister_qdisc(&gwport_qdisc_ops);
	gw_switch_module_exit();
}
module_init(gwport_module_init)
module_exit(gwport_module_exit)
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Exact egress port and link: serialise, queue, mark, pause, propagate");
