// SPDX-License-Identifier: GPL-2.0
/*
 * gwport_int.c	In-band telemetry: a port writes into packets that ask for it what it has
 * sent and what waits, at the moment at which their transmission begins.
 */

#include <linux/ip.h>
#include <linux/udp.h>
#include <linux/unaligned.h>
#include <net/ip.h>

#include "gwport_link.h"
#include "gwport_int.h"

/* Somebody may ask */
bool gw_int_used;

/* The place of a packet's telemetry, or NULL: it does not ask, or has no room left */
static u8 *gw_int_header(struct sk_buff *skb)
{
	const struct iphdr *ip = ip_hdr(skb);
	const struct udphdr *udp = (const void *)(ip + 1);
	u8 *header;
	int room;

	if (skb->protocol != htons(ETH_P_IP) || skb_is_nonlinear(skb) ||
	    skb_network_offset(skb) + sizeof(*ip) + sizeof(*udp) > skb->len ||
	    ip->ihl != 5 || ip->protocol != IPPROTO_UDP || ip_is_fragment(ip) ||
	    udp->dest != htons(GW_INT_UDP_PORT))
		return NULL;
	room = ntohs(ip->tot_len) - sizeof(*ip) - ntohs(udp->len);
	if (room < GW_INT_HEADER_BYTES ||
	    skb_network_offset(skb) + ntohs(ip->tot_len) > skb->len)
		return NULL;
	header = (u8 *)udp + ntohs(udp->len);
	if (header[0] != GW_INT_ASKED || header[1] >= header[2] ||
	    room < GW_INT_HEADER_BYTES + header[2] * GW_INT_HOP_BYTES)
		return NULL;
	return header;
}

void gw_int_stamp(struct gw_port *p, struct sk_buff *skb)
{
	u8 *header = gw_int_header(skb), *hop;

	if (!header)
		return;
	/* Others hold it as it was */
	if (skb_cloned(skb)) {
		if (pskb_expand_head(skb, 0, 0, GFP_ATOMIC))
			return;
		header = gw_int_header(skb);
	}
	hop = header + GW_INT_HEADER_BYTES + header[1]++ * GW_INT_HOP_BYTES;
	put_unaligned_be32(gw_ready_ns(p), hop);
	put_unaligned_be32(p->st.wire_bytes, hop + 4);
	put_unaligned_be16(min_t(u64, p->backlog_bytes / GW_INT_QUEUE_UNIT, U16_MAX), hop + 8);
	put_unaligned_be16(div_u64(p->rate_bps, 100000000), hop + 10);
}
