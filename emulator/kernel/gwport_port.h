/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The data of the gwport qdisc: a packet, a queue, a class, a port, the switch that the
 * port belongs to, and what a discipline has to provide.
 *
 * Each header includes only those above it:
 *
 *	gwport_port.h		data
 *	gwport_counters.h	drops, the backlog over time
 *	gwport_queue.h		FIFOs, classes, round robin, marks
 *	gwport_link.h		transmitter and wire, pauses obeyed
 *	gwport_switch.h		the ports of one switch
 *	gwport_cells.h		.. and the fabric between them
 *	gwroute_switch.h	which of its next hops a packet takes
 *	gwport_discipline.h	the table of disciplines, one file each
 *	gwport_report.h		what user space reads
 */
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

/* The fate of a frame that is on the wire */
enum gw_outcome {
	GW_DELIVER,
	GW_LOSE,	/* a fault of the link */
	GW_PAUSE,	/* a pause frame: the neighbour's port takes it */
};

/* A packet's load on its way through the port, in skb->cb after the qdisc's own part. */
struct gw_cb {
	u64	time;		/* of enqueue; once started: of arrival at the far end */
	u32	ingress;	/* ifindex that it came in by, 0: made on this node */
	u8	class;
	u8	outcome;	/* enum gw_outcome */
	u16	pause;		/* pause frame: classes << 8 | classes to be paused */
};

/* CoDel's state of one queue (RFC 8289 section 5.3) */
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
	struct gw_class	 *class;
	s64		  deficit;
	struct list_head  active;	/* in gw_class.new_flows or .old_flows while it has packets */
	struct gw_codel	  codel;
};

struct gw_class {
	struct gw_queue	 *queues;
	const struct gw_discipline *discipline;
	const struct tc_gwport_qopt *opt;	/* the port's, unless classes have their own */
	u64		  bytes;
	u64		  max_bytes;
	s64		  deficit;	/* of classes that are served by weight */
	u64		  red_avg;	/* bytes, Q16 */
	struct list_head  new_flows;	/* RFC 8290 section 4.2 */
	struct list_head  old_flows;
	u32		  packets;
	/* as an egress */
	u64		  paused_at;
	u64		  paused_ns;
	u64		  tx_bytes;
	u64		  tx_packets;
	u64		  drops;
	u64		  ecn_marks;
	u64		  spent;	/* credits: bytes that have a place at the far end */
	/* as an ingress: bytes that came in by this port and wait anywhere in the switch */
	u64		  ingress_bytes;
	bool		  xoff_sent;
};

/* Places that become free at a port's ingress, or are taken there: when its neighbour hears of it. */
struct gw_credit {
	struct gw_credit *next;
	u64		  time;
	s64		  bytes;
	u8		  class;
};

/* A port at a sampling point, and the deepest backlog since the sample before. */
struct gw_sample {
	u64	time;
	u64	backlog;
	u64	peak;
	u64	tx_bytes;
	u64	drops;
	u32	marks;
	u32	paused;
};

/* A page of samples: they cost what they hold. */
struct gw_sample_block {
	struct list_head	list;
	struct gw_sample	sample[];
};

#define GW_BLOCK_SAMPLES \
	((PAGE_SIZE - sizeof(struct gw_sample_block)) / sizeof(struct gw_sample))

/*
 * All ports of one network namespace. Its lock guards every port's state; it
 * nests inside a qdisc's lock, and no qdisc's lock is ever taken under it.
 */
struct gw_switch {
	spinlock_t	lock;
	struct xarray	ports;		/* by ifindex */
	u64		bytes;		/* waiting at shared and lossless ports */
	u64		headroom;	/* reserved by lossless ports */
	struct gw_route	*route;		/* how it chooses next hops; NULL: by the kernel's hash */
	struct gw_chassis *chassis;	/* the fabric between its ports; NULL: it has none */
	struct ctl_table_header *route_sysctls;
};

struct gw_port;

/* Work for the softirq that receives what is handed over, since a timer has fired. */
struct gw_due {
	struct list_head	list;
	void			(*serve)(struct gw_due *due);
};

/*
 * The decisions of a discipline. All that is not set is as in a FIFO: one queue per class,
 * first come, first served. Functions are called under the switch's lock; q is the queue
 * of the packet, now the present, t the moment at which a packet leaves (not after now).
 */
struct gw_discipline {
	bool	single_class;	/* DSCP is not looked at */
	bool	has_flows;	/* a queue that becomes active goes before those that were served */
	bool	shares_buffer;	/* other ports depend on when packets leave this one */
	bool	can_bypass;	/* a packet that need not wait leaves no trace in its queues */

	/* Refuse options with a reason, or return 0; NULL: all are taken */
	int	(*validate)(const struct tc_gwport_qopt *opt, struct netlink_ext_ack *extack);

	/* Which of its class's queues a packet waits in; NULL: the first */
	u32	(*queue_index)(struct gw_port *p, struct sk_buff *skb);

	/*
	 * Take a packet that arrives, and mark it; or return why it is dropped (enum
	 * gwport_drop), GW_ADMITTED otherwise.
	 */
	int	(*admit)(struct gw_port *p, struct gw_queue *q, struct sk_buff *skb, u64 now);

	/* Mark a packet that is admitted, with what stood in its queue; NULL: none is */
	void	(*mark)(struct gw_port *p, struct gw_queue *q, struct sk_buff *skb);

	/* q's next packet, marked, and what was ahead of it dropped; NULL: the first of all */
	struct sk_buff *(*dequeue)(struct gw_port *p, struct gw_queue *q, u64 t);

	/*
	 * For those that share a buffer: a packet begins to wait, and waits no longer. And
	 * whether a packet may do both within one moment; it is then as if it had.
	 */
	void	(*charge)(struct gw_port *p, struct sk_buff *skb, u64 now);
	void	(*uncharge)(struct gw_port *p, struct sk_buff *skb, u64 t);

	/* A packet that is admitted is not to be sent yet, but to wait in q meanwhile; NULL: it is */
	void	(*hold)(struct gw_port *p, struct gw_queue *q, struct sk_buff *skb, u64 now);

	/* These too: a transmission begins; a packet of so many bytes is at the far end, without a lock */
	void	(*transmit)(struct gw_port *p, struct sk_buff *skb, u64 t);
	void	(*arrived)(struct gw_port *p, u8 class, u32 len, u64 now);
	bool	(*bypass)(struct gw_port *p, struct sk_buff *skb);
};

#define GW_ADMITTED	(-1)

/*
 * A port is not in its Qdisc but from a cache of its own: an allocator of powers of two
 * puts the same field of all ports into the same sets of the processor's caches, which
 * then evict each other. Fields that every packet needs come first, and together.
 */
struct gw_port {
	struct Qdisc		*sch;
	struct gw_switch	*sw;

	u64			 backlog_bytes;	/* all classes */
	u32			 backlog_packets;
	u8			 backlogged;	/* bit per class that has packets */
	u8			 paused;	/* bit per class */
	bool			 single_class;	/* these as in struct gw_discipline */
	bool			 shares_buffer;
	bool			 can_bypass;	/* see gw_bypass() */
	bool			 by_class;	/* each class has a queue discipline of its own */
	bool			 faulty;	/* the link is down, or loses or corrupts packets */

	struct net_device	*dev;
	struct sk_buff		*pause_head;	/* pause frames to be sent, before any packet */

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
	struct gw_credit	*credit_head;	/* for the neighbour, in order of time */

	u64			 armed_ns;
	struct hrtimer		 timer;
	struct gw_due		 due;

	/* Parts of opt, for every packet */
	u64			 rate_bps;
	u64			 delay_ns;	/* in all */
	u64			 buffer_bytes;
	u32			 class_map;
	u32			 overhead_bytes;
	u32			 min_frame_bytes;

	u64			 max_backlog_bytes;
	u64			 peak_bytes;	/* the same since the last sample */
	struct list_head	 samples;	/* blocks, all full but the last */
	u64			 next_sample_ns;
	u64			 sample_interval_ns;	/* opt's, or coarser; 0: no samples */
	u64			 first_sample_ns;	/* the sampling points' origin */
	u64			 account_ns;
	u64			 byte_ns;	/* remainder of st.backlog_byte_us */
	struct tc_gwport_xstats	 st;		/* what is sent and delivered comes first */

	struct tc_gwport_qopt	 opt;
	struct gw_class		 class[GWPORT_CLASSES];
	struct gw_queue		*queues;
	struct tc_gwport_qopt	*class_opt;	/* of every class, or NULL: all have the port's */
	u64			 headroom_bytes;	/* of all its classes */
	u8			 weighted;	/* bit per class that is served by weight */
	u8			 turn;		/* the weighted class whose turn it is */

	struct sk_buff		*pause_tail;
	struct gw_credit	*credit_tail;
	struct gwcells_port	*cells;		/* as an egress of its switch's fabric */
	u64			 since_ns;
	u64			 paused_at;
	bool			 stalled;	/* the device refused the head of the flight */
	u64			 stalled_until;	/* .. for the last time */
	u32			 ordinal;	/* of this port among those of its switch */
	u32			 n_samples;

	struct list_head	 listed;	/* among all ports */
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

/* The backlog that q's discipline compares with its limit: of its class, or of the whole port. */
static inline u64 gw_backlog(const struct gw_port *p, const struct gw_queue *q)
{
	return p->by_class ? q->class->bytes : p->backlog_bytes;
}

/* One draw of the port's random numbers, unless q32 is 0 or stands for 1 */
static inline bool gw_chance(struct gw_port *p, u32 q32)
{
	return q32 && (q32 == U32_MAX || prandom_u32_state(&p->random) < q32);
}

#endif
