// SPDX-License-Identifier: GPL-2.0
/*
 * gwport_clock.c	When ports have something to do: one timer for all of them.
 *
 * Their events are in a heap with four children a node, which share a cache line. With a
 * timer for each port, whatever looked for a place in the kernel's tree of timers met as
 * many ports as that tree is high, all of them gone from the processor's caches. The heap
 * also tells which ports are next, so that these are fetched while others work.
 *
 * Packets are handed over in a softirq, but timers that run in one are programmed twice:
 * in the interrupt, and again after the softirq. So the timer is an ordinary one, and a
 * NAPI context does the ports' work: the softirq in which it runs is the one that receives
 * what is handed over.
 */

#include <linux/netdevice.h>
#include <linux/prefetch.h>

#include "gwport_port.h"

#define GW_CHILDREN	4
#define GW_NOWHERE	U32_MAX

struct gw_event {
	u64	time;
	u32	order;		/* of two at one time, the one that was set first is first */
	u32	place;		/* of its port */
};

/* A port's; not in the port, as the heap moves events of others than whose time is set */
struct gw_place {
	struct gw_port	*port;		/* NULL: free */
	u32		 event;		/* its index in gw_events, or GW_NOWHERE */
};

static DEFINE_SPINLOCK(gw_clock_lock);
static struct gw_event *gw_events;
static struct gw_place *gw_places;
static u32 gw_capacity;			/* of both */
static u32 gw_pending;			/* events */
static u32 gw_order;

static struct hrtimer gw_timer;
static u64 gw_programmed = U64_MAX;
static bool gw_working;			/* the timer is programmed when all work is done */
static struct net_device *gw_worker_dev;
static struct napi_struct gw_worker;

static bool gw_before(const struct gw_event *a, const struct gw_event *b)
{
	return a->time != b->time ? a->time < b->time : (s32)(a->order - b->order) < 0;
}

static void gw_put(u32 i, struct gw_event event)
{
	gw_events[i] = event;
	gw_places[event.place].event = i;
}

/* Put event, for which there is room at i, to where it belongs. */
static void gw_sift(u32 i, struct gw_event event)
{
	u32 parent, child, last, least;

	for (; i; i = parent) {
		parent = (i - 1) / GW_CHILDREN;
		if (!gw_before(&event, &gw_events[parent]))
			break;
		gw_put(i, gw_events[parent]);
	}
	for (;; i = least) {
		child = i * GW_CHILDREN + 1;
		if (child >= gw_pending)
			break;
		last = min(child + GW_CHILDREN, gw_pending);
		for (least = child++; child < last; child++)
			if (gw_before(&gw_events[child], &gw_events[least]))
				least = child;
		if (!gw_before(&gw_events[least], &event))
			break;
		gw_put(i, gw_events[least]);
	}
	gw_put(i, event);
}

static void gw_remove(u32 i)
{
	gw_places[gw_events[i].place].event = GW_NOWHERE;
	if (i < --gw_pending)
		gw_sift(i, gw_events[gw_pending]);
}

static void gw_program(void)
{
	u64 next = gw_pending ? gw_events[0].time : U64_MAX;

	if (gw_working || next == gw_programmed)
		return;
	gw_programmed = next;
	if (next == U64_MAX)
		hrtimer_try_to_cancel(&gw_timer);
	else
		hrtimer_start(&gw_timer, ns_to_ktime(next), HRTIMER_MODE_ABS_PINNED);
}

/* Have gw_step(p) called at this time, and at no other; U64_MAX: not at all. */
void gw_clock_set(struct gw_port *p, u64 time)
{
	struct gw_event event = { .time = time, .place = p->place };
	unsigned long flags;
	u32 i;

	spin_lock_irqsave(&gw_clock_lock, flags);
	i = gw_places[p->place].event;
	if (time != U64_MAX) {
		event.order = gw_order++;
		gw_sift(i == GW_NOWHERE ? gw_pending++ : i, event);
	} else if (i != GW_NOWHERE) {
		gw_remove(i);
	}
	gw_program();
	spin_unlock_irqrestore(&gw_clock_lock, flags);
}

/* The next port that has something to do by now, or NULL. */
static struct gw_port *gw_due(u64 now)
{
	struct gw_port *p = NULL;

	spin_lock_irq(&gw_clock_lock);
	if (gw_pending && gw_events[0].time <= now) {
		p = gw_places[gw_events[0].place].port;
		gw_remove(0);
	}
	spin_unlock_irq(&gw_clock_lock);
	return p;
}

static void gw_prefetch(const void *object, size_t bytes)
{
	const void *end = object + bytes;

	for (; object < end; object += SMP_CACHE_BYTES)
		prefetch(object);
}

/*
 * What a step waits for most is memory: its port, that port's frame, the frame's data, of
 * which each says where the next is. So of the next port all three are fetched, and of those
 * of which one will be next after it, what leads there.
 */
static void gw_look_ahead(void)
{
	u32 i, n = min(gw_pending, GW_CHILDREN + 1);

	for (i = 0; i < n; i++) {
		struct gw_port *p = gw_places[gw_events[i].place].port;
		struct sk_buff *skb = p->flight_head;

		gw_prefetch(p, offsetof(struct gw_port, max_bytes));
		if (!skb)
			continue;
		gw_prefetch(skb, sizeof(*skb));
		if (i == 0) {
			prefetch(skb->data);
			prefetch(skb_shinfo(skb));
			prefetch(skb->next);
		}
	}
}

static int gw_work(struct napi_struct *napi, int budget)
{
	struct gw_port *p;
	int steps;

	for (steps = 0; steps < budget && (p = gw_due(ktime_get_ns())); steps++) {
		gw_look_ahead();
		gw_step(p);
	}
	if (steps < budget) {
		napi_complete(napi);
		spin_lock_irq(&gw_clock_lock);
		gw_working = false;
		gw_program();
		spin_unlock_irq(&gw_clock_lock);
	}
	return steps;
}

static enum hrtimer_restart gw_timer_fires(struct hrtimer *timer)
{
	spin_lock(&gw_clock_lock);
	gw_working = true;
	gw_programmed = U64_MAX;
	spin_unlock(&gw_clock_lock);
	napi_schedule(&gw_worker);
	return HRTIMER_NORESTART;
}

static int gw_clock_grow(void)
{
	u32 capacity = max(64U, 2 * gw_capacity);
	struct gw_event *events = kvmalloc_array(capacity, sizeof(*events), GFP_KERNEL);
	struct gw_place *places = kvcalloc(capacity, sizeof(*places), GFP_KERNEL);
	int err = -ENOMEM;

	if (events && places) {
		spin_lock_irq(&gw_clock_lock);
		memcpy(events, gw_events, gw_pending * sizeof(*events));
		memcpy(places, gw_places, gw_capacity * sizeof(*places));
		swap(events, gw_events);
		swap(places, gw_places);
		gw_capacity = capacity;
		spin_unlock_irq(&gw_clock_lock);
		err = 0;
	}
	kvfree(events);
	kvfree(places);
	return err;
}

/* Under RTNL, as is gw_clock_leave() */
int gw_clock_join(struct gw_port *p)
{
	u32 i;

	for (i = 0; i < gw_capacity && gw_places[i].port; i++)
		;
	if (i == gw_capacity && gw_clock_grow())
		return -ENOMEM;
	gw_places[i] = (struct gw_place){ .port = p, .event = GW_NOWHERE };
	p->place = i;
	return 0;
}

void gw_clock_leave(struct gw_port *p)
{
	gw_clock_set(p, U64_MAX);
	gw_places[p->place].port = NULL;
}

int gw_clock_module_init(void)
{
	gw_worker_dev = alloc_netdev_dummy(0);
	if (!gw_worker_dev)
		return -ENOMEM;
	netif_napi_add(gw_worker_dev, &gw_worker, gw_work);
	napi_enable(&gw_worker);
	hrtimer_init(&gw_timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_PINNED);
	gw_timer.function = gw_timer_fires;
	return 0;
}

void gw_clock_module_exit(void)
{
	hrtimer_cancel(&gw_timer);
	napi_disable(&gw_worker);
	netif_napi_del(&gw_worker);
	free_netdev(gw_worker_dev);
	kvfree(gw_events);
	kvfree(gw_places);
}
