/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * gwport: one qdisc that is the whole directed link of an egress port.
 *
 * User space writes this (TCA_OPTIONS > TCA_GWPORT_PARMS) and reads that back
 * (TCA_STATS2 > TCA_STATS_APP). emulator/ports/port_qdisc.py holds the same layout;
 * both structs are made of naturally aligned fields, 64-bit ones first, so they
 * have no holes on any 64-bit ABI.
 */
#ifndef _UAPI_LINUX_GWPORT_H
#define _UAPI_LINUX_GWPORT_H

#include <linux/types.h>

#define GWPORT_VERSION	4
#define GWPORT_CLASSES	8	/* DSCP class selectors 0..7; 7 is served first */

enum {
	TCA_GWPORT_UNSPEC,
	TCA_GWPORT_PARMS,	/* struct tc_gwport_qopt */
	TCA_GWPORT_CLASSES,	/* the same for each of GWPORT_CLASSES: its queue */
	__TCA_GWPORT_MAX
};
#define TCA_GWPORT_MAX (__TCA_GWPORT_MAX - 1)

enum gwport_kind {
	GWPORT_DROPTAIL,
	GWPORT_RED,
	GWPORT_DCTCP,
	GWPORT_CODEL,
	GWPORT_FQ_CODEL,
	GWPORT_SHARED,
	GWPORT_VOQ,
	GWPORT_LOSSLESS,
	GWPORT_CREDITS,
	GWPORT_CELLS,
	__GWPORT_KINDS
};

#define GWPORT_F_ECN	0x1	/* red, codel: mark what can be marked, do not drop it */
#define GWPORT_F_DOWN	0x2	/* fault: the link carries nothing */
#define GWPORT_F_COARSEN	0x4	/* samples: when there is no room, twice the interval */
#define GWPORT_F_TRIM	0x8	/* cut what has no room, and send its headers first */
#define GWPORT_F_LAST	0x10	/* the link leads to a host */

#define GWPORT_NEVER	(~0ULL)	/* k_bytes, ce_threshold_ns: no such threshold */

/*
 * Probabilities and the RED weight are Q32 (p * 2^32, at most 2^32 - 1, which
 * stands for 1); alpha is Q16.
 */
struct tc_gwport_qopt {
	__u64	rate_bps;	/* L1: preamble, FCS and gap included */
	__u64	delay_ns;	/* propagation, after the queue */
	__u64	buffer_bytes;	/* of the queue; of the switch for shared, lossless; of the far end for credits; of a card for cells */
	__u64	k_bytes;	/* step marking above this backlog */
	__u64	kmin_bytes;	/* red, lossless */
	__u64	kmax_bytes;	/* red, lossless (0: no such marks) */
	__u64	target_ns;	/* codel */
	__u64	interval_ns;	/* codel */
	__u64	ce_threshold_ns;	/* codel */
	__u64	xoff_bytes;	/* lossless, of this port as an ingress */
	__u64	xon_bytes;
	__u64	headroom_bytes;
	__u64	extra_delay_ns;	/* fault */
	__u64	seed;		/* of this port's random numbers */
	__u64	sample_interval_ns;	/* 0: no samples */
	__u64	fabric_bps;	/* cells: of a link inside of the switch */
	__u64	fabric_ns;	/* .. its delay */
	__u32	version;	/* GWPORT_VERSION */
	__u32	kind;		/* enum gwport_kind */
	__u32	flags;		/* GWPORT_F_* */
	__u32	overhead_bytes;	/* on the wire, beside skb->len: 24 for Ethernet */
	__u32	min_frame_bytes;	/* padding without FCS: 60 for Ethernet */
	__u32	queues;		/* voq: ingress ports + 1; cells: cards + 1; fq_codel: flows; else 1 */
	__u32	quantum_bytes;	/* voq, fq_codel; cells: of a grant */
	__u32	red_pmax_q32;
	__u32	red_weight_q32;
	__u32	alpha_q16;	/* shared */
	__u32	lossy_classes;	/* lossless: bit per class that may be lost */
	__u32	loss_q32;	/* fault: lost on the wire */
	__u32	corrupt_q32;	/* fault: discarded by the receiver's FCS check */
	__u32	sample_capacity;	/* samples kept */
	__u32	class_map;	/* 4 bits per class selector, 0 lowest: the class that serves it */
	__u32	class_quantum_bytes;	/* of a class: its share by round robin; 0: strict priority */
	__u32	card;		/* cells: of this port */
	__u32	fabric_links;	/* .. of a card */
	__u32	cell_bytes;	/* .. that a cell carries */
	__u32	cell_header_bytes;
};

enum gwport_drop {
	GWPORT_DROP_BUFFER,	/* no room */
	GWPORT_DROP_RED,	/* early */
	GWPORT_DROP_CODEL,	/* at the head */
	GWPORT_DROP_HEADROOM,	/* lossless: came in after headroom was used up */
	GWPORT_DROP_DOWN,	/* fault */
	GWPORT_DROP_LOSS,	/* fault */
	GWPORT_DROP_CORRUPT,	/* fault */
	GWPORT_DROP_RECEIVER,	/* the device at the far end did not take it */
	__GWPORT_DROPS
};

struct tc_gwport_xstats {
	__u64	tx_bytes;	/* frames whose transmission began, without overhead */
	__u64	tx_packets;
	__u64	wire_bytes;	/* the same with overhead, and pause frames */
	__u64	delivered_bytes;
	__u64	delivered_packets;
	__u64	drops[__GWPORT_DROPS];
	__u64	drop_bytes;
	__u64	ecn_marks;
	__u64	ecn_refused;	/* above the threshold but not ECN-capable */
	__u64	backlog_bytes;	/* waiting: neither in transmission nor in flight */
	__u64	backlog_packets;
	__u64	max_backlog_bytes;
	__u64	backlog_byte_us;	/* integral of the backlog over observed_ns */
	__u64	observed_ns;
	__u64	wait_sum_ns;	/* over tx_packets */
	__u64	wait_max_ns;
	__u64	inflight_packets;	/* in transmission or on the wire */
	__u64	pauses;		/* XOFF received; credits: too few for what is next */
	__u64	resumes;	/* XON received; credits: enough again */
	__u64	paused_ns;	/* any class paused, until now */
	__u64	class_paused_ns[GWPORT_CLASSES];
	__u64	class_tx_bytes[GWPORT_CLASSES];
	__u64	class_tx_packets[GWPORT_CLASSES];
	__u64	class_drops[GWPORT_CLASSES];
	__u64	class_ecn_marks[GWPORT_CLASSES];
	__u64	class_max_backlog_bytes[GWPORT_CLASSES];
	__u64	xoffs_sent;	/* by this port as an ingress */
	__u64	xons_sent;
	__u64	ingress_bytes;	/* came in by this port, wait in this switch */
	__u64	ingress_max_bytes;	/* of one class */
	__u64	switch_bytes;	/* waiting at all ports of this switch */
	__u64	late_packets;	/* delivered after their time: should be 0 */
	__u64	late_max_ns;
	__u64	samples_lost;
	__u64	trims;		/* packets that went on without their payload */
	__u64	trimmed_bytes;	/* .. and what was cut */
	__u32	paused_classes;	/* bit per class, now */
	__u32	samples;
};

#endif
