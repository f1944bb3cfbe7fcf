// SPDX-License-Identifier: GPL-2.0
/*
 * gwport_trim.c	Packet trimming: a packet for which a port has no room goes on without its
 * payload, before all others (Cheng et al., NSDI 2014; Handley et al., SIGCOMM 2017).
 *
 * Only packets whose senders say that they may be are: queue pairs of RoCE, by a DSCP.
 */

#include <linux/ip.h>
#include <linux/udp.h>
#include <net/inet_ecn.h>
#include <net/ip.h>

#include "gwport_int.h"
#include "gwport_queue.h"
#include "gwport_trim.h"

/* Cuts the payload. Whether the packet goes on. */
bool gw_trim(struct gw_port *p, struct sk_buff *skb)
{
	u32 offset = skb_network_offset(skb), old = skb->len;
	struct iphdr *ip = ip_hdr(skb);
	u8 ecn;
	struct udphdr *udp;

	if (skb->protocol != htons(ETH_P_IP) || skb_is_nonlinear(skb) ||
	    offset + GW_TRIMMED_BYTES >= skb->len || ip->ihl != 5 ||
	    ip->protocol != IPPROTO_UDP || !gw_may_trim(ip->tos))
		return false;
	udp = (struct udphdr *)(ip + 1);
	if (udp->dest != htons(GW_INT_UDP_PORT))
		return false;
	/* Others hold it as it was */
	if (skb_cloned(skb)) {
		if (pskb_expand_head(skb, 0, 0, GFP_ATOMIC))
			return false;
		ip = ip_hdr(skb);
		udp = (struct udphdr *)(ip + 1);
	}
	skb_trim(skb, offset + GW_TRIMMED_BYTES);
	ecn = INET_ECN_is_not_ect(ip->tos) ? 0 : INET_ECN_CE;
	if (p->opt.flags & GWPORT_F_LAST)
		ip->tos = GW_TOS_TRIMMED_LAST | ecn;
	else
		ip->tos = GW_TOS_TRIMMED | ecn;
	ip->tot_len = htons(GW_TRIMMED_BYTES);
	ip_send_check(ip);
	udp->len = htons(GW_TRIMMED_BYTES - sizeof(*ip));
	udp->check = 0;
	qdisc_skb_cb(skb)->pkt_len = skb->len;
	gw_cb(skb)->class = p->class_map >> 4 * (GW_TOS_TRIMMED >> 5) & 7;
	p->st.trims++;
	p->st.trimmed_bytes += old - skb->len;
	return true;
}
