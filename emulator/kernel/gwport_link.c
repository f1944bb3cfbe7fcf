// SPDX-License-Identifier: GPL-2.0
/*
 * gwport_link.c	The transmitter of a port, and the wire behind it.
 *
 * The transmitter serialises one frame after another at rate_bps, in integer
 * arithmetic that carries the fraction of a nanosecond, so that a busy port
 * neither gains nor loses time. A frame then spends delay_ns on the wire, a FIFO
 * that no queue limit counts, and is handed to the device in the nanosecond in
 * which its last bit arrives at the far end: what the peer of a veth sees is the
 * arrival. The qdisc's own dequeue never returns a packet.
 *
 * Time is exact without a timer for every step. The events at a port are a
 * function of when packets came and of the port's own state, so gw_update() may
 * compute it later, whenever somebody looks: at the next enqueue, delivery, pause
 * or dump. A timer is only set where the outside world must see a step in its own
 * time: a delivery; the end of a transmission whose socket waits for it (TCP small
 * queues count a packet until it has left the NIC); the start of a transmission
 * that a packet socket records, or that frees memory which other ports share.
 */

#include <linux/math64.h>
#include <linux/prefetch.h>
#include <net/sock.h>

#include "gwport_link.h"

/* By all ports since boot, for who watches from the host (emulator/virtual/variables.py) */
static u64 gwport_tx_bytes;

/* A faulty link's effect on skb. */
static enum gw_outcome gw_fault(struct gw_port *p, struct sk_buff *skb)
{
	if (p->opt.flags & GWPORT_F_DOWN)
		gw_count_drop(p, skb, GWPORT_DROP_DOWN);
	else if (gw_chance(p, p->opt.loss_q32))
		gw_count_drop(p, skb, GWPORT_DROP_LOSS);
	else if (gw_chance(p, p->opt.corrupt_q32))
		gw_count_drop(p, skb, GWPORT_DROP_CORRUPT);
	else
		return GW_DELIVER;
	return GW_LOSE;
}

/* Begin to transmit skb as soon as the transmitter is free. */
void gw_transmit(struct gw_port *p, struct sk_buff *skb)
{
	struct gw_cb *cb = gw_cb(skb);
	u32 wire = max(skb->len, p->min_frame_bytes) + p->overhead_bytes;
	u64 wait = gw_ready_ns(p) - cb->time;

	p->idle_since_ns = 0;
	if (gw_int_used && cb->outcome != GW_PAUSE)
		gw_int_stamp(p, skb);
	p->st.wire_bytes += wire;
	if (cb->outcome != GW_PAUSE) {
		p->st.tx_packets++;
		p->st.tx_bytes += skb->len;
		gwport_tx_bytes += skb->len;
		p->class[cb->class].tx_bytes += skb->len;
		p->class[cb->class].tx_packets++;
		if (wait) {
			p->st.wait_sum_ns += wait;
			p->st.wait_max_ns = max(p->st.wait_max_ns, wait);
		}
		/* One frame, never a super-packet: no need to look into its skb_shared_info */
		_bstats_update(&p->sch->bstats, skb->len, 1);
		cb->outcome = p->faulty ? gw_fault(p, skb) : GW_DELIVER;
		if (p->shares_buffer && p->class[cb->class].discipline->transmit)
			p->class[cb->class].discipline->transmit(p, skb, gw_ready_ns(p));
	}
	if (gw_tapped(p))
		dev_queue_xmit_nit(skb, p->dev);

	if (wire != p->last_wire) {
		p->last_ns = div64_u64_rem((u64)wire * 8 * NSEC_PER_SEC, p->rate_bps,
					   &p->last_frac);
		p->last_wire = wire;
	}
	p->free_ns += p->last_ns;
	p->free_frac += p->last_frac;
	if (p->free_frac >= p->rate_bps) {
		p->free_frac -= p->rate_bps;
		p->free_ns++;
	}
	if (skb->destructor)
		p->sending = skb;

	cb->time = gw_ready_ns(p) + p->delay_ns;
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
void gw_transmitter_idle(struct gw_port *p, u64 now)
{
	if (!p->idle_since_ns)
		p->idle_since_ns = gw_ready_ns(p);
	p->free_ns = now;
	p->free_frac = 0;
}

/* gw_update(), when something was to be done. */
void gw_transmit_until(struct gw_port *p, u64 now)
{
	struct sk_buff *skb;

	while (gw_ready_ns(p) <= now) {
		if (p->sending) {
			skb_orphan(p->sending);
			p->sending = NULL;
		}
		skb = gw_can_send(p) ? gw_dequeue(p, gw_ready_ns(p)) : NULL;
		if (!skb) {
			gw_transmitter_idle(p, now);
			return;
		}
		gw_transmit(p, skb);
	}
}

/* Set the timer to the next step that the outside world must see in its time. */
void gw_arm_timer(struct gw_port *p)
{
	u64 next = U64_MAX;

	if (p->flight_head && !p->stalled)
		next = gw_cb(p->flight_head)->time;
	if (p->sending || (gw_can_send(p) && (p->shares_buffer || gw_tapped(p))))
		next = min(next, gw_ready_ns(p));
	if (p->credit_head)
		next = min(next, p->credit_head->time);
	if (next == p->armed_ns)
		return;

	p->armed_ns = next;
	if (next == U64_MAX)
		hrtimer_try_to_cancel(&p->timer);
	else
		hrtimer_start(&p->timer, ns_to_ktime(next), HRTIMER_MODE_ABS_PINNED);
}

/* Pause those of the classes that are in pause, resume the others of them. */
void gw_pause_classes(struct gw_port *p, u8 classes, u8 pause, u64 now)
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

/* Send a pause frame, made for gw_cb(skb)->class, before all that waits. */
void gw_send_pause_frame(struct gw_port *p, struct sk_buff *skb, u64 now)
{
	struct gw_cb *cb = gw_cb(skb);

	cb->time = now;
	cb->ingress = 0;
	cb->outcome = GW_PAUSE;

	if (gw_ready_ns(p) < now && !gw_can_send(p))
		gw_transmitter_idle(p, now);
	skb->next = NULL;
	if (p->pause_head)
		p->pause_tail->next = skb;
	else
		p->pause_head = skb;
	p->pause_tail = skb;
	gw_arm_timer(p);
}

/* The port at the other end of the link, or NULL. Under RCU */
struct gw_port *gw_neighbour(struct gw_port *p)
{
	struct net_device *peer = NULL;
	struct Qdisc *q;

	if (p->dev->netdev_ops->ndo_get_peer_dev)
		peer = p->dev->netdev_ops->ndo_get_peer_dev(p->dev);
	q = peer ? rcu_dereference(peer->qdisc) : NULL;
	return q && q->ops == p->sch->ops ? gw_port(q) : NULL;
}

/* A pause frame that from sent has arrived at its neighbour, and any port obeys. */
static void gw_pause_received(struct gw_port *from, u16 pause)
{
	struct gw_port *p;
	u64 now;

	rcu_read_lock();
	p = gw_neighbour(from);
	if (p) {
		spin_lock(&p->sw->lock);
		now = ktime_get_ns();
		gw_update(p, now);
		if (pause & 0xff)
			p->st.pauses++;
		else
			p->st.resumes++;
		gw_pause_classes(p, pause >> 8, pause, now);
		gw_update(p, now);
		gw_arm_timer(p);
		spin_unlock(&p->sw->lock);
	}
	rcu_read_unlock();
}

/* A frame is at the far end, or was lost on the way there: it takes none of the wire any more. */
static void gw_has_arrived(struct gw_port *p, u8 class, u32 len, u64 now)
{
	if (p->shares_buffer && p->class[class].discipline->arrived)
		p->class[class].discipline->arrived(p, class, len, now);
}

/* Hand over a frame whose last bit has arrived. Returns false when the device was busy. */
static bool gw_deliver(struct gw_port *p, struct sk_buff *skb, u64 now)
{
	/* A packet that waited for room in the device's ring has arrived in time all the same */
	u64 due = max(gw_cb(skb)->time, p->stalled_until);
	u8 class = gw_cb(skb)->class;
	u32 len = skb->len;
	int ret;

	switch (gw_cb(skb)->outcome) {
	case GW_PAUSE:
		gw_pause_received(p, gw_cb(skb)->pause);
		consume_skb(skb);
		return true;
	case GW_LOSE:
		kfree_skb(skb);
		gw_has_arrived(p, class, len, now);
		return true;
	}

	/* A veth whose ring was full has already made it its peer's */
	skb->dev = p->dev;
	ret = __dev_direct_xmit(skb, 0);
	if (!dev_xmit_complete(ret))
		return false;
	gw_has_arrived(p, class, len, now);
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
static struct sk_buff *gw_next_arrival(struct gw_port *p, u64 now)
{
	struct sk_buff *skb = p->flight_head;

	if (!skb || p->stalled || gw_cb(skb)->time > now)
		return NULL;
	p->flight_head = skb->next;
	p->flight_packets--;
	skb_mark_not_on_list(skb);
	return skb;
}

/* .. and was not taken. */
static void gw_put_back(struct gw_port *p, struct sk_buff *skb)
{
	skb->next = p->flight_head;
	if (!p->flight_head)
		p->flight_tail = skb;
	p->flight_head = skb;
	p->flight_packets++;
}

/* Do all that the port's timer was set for. */
static void gw_serve(struct gw_due *due)
{
	struct gw_port *p = container_of(due, struct gw_port, due);
	u64 now = ktime_get_ns();
	struct sk_buff *skb;

	spin_lock(&p->sw->lock);
	p->armed_ns = U64_MAX;
	gw_update(p, now);
	if (p->credit_head && p->credit_head->time <= now)
		gw_give_credits(p, now);
	while ((skb = gw_next_arrival(p, now))) {
		bool taken;

		spin_unlock(&p->sw->lock);
		taken = gw_deliver(p, skb, now);
		spin_lock(&p->sw->lock);
		if (!taken) {
			/* Its ring is full; it calls gwport_dequeue() when there is room */
			gw_put_back(p, skb);
			p->stalled = true;
		}
	}
	gw_arm_timer(p);
	spin_unlock(&p->sw->lock);
}

/*
 * Packets are handed over in a softirq, but timers that run in one are programmed twice:
 * in the interrupt, and again after the softirq. So the timer is an ordinary one, and a
 * NAPI context does what they are for, in the order in which they fired: the softirq in
 * which it runs is the one that receives what is handed over.
 */
static LIST_HEAD(gw_all_due);
static DEFINE_SPINLOCK(gw_all_due_lock);
static struct net_device *gw_napi_dev;
static struct napi_struct gw_napi;

static int gw_poll(struct napi_struct *napi, int budget)
{
	int served;

	for (served = 0; served < budget && !list_empty(&gw_all_due); served++) {
		struct gw_due *due;

		spin_lock_irq(&gw_all_due_lock);
		due = list_first_entry_or_null(&gw_all_due, struct gw_due, list);
		if (due)
			list_del_init(&due->list);
		spin_unlock_irq(&gw_all_due_lock);
		if (due)
			due->serve(due);
	}
	if (served < budget)
		napi_complete(napi);
	return served;
}

/* From a timer's handler: it is served in a softirq. */
void gw_is_due(struct gw_due *due)
{
	spin_lock(&gw_all_due_lock);
	if (list_empty(&due->list))
		list_add_tail(&due->list, &gw_all_due);
	spin_unlock(&gw_all_due_lock);
	napi_schedule(&gw_napi);
}

void gw_is_not_due(struct gw_due *due)
{
	spin_lock_irq(&gw_all_due_lock);
	list_del_init(&due->list);
	spin_unlock_irq(&gw_all_due_lock);
}

static enum hrtimer_restart gw_timer(struct hrtimer *timer)
{
	struct gw_port *p = container_of(timer, struct gw_port, timer);
	struct sk_buff *skb = READ_ONCE(p->flight_head);

	/* A frame that was long on its way has left the processor's caches */
	if (skb) {
		prefetch(skb_shinfo(skb));
		prefetch(skb->data);
	}
	gw_is_due(&p->due);
	return HRTIMER_NORESTART;
}

void gw_link_init(struct gw_port *p)
{
	p->armed_ns = U64_MAX;
	INIT_LIST_HEAD(&p->due.list);
	p->due.serve = gw_serve;
	hrtimer_init(&p->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_PINNED);
	p->timer.function = gw_timer;
}

/* Nothing more happens at the port by itself. */
void gw_link_stop(struct gw_port *p)
{
	hrtimer_cancel(&p->timer);
	gw_is_not_due(&p->due);
	p->armed_ns = U64_MAX;
}

int gw_link_module_init(void)
{
	gw_napi_dev = alloc_netdev_dummy(0);
	if (!gw_napi_dev)
		return -ENOMEM;
	netif_napi_add(gw_napi_dev, &gw_napi, gw_poll);
	napi_enable(&gw_napi);
	return 0;
}

void gw_link_module_exit(void)
{
	napi_disable(&gw_napi);
	netif_napi_del(&gw_napi);
	free_netdev(gw_napi_dev);
}
