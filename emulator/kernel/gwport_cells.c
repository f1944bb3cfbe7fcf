// SPDX-License-Identifier: GPL-2.0
/*
 * gwport_cells.c	Virtual output queues at the ingress, requests and grants, and a fabric of
 *			cells (gwcells.h), between the ports of a switch.
 *
 * A port's queues are those at the cards, by card, behind its own first one, in which packets
 * are whole and wait for its transmitter. All of them are the port's backlog. A card's buffer
 * is for what waits in its queues for any port.
 */

#include <linux/slab.h>

#include "gwport_cells.h"
#include "gwport_discipline.h"
#include "gwport_link.h"
#include "gwport_queue.h"
#include "gwport_switch.h"

struct gw_chassis {
	struct gwcells		cells;
	struct gw_switch	*sw;
	struct xarray		ports;	/* struct gwcells_port, by ifindex */
	u64			*waiting;	/* bytes, by card */
	u64			armed_ns;
	struct hrtimer		timer;
	struct gw_due		due;
};

/* A packet's bytes on the port's line. */
static u32 gw_line_bytes(const struct gw_port *p, const struct sk_buff *skb)
{
	return max(skb->len, p->min_frame_bytes) + p->overhead_bytes;
}

static struct gw_queue *gw_card_queue(struct gw_port *p, u32 card)
{
	return &p->class[0].queues[1 + card];
}

static u32 gw_first_of_card(void *of, u32 card)
{
	struct gw_port *p = of;
	struct sk_buff *skb = gw_card_queue(p, card)->head;

	return skb ? gw_line_bytes(p, skb) : 0;
}

static void *gw_take_of_card(void *of, u32 card, u64 t, u32 *bytes)
{
	struct gw_port *p = of;
	struct sk_buff *skb = gw_queue_unlink(gw_card_queue(p, card));

	p->sw->chassis->waiting[card] -= skb->len;
	*bytes = skb->len;
	return skb;
}

static void gw_is_whole(void *of, void *what, u64 t)
{
	struct gw_port *p = of;

	gw_update(p, t);
	gw_queue_offer(p, p->class[0].queues, what);
	gw_update(p, t);
	gw_arm_timer(p);
}

static void gw_arm_chassis(struct gw_chassis *chassis)
{
	u64 next = gwcells_next(&chassis->cells);

	if (next == chassis->armed_ns)
		return;
	chassis->armed_ns = next;
	if (next == GWCELLS_NEVER)
		hrtimer_try_to_cancel(&chassis->timer);
	else
		hrtimer_start(&chassis->timer, ns_to_ktime(next), HRTIMER_MODE_ABS_PINNED);
}

static void gw_serve_chassis(struct gw_due *due)
{
	struct gw_chassis *chassis = container_of(due, struct gw_chassis, due);

	spin_lock(&chassis->sw->lock);
	chassis->armed_ns = GWCELLS_NEVER;
	gwcells_run(&chassis->cells, ktime_get_ns());
	gw_arm_chassis(chassis);
	spin_unlock(&chassis->sw->lock);
}

static enum hrtimer_restart gw_chassis_timer(struct hrtimer *timer)
{
	gw_is_due(&container_of(timer, struct gw_chassis, timer)->due);
	return HRTIMER_NORESTART;
}

/* A packet that was made on this node is as if it had come in by the port's own card. */
static u32 gw_card_of(struct gw_port *p, const struct sk_buff *skb)
{
	struct gw_port *in = gw_cb(skb)->ingress ? gw_switch_port(p->sw, gw_cb(skb)->ingress) : NULL;

	return in && in->cells ? in->opt.card : p->opt.card;
}

static u32 gw_cells_queue_index(struct gw_port *p, struct sk_buff *skb)
{
	return 1 + gw_card_of(p, skb);
}

static int gw_cells_admit(struct gw_port *p, struct gw_queue *q, struct sk_buff *skb, u64 now)
{
	struct gw_chassis *chassis = p->sw->chassis;

	gwcells_run(&chassis->cells, now);
	return chassis->waiting[gw_card_of(p, skb)] + skb->len > p->buffer_bytes ?
		GWPORT_DROP_BUFFER : GW_ADMITTED;
}

static void gw_cells_hold(struct gw_port *p, struct gw_queue *q, struct sk_buff *skb, u64 now)
{
	struct gw_chassis *chassis = p->sw->chassis;
	u32 card = gw_card_of(p, skb);

	chassis->waiting[card] += skb->len;
	gw_queue_append(q, skb);
	gw_queue_count(p, skb);
	gwcells_ask(&chassis->cells, p->cells, card, gw_line_bytes(p, skb), now);
	gw_arm_chassis(chassis);
}

static int gw_cells_validate(const struct tc_gwport_qopt *opt, struct netlink_ext_ack *extack)
{
	if (opt->queues < 2 || opt->card >= opt->queues - 1)
		NL_SET_ERR_MSG(extack, "gwport: the card must be one of them");
	else if (!opt->fabric_bps || !opt->fabric_links || opt->fabric_links > 4096)
		NL_SET_ERR_MSG(extack, "gwport: a card has 1 to 4096 links with a rate above 0");
	else if (!opt->cell_bytes || !opt->quantum_bytes)
		NL_SET_ERR_MSG(extack, "gwport: cells and grants must be above 0");
	else
		return 0;
	return -EINVAL;
}

static struct gw_chassis *gw_chassis_make(struct gw_switch *sw, const struct gwcells_settings *set)
{
	struct gw_chassis *chassis = kzalloc(sizeof(*chassis), GFP_KERNEL);

	if (!chassis)
		return NULL;
	chassis->sw = sw;
	chassis->armed_ns = GWCELLS_NEVER;
	chassis->cells.first = gw_first_of_card;
	chassis->cells.take = gw_take_of_card;
	chassis->cells.deliver = gw_is_whole;
	chassis->due.serve = gw_serve_chassis;
	INIT_LIST_HEAD(&chassis->due.list);
	xa_init(&chassis->ports);
	hrtimer_init(&chassis->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_PINNED);
	chassis->timer.function = gw_chassis_timer;
	chassis->waiting = kcalloc(set->cards, sizeof(*chassis->waiting), GFP_KERNEL);
	if (!gwcells_init(&chassis->cells, set) || !chassis->waiting) {
		gw_chassis_free(chassis);
		return NULL;
	}
	return chassis;
}

/* The last port is gone, and its packets. */
void gw_chassis_free(struct gw_chassis *chassis)
{
	struct gwcells_port *port;
	unsigned long i;

	if (!chassis)
		return;
	hrtimer_cancel(&chassis->timer);
	gw_is_not_due(&chassis->due);
	xa_for_each(&chassis->ports, i, port)
		gwcells_free_port(&chassis->cells, port);
	xa_destroy(&chassis->ports);
	gwcells_free(&chassis->cells);
	kfree(chassis->waiting);
	kfree(chassis);
}

int gw_chassis_join(struct gw_port *p, struct netlink_ext_ack *extack)
{
	const struct tc_gwport_qopt *opt = &p->opt;
	const struct gwcells_settings set = {
		.link_bps	= opt->fabric_bps,
		.link_ns	= opt->fabric_ns,
		.links		= opt->fabric_links,
		.cards		= opt->queues - 1,
		.cell_bytes	= opt->cell_bytes,
		.header_bytes	= opt->cell_header_bytes,
		.credit_bytes	= opt->quantum_bytes,
	};
	struct gw_chassis *chassis = p->sw->chassis;
	struct gwcells_port *port;
	int err;

	if (!chassis) {
		chassis = gw_chassis_make(p->sw, &set);
		if (!chassis)
			return -ENOMEM;
		p->sw->chassis = chassis;
	} else if (memcmp(&chassis->cells.set, &set, sizeof(set))) {
		NL_SET_ERR_MSG(extack, "gwport: the ports of a switch have one fabric");
		return -EINVAL;
	}
	port = xa_load(&chassis->ports, p->dev->ifindex);
	if (!port) {
		port = gwcells_add_port(&chassis->cells, NULL, opt->card, opt->rate_bps);
		if (!port)
			return -ENOMEM;
		err = xa_err(xa_store(&chassis->ports, p->dev->ifindex, port, GFP_KERNEL));
		if (err) {
			gwcells_free_port(&chassis->cells, port);
			return err;
		}
	}
	spin_lock_bh(&p->sw->lock);
	port->of = p;
	port->card = opt->card;
	port->rate_bps = opt->rate_bps;
	p->cells = port;
	spin_unlock_bh(&p->sw->lock);
	return 0;
}

/* Steps that are set for it are of nobody; a port in its place goes on with them. */
void gw_chassis_leave(struct gw_port *p)
{
	if (!p->cells)
		return;
	spin_lock_bh(&p->sw->lock);
	if (p->cells->of == p)
		p->cells->of = NULL;
	spin_unlock_bh(&p->sw->lock);
}

struct sk_buff *gw_chassis_drop(struct gw_port *p)
{
	struct gw_chassis *chassis = p->sw->chassis;
	struct gwcells_packet *packet;
	struct sk_buff *skb;
	u32 card;

	for (card = 0; p->cells && card < chassis->cells.set.cards; card++) {
		if (gw_card_queue(p, card)->head) {
			u32 bytes;

			skb = gw_take_of_card(p, card, 0, &bytes);
			gw_queue_uncount(p, skb);
			return skb;
		}
		for (packet = p->cells->voq[card].first; packet; packet = packet->next) {
			skb = packet->what;
			packet->what = NULL;
			if (skb) {
				gw_queue_uncount(p, skb);
				return skb;
			}
		}
	}
	return NULL;
}

const struct gw_discipline gw_cells = {
	.single_class	= true,
	.validate	= gw_cells_validate,
	.queue_index	= gw_cells_queue_index,
	.admit		= gw_cells_admit,
	.hold		= gw_cells_hold,
};
