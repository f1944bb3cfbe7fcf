/* SPDX-License-Identifier: GPL-2.0 */
/*
 * rxe_congestion.h	What a device and a queue pair of rxe have for congestion control.
 */
#ifndef _RXE_CONGESTION_H
#define _RXE_CONGESTION_H

#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/skbuff.h>
#include <linux/spinlock.h>
#include <linux/sysfs.h>

#include "rxe_paths.h"
#include "rxe_rate.h"
#include "rxe_selective.h"

struct rxe_qp;
struct rxe_dev;
struct rxe_pkt_info;

/* Settings of a device; a queue pair keeps what holds when it is made. All 64 bits, as its first part. */
struct rxe_congestion_settings {
	struct rxe_rate_settings rate;
	u64	ecn;			/* requests are ECN-capable */
	u64	window_bytes;		/* unacknowledged payload; 0: RXE_MAX_UNACKED_PSNS */
	u64	window_by_rate;		/* .. times rate / line rate */
	u64	ack_every;		/* packets */
	u64	int_hops;		/* HPCC: room for so many */
	u64	selective;		/* selective repeat, not go-back-N */
	u64	reordering_ns;		/* .. what is missed for longer is lost */
	struct rxe_entropy_settings entropy;
	u64	trim;			/* ports may cut the payload of requests */
	u64	sample_interval_ns;	/* 0: none */
	u64	sample_capacity;
};

struct rxe_rate_sample {
	u64	time_ns;
	u64	rate_bps;
	u32	qpn;
	u32	unused;
};

struct rxe_device_congestion {
	struct rxe_congestion_settings set;
	spinlock_t		lock;		/* guards what follows */
	struct list_head	blocks;		/* of samples, all full but the last */
	u64			samples;
	u64			samples_lost;
};

#define RXE_SENT_TIMES	1024

struct rxe_congestion {
	struct rxe_congestion_settings set;
	union {
		struct rxe_dcqcn	dcqcn;
		struct rxe_timely	timely;
		struct rxe_hpcc		hpcc;
		struct rxe_dctcp	dctcp;
		struct rxe_nscc		nscc;
	};

	/* Pacing: the last request began at started_q8 (ns * 256), with so many bits */
	u64			started_q8;
	u64			bits;
	struct hrtimer		timer;

	u64			cnp_after_ns;	/* as a receiver: none before */
	u32			round_psn;	/* a round is over when it is acknowledged */
	bool			in_round;
	u64			sampled_ns;
	u64			sampled_bps;

	/* TIMELY, NSCC: when requests had left the port */
	struct rxe_sent_time {
		u32	psn;
		bool	known;
		u64	time_ns;
	}			*sent;

	/* The request that an acknowledgement being built answers: its telemetry goes back */
	struct sk_buff		*answered;

	struct rxe_selective	selective;
	struct rxe_paths	paths;
};

void rxe_congestion_init_device(struct rxe_dev *rxe);
void rxe_congestion_free_device(struct rxe_dev *rxe);
int rxe_congestion_init(struct rxe_dev *rxe, struct rxe_qp *qp);
void rxe_congestion_stop(struct rxe_qp *qp);
void rxe_congestion_free(struct rxe_qp *qp);

enum hrtimer_restart rxe_congestion_wake(struct rxe_qp *qp);
bool rxe_congestion_waits(struct rxe_qp *qp);
void rxe_congestion_sent(struct rxe_qp *qp, struct rxe_pkt_info *pkt);
u32 rxe_congestion_window(struct rxe_qp *qp);
bool rxe_congestion_wants_ack(struct rxe_qp *qp);
void rxe_congestion_left_port(struct rxe_qp *qp, struct sk_buff *skb);
void rxe_congestion_acked(struct rxe_qp *qp, u32 psn, struct sk_buff *skb);
void rxe_congestion_heard(struct rxe_qp *qp, u32 psn, u32 packets, bool marked, bool trimmed);
void rxe_congestion_lost(struct rxe_qp *qp);
void rxe_congestion_received(struct rxe_qp *qp, struct rxe_pkt_info *pkt, struct sk_buff *skb);
void rxe_congestion_cnp(struct rxe_qp *qp);

u8 rxe_congestion_tos(struct rxe_qp *qp, struct rxe_pkt_info *pkt, u8 traffic_class);
u32 rxe_int_room(struct rxe_qp *qp, u32 mask);
void rxe_int_put(struct rxe_qp *qp, struct rxe_pkt_info *pkt, struct sk_buff *skb);

extern struct device_attribute rxe_congestion_attribute;
extern struct bin_attribute rxe_rates_attribute;

#endif
