// SPDX-License-Identifier: GPL-2.0
/*
 * gwport_lossless.c	Priority flow control (IEEE 802.1Qbb) over a switch's packet memory.
 *
 * A lossless port counts, per class, the bytes that came in by it and wait anywhere in
 * the switch. Above XOFF it sends a pause frame to its neighbour, below XON one that
 * takes the pause back. A pause frame is a real frame on the link: it waits for the one
 * in transmission, goes before all that waits, is serialised and propagates; only then
 * does the neighbour's port stop, after the frame that it is sending. The pause lasts
 * until it is taken back, as with a switch that refreshes the quanta in time.
 */

#include <linux/etherdevice.h>

#include "gwport_discipline.h"
#include "gwport_link.h"
#include "gwport_queue.h"
#include "gwport_switch.h"

#define MAC_CONTROL_PFC	0x0101

/* IEEE 802.1Q figure 36-3: class-enable vector, then the quanta of each class */
static struct sk_buff *gw_pause_frame(struct net_device *dev, u8 class, bool xoff)
{
	struct sk_buff *skb = alloc_skb(NET_SKB_PAD + ETH_ZLEN, GFP_ATOMIC);
	__be16 *words;

	if (!skb)
		return NULL;
	skb_reserve(skb, NET_SKB_PAD);
	words = skb_put_zero(skb, ETH_ZLEN) + ETH_HLEN;
	words[0] = htons(MAC_CONTROL_PFC);
	words[1] = htons(BIT(class));
	words[2 + class] = htons(xoff ? 0xffff : 0);
	skb->dev = dev;
	skb->protocol = htons(ETH_P_PAUSE);
	skb_reset_mac_header(skb);
	skb_set_network_header(skb, ETH_HLEN);
	eth_hdr(skb)->h_proto = htons(ETH_P_PAUSE);
	ether_addr_copy(eth_hdr(skb)->h_source, dev->dev_addr);
	ether_addr_copy(eth_hdr(skb)->h_dest, (const u8 []){ 0x01, 0x80, 0xc2, 0, 0, 1 });
	gw_cb(skb)->pause = BIT(class) << 8 | (xoff ? BIT(class) : 0);
	return skb;
}

static void gw_send_pause(struct gw_port *in, u8 class, bool xoff, u64 now)
{
	struct sk_buff *skb = gw_pause_frame(in->dev, class, xoff);

	if (!skb)	/* asked again by the next packet: xoff_sent is unchanged */
		return;
	gw_cb(skb)->class = class;
	in->class[class].xoff_sent = xoff;
	if (xoff)
		in->st.xoffs_sent++;
	else
		in->st.xons_sent++;
	gw_send_pause_frame(in, skb, now);
}

/* The count of bytes that came in by a port whose neighbour can be paused, else NULL. */
static struct gw_class *gw_ingress_class(struct gw_port *p, struct sk_buff *skb,
					 struct gw_port **in)
{
	const struct gw_cb *cb = gw_cb(skb);
	struct gw_class *c;

	if (!cb->ingress || (p->class[cb->class].opt->lossy_classes & BIT(cb->class)))
		return NULL;
	*in = gw_switch_port(p->sw, cb->ingress);
	if (!*in)
		return NULL;
	c = &(*in)->class[cb->class];
	return c->discipline == &gw_lossless ? c : NULL;
}

static int gw_lossless_admit(struct gw_port *p, struct gw_queue *q, struct sk_buff *skb, u64 now)
{
	u8 class = gw_cb(skb)->class;
	const struct tc_gwport_qopt *opt = q->class->opt;
	u64 room = opt->buffer_bytes;
	struct gw_port *in;

	if (opt->lossy_classes & BIT(class)) {
		/* must not take what keeps the others lossless */
		room = room > p->sw->headroom ? room - p->sw->headroom : 0;
	} else if (gw_cb(skb)->ingress) {
		in = gw_switch_port(p->sw, gw_cb(skb)->ingress);
		if (in && in->class[class].ingress_bytes + skb->len >
		    in->class[class].opt->xoff_bytes + in->class[class].opt->headroom_bytes)
			return GWPORT_DROP_HEADROOM;
	}
	return p->sw->bytes + skb->len > room ? GWPORT_DROP_BUFFER : GW_ADMITTED;
}

/* DCQCN's marks, on the queue that the packet finds (Zhu et al., SIGCOMM 2015, figure 5) */
static void gw_lossless_mark(struct gw_port *p, struct gw_queue *q, struct sk_buff *skb)
{
	if (q->class->opt->kmax_bytes && q->bytes && gw_red_hits(p, q->class, q->bytes << 16))
		gw_mark(p, skb);
}

static void gw_lossless_charge(struct gw_port *p, struct sk_buff *skb, u64 now)
{
	struct gw_port *in;
	struct gw_class *c = gw_ingress_class(p, skb, &in);

	p->sw->bytes += skb->len;
	if (!c)
		return;
	c->ingress_bytes += skb->len;
	in->st.ingress_max_bytes = max(in->st.ingress_max_bytes, c->ingress_bytes);
	if (!c->xoff_sent && c->ingress_bytes > c->opt->xoff_bytes)
		gw_send_pause(in, gw_cb(skb)->class, true, now);
}

static void gw_lossless_uncharge(struct gw_port *p, struct sk_buff *skb, u64 t)
{
	struct gw_port *in;
	struct gw_class *c = gw_ingress_class(p, skb, &in);

	p->sw->bytes -= skb->len;
	if (!c)
		return;
	/* Packets may outlive the port that they came in by; a new one starts from 0 */
	c->ingress_bytes -= min_t(u64, skb->len, c->ingress_bytes);
	if (c->xoff_sent && c->ingress_bytes < c->opt->xon_bytes)
		gw_send_pause(in, gw_cb(skb)->class, false, t);
}

/* All that passes within one moment must fit, and no pause frame may come of it. */
static bool gw_lossless_bypass(struct gw_port *p, struct sk_buff *skb)
{
	struct gw_queue *q = p->class[gw_cb(skb)->class].queues;
	struct gw_port *in;
	struct gw_class *c;

	if (gw_lossless_admit(p, q, skb, 0) != GW_ADMITTED)
		return false;
	c = gw_ingress_class(p, skb, &in);
	if (!c)
		return true;
	if (c->xoff_sent || c->ingress_bytes + skb->len > c->opt->xoff_bytes)
		return false;
	in->st.ingress_max_bytes = max(in->st.ingress_max_bytes, c->ingress_bytes + skb->len);
	return true;
}

const struct gw_discipline gw_lossless = {
	.shares_buffer	= true,
	.can_bypass	= true,
	.admit		= gw_lossless_admit,
	.mark		= gw_lossless_mark,
	.charge		= gw_lossless_charge,
	.uncharge	= gw_lossless_uncharge,
	.bypass		= gw_lossless_bypass,
};
