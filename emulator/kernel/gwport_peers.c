// SPDX-License-Identifier: GPL-2.0
/*
 * gwport_peers.c	Links whose two ends are in different kernels.
 *
 * The fabric can be divided among kernels that share one virtual time (arch/um/kernel/
 * peers.c). A link that is cut has a whole pair of devices in both of them. The port
 * that transmits (GWPORT_F_SENDS) is like any other, but what it starts to send is
 * written for the other kernel, with the time of its arrival; in its own kernel a frame
 * only takes the time that it takes. In the other kernel a port that stands for it
 * (GWPORT_F_LANDS) has the frame on its wire, and hands it over when it arrives.
 */

#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <asm/peers.h>

#include "gwport_port.h"

/* A frame as it is written: this, its linear part, its fragments. */
struct gw_written {
	u64	arrival_ns;	/* of um_peers_now() */
	u32	id;		/* of the port that sends */
	u32	len;
	u32	linear;
	u32	truesize;
	u32	hash;
	u32	priority;
	u16	csum_start;	/* from the frame's first byte */
	u16	csum_offset;
	u16	network;	/* offset of the network header */
	u16	control;
	__be16	protocol;
	u8	ip_summed;
	u8	fate;
	u8	class;
	u8	l4_hash : 1;
	u8	sw_hash : 1;
};

static DEFINE_XARRAY(gw_landings);	/* id -> port */

static u32 gw_channel_id(const struct gw_port *p)
{
	return lower_32_bits(p->opt.channel);
}

static unsigned int gw_channel_peer(const struct gw_port *p)
{
	return upper_32_bits(p->opt.channel);
}

/* Write a frame that has its time of arrival. The caller keeps it. */
void gw_peers_send(struct gw_port *p, struct sk_buff *skb)
{
	const struct gw_cb *cb = gw_cb(skb);
	struct iovec from[2 + MAX_SKB_FRAGS];
	struct gw_written w = {
		.arrival_ns	= um_peers_now() + cb->time - ktime_get_ns(),
		.id		= gw_channel_id(p),
		.len		= skb->len,
		.linear		= skb_headlen(skb),
		.truesize	= skb->truesize,
		.hash		= skb->hash,
		.priority	= skb->priority,
		.network	= skb_network_offset(skb),
		.control	= cb->control,
		.protocol	= skb->protocol,
		.ip_summed	= skb->ip_summed,
		.fate		= cb->fate,
		.class		= cb->class,
		.l4_hash	= skb->l4_hash,
		.sw_hash	= skb->sw_hash,
	};
	int i, n = 0;

	if (WARN_ON_ONCE(skb_has_frag_list(skb)))
		return;
	if (skb->ip_summed == CHECKSUM_PARTIAL) {
		w.csum_start = skb_checksum_start_offset(skb);
		w.csum_offset = skb->csum_offset;
	}
	from[n++] = (struct iovec) { &w, sizeof(w) };
	from[n++] = (struct iovec) { skb->data, w.linear };
	for (i = 0; i < skb_shinfo(skb)->nr_frags; i++) {
		const skb_frag_t *frag = &skb_shinfo(skb)->frags[i];

		from[n++] = (struct iovec) { skb_frag_address(frag), skb_frag_size(frag) };
	}
	um_peers_write(gw_channel_peer(p), w.arrival_ns, from, n);
}

/* Room for a frame as it was written: its linear part, and pages for the rest. */
static struct sk_buff *gw_room_for(const struct gw_written *w, struct iovec *to, int *n)
{
	struct sk_buff *skb = alloc_skb(LL_MAX_HEADER + w->linear, GFP_ATOMIC);
	u32 left = w->len - w->linear;
	int i;

	if (!skb)
		return NULL;
	skb_reserve(skb, LL_MAX_HEADER);
	to[(*n)++] = (struct iovec) { skb_put(skb, w->linear), w->linear };
	for (i = 0; left; i++) {
		struct page *page = i < MAX_SKB_FRAGS ? alloc_page(GFP_ATOMIC) : NULL;
		u32 size = min_t(u32, left, PAGE_SIZE);

		if (!page) {
			kfree_skb(skb);
			return NULL;
		}
		skb_add_rx_frag(skb, i, page, 0, size, PAGE_SIZE);
		to[(*n)++] = (struct iovec) { page_address(page), size };
		left -= size;
	}
	return skb;
}

static void gw_describe(struct sk_buff *skb, const struct gw_written *w)
{
	skb_reset_mac_header(skb);
	skb_set_network_header(skb, w->network);
	skb->protocol = w->protocol;
	skb->priority = w->priority;
	skb->hash = w->hash;
	skb->l4_hash = w->l4_hash;
	skb->sw_hash = w->sw_hash;
	/* What its receiver's socket is charged, as if it were the sender's */
	skb->truesize = w->truesize;
	if (w->ip_summed == CHECKSUM_PARTIAL)
		skb_partial_csum_set(skb, w->csum_start, w->csum_offset);
	else
		skb->ip_summed = w->ip_summed;
}

/* The frame is on the wire of its port, if that is there. */
static void gw_put_on_wire(struct sk_buff *skb, const struct gw_written *w)
{
	struct gw_port *p = xa_load(&gw_landings, w->id);
	struct gw_cb *cb = gw_cb(skb);

	if (!p) {
		kfree_skb(skb);
		return;
	}
	memset(cb, 0, sizeof(*cb));
	cb->time = ktime_get_ns() + w->arrival_ns - um_peers_now();
	cb->class = w->class;
	cb->fate = w->fate;
	cb->control = w->control;
	skb->dev = p->dev;

	spin_lock(&p->sw->lock);
	skb->next = NULL;
	if (p->flight_head)
		p->flight_tail->next = skb;
	else
		p->flight_head = skb;
	p->flight_tail = skb;
	p->flight_packets++;
	gw_arm(p);
	spin_unlock(&p->sw->lock);
}

static void gw_read(unsigned int peer, u64 bytes)
{
	struct iovec to[2 + MAX_SKB_FRAGS];
	struct gw_written w, next;

	to[0] = (struct iovec) { &w, sizeof(w) };
	um_peers_read(peer, to, 1);
	bytes -= sizeof(w);
	for (;;) {
		struct sk_buff *skb;
		int n = 0;

		skb = gw_room_for(&w, to, &n);
		if (!skb)
			panic("Out of memory: no room for a frame of %u bytes of another kernel",
			      w.len);
		bytes -= w.len;
		/* The next frame's head comes with this frame: one call of the host for each */
		if (bytes)
			to[n++] = (struct iovec) { &next, sizeof(next) };
		um_peers_read(peer, to, n);
		gw_describe(skb, &w);
		gw_put_on_wire(skb, &w);
		if (!bytes)
			return;
		bytes -= sizeof(next);
		w = next;
	}
}

bool gw_channel_makes_sense(const struct tc_gwport_qopt *opt)
{
	bool sends = opt->flags & GWPORT_F_SENDS, lands = opt->flags & GWPORT_F_LANDS;

	if (!opt->channel)
		return !sends && !lands;
	return sends != lands && upper_32_bits(opt->channel) < um_peers_count();
}

int gw_channel_open(struct gw_port *p)
{
	if (!(p->opt.flags & GWPORT_F_LANDS))
		return 0;
	return xa_insert(&gw_landings, gw_channel_id(p), p, GFP_KERNEL);
}

void gw_channel_close(struct gw_port *p)
{
	if (p->opt.flags & GWPORT_F_LANDS)
		xa_cmpxchg(&gw_landings, gw_channel_id(p), p, NULL, GFP_KERNEL);
}

void gw_peers_module_init(void)
{
	um_peers_set_reader(gw_read);
}
