/* SPDX-License-Identifier: GPL-2.0 */
/* Inside of the gwport qdisc: a port, its queues, and the switch that it belongs to. */
#ifndef _GWPORT_PORT_H
#define _GWPORT_PORT_H

#include <linux/hrtimer.h>
#include <linux/netdevice.h>
#include <linux/prandom.h>
#include <linux/siphash.h>
#include <linux/skbuff.h>
#include <linux/xarray.h>
#include <net/pkt_sched.h>

#include "gwport.h"

/* What a packet carries through the port, in skb->cb after the qdisc's own part. */
struct gw_cb {
	u64	time;		/* of enqueue; once started: of arrival at the far end */
	u32	ingress;	/* ifindex that it came in by, 0: made on this node */
	u8	class;
	u8	fate;		/* GW_DELIVER .. */
	u16	control;	/* pause frame: classes << 8 | classes to be paused */
};

enum { GW_DELIVER, GW_LOSE, GW_CONTROL };

/* Codel's state of one queue (RFC 8289 section 5.3) */
struct gw_codel {
	u64	first_above;
	u64	drop_next;
	u32	count;
	u32	last_count;
	bool	dropping;
};

struct gw_queue {
	struct sk_buff	 *head;
	struct sk_buff	 *tail;
	u64		  bytes;
	s64		  deficit;
	struct list_head  turn;		/* in gw_class.fresh or .served while it has packets */
	struct gw_codel	  codel;
};

struct gw_class {
	struct gw_queue	 *queues;
	struct list_head  fresh;	/* RFC 8290 section 4.2: new and old flows */
	struct list_head  served;
	u32		  packets;
	/* as an egress */
	u64		  paused_at;
	u64		  paused_ns;
	u64		  tx_bytes;
	u64		  drops;
	/* as an ingress: bytes that came in by this port and wait anywhere in the switch */
	u64		  ingress_bytes;
	bool		  xoff_sent;
};

struct gw_sample {
	u64	time;
	u64	backlog;
	u64	marks;
	u64	paused;
};

/*
 * All ports of one network namespace. Its lock guards every port's state; it
 * nests inside a qdisc's lock, and no qdisc's lock is ever taken under it.
 */
struct gw_switch {
	spinlock_t	lock;
	struct xarray	ports;		/* by ifindex */
	u64		bytes;		/* waiting at shared and lossless ports */
	u64		headroom;	/* reserved by lossless ports */
};

/*
 * A port is not in its Qdisc but from a cache of its own: an allocator of powers of two
 * puts the same field of all ports into the same sets of the processor's caches, which
 * then evict each other. What every packet needs comes first, and together.
 */
struct gw_port {
	struct Qdisc		*sch;
	struct gw_switch	*sw;

	u64			 bytes;		/* waiting, all classes */
	u32			 packets;
	u8			 waiting;	/* bit per class that has packets */
	u8			 paused;	/* bit per class */
	bool			 eager;	/* other ports depend on when packets leave this one */
	bool			 plain;	/* FIFOs without a state of their own: gw_passes() */
	bool			 faulty;	/* the link is down, or loses or corrupts packets */

	struct net_device	*dev;
	struct sk_buff		*control_head;	/* pause frames to be sent, before any packet */

	/* The transmitter is free at free_ns + free_frac/rate ns */
	u64			 free_ns;
	u64			 free_frac;
	u64			 idle_since_ns;	/* 0: not idle */
	struct sk_buff		*sending;	/* in transmission and still owned by a socket */

	/* How long a frame takes is asked again and again for the same size */
	u64			 last_ns;
	u64			 last_frac;
	u32			 last_wire;

	/* In transmission or on the wire, in order of arrival */
	u32			 flight_packets;
	struct sk_buff		*flight_head;
	struct sk_buff		*flight_tail;

	u64			 armed_ns;
	struct hrtimer		 timer;
	struct list_head	 due;		/* among the ports whose timers have fired */

	/* What opt says, for every packet */
	u64			 rate_bps;
	u64			 delay_ns;	/* in all */
	u64			 buffer_bytes;
	u32			 overhead_bytes;
	u32			 min_frame_bytes;

	u64			 max_bytes;	/* largest backlog */
	struct gw_sample	*samples;
	u64			 next_sample_ns;
	u64			 account_ns;
	u64			 byte_ns;	/* remainder of st.backlog_byte_us */
	struct tc_gwport_xstats	 st;		/* what is sent and delivered comes first */

	struct tc_gwport_qopt	 opt;
	struct gw_class		 class[GWPORT_CLASSES];
	struct gw_queue		*queues;

	struct sk_buff		*control_tail;
	u64			 since_ns;
	u64			 paused_at;
	bool			 stalled;	/* the device refused the head of the flight */
	u64			 stalled_until;	/* .. for the last time */
	u32			 ordinal;	/* of this port among those of its switch */
	u32			 n_samples;

	/* RED */
	u64			 red_avg;	/* bytes, Q16 */

	struct rnd_state	 random;
	siphash_key_t		 flow_key;
	struct rcu_head		 rcu;
};

static inline struct gw_port *gw_port(struct Qdisc *sch)
{
	return *(struct gw_port **)qdisc_priv(sch);
}

static inline struct gw_cb *gw_cb(const struct sk_buff *skb)
{
	BUILD_BUG_ON(sizeof(struct gw_cb) > QDISC_CB_PRIV_LEN);
	return (struct gw_cb *)qdisc_skb_cb(skb)->data;
}

static inline bool gw_chance(struct gw_port *p, u32 q32)
{
	return q32 && (q32 == U32_MAX || prandom_u32_state(&p->random) < q32);
}

/* The first ns at which the transmitter is free. */
static inline u64 gw_ready_ns(const struct gw_port *p)
{
	return p->free_ns + (p->free_frac ? 1 : 0);
}

/* Whether anything may be sent. */
static inline bool gw_pickable(const struct gw_port *p)
{
	return p->control_head || (p->waiting & ~p->paused);
}

/* Whether a packet socket sees what this port sends. */
static inline bool gw_tapped(const struct gw_port *p)
{
	return dev_nit_active(p->dev);
}

extern struct Qdisc_ops gwport_qdisc_ops;

/* gwport_wire.c */
void gw_wire_init(struct gw_port *p);
void gw_wire_stop(struct gw_port *p);
void gw_start(struct gw_port *p, struct sk_buff *skb);
void gw_idle(struct gw_port *p, u64 now);
void gw_catch_up(struct gw_port *p, u64 now);
void gw_arm(struct gw_port *p);
int gw_wire_module_init(void);
void gw_wire_module_exit(void);

/* gwport_counters.c */
void gw_account_change(struct gw_port *p, u64 t);
void gw_count_drop(struct gw_port *p, struct sk_buff *skb, enum gwport_drop reason);
int gwport_dump_stats(struct Qdisc *sch, struct gnet_dump *d);

/* gwport_queue.c */
bool gw_passes(struct gw_port *p, struct sk_buff *skb, u64 now);
int gw_admit(struct gw_port *p, struct sk_buff *skb, u64 now);
struct sk_buff *gw_pick(struct gw_port *p, u64 t);

/* gwport_switch.c */
struct gw_switch *gw_switch_of(struct net *net);
int gw_switch_join(struct gw_port *p);
void gw_switch_leave(struct gw_port *p);
struct gw_port *gw_switch_port(struct gw_switch *sw, u32 ifindex);
bool gw_memory_pass(struct gw_port *p, struct sk_buff *skb);
void gw_memory_take(struct gw_port *p, struct sk_buff *skb, u64 now);
void gw_memory_give(struct gw_port *p, struct sk_buff *skb, u64 now);
void gw_pause(struct gw_port *p, u8 classes, u8 pause, u64 now);
void gw_pause_received(struct net_device *dev, u16 control);
int gw_switch_module_init(void);
void gw_switch_module_exit(void);

/* Let the port do all that it did until now. */
static inline void gw_run(struct gw_port *p, u64 now)
{
	if (gw_ready_ns(p) <= now)
		gw_catch_up(p, now);
}

/* Bring the backlog's integral and samples up to t; to be called before anything changes. */
static inline void gw_account(struct gw_port *p, u64 t)
{
	if (t <= p->account_ns)
		return;
	if (p->bytes || p->samples)
		gw_account_change(p, t);
	p->account_ns = t;
}

#endif
