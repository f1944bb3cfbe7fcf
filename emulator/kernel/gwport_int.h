/* SPDX-License-Identifier: GPL-2.0 */
/*
 * gwport_int.h	In-band telemetry: what ports write into packets that ask for it.
 *
 * It lies behind the UDP datagram, within the IP packet (the surplus area of RFC 9868): a
 * header, and room for so many hops. Each port on the way fills one when it begins to send
 * the packet. A receiver sends it back in the same place. In the network's order of bytes on
 * the wire; struct gw_int_hop is what it says, in the processor's.
 */
#ifndef _GWPORT_INT_H
#define _GWPORT_INT_H

#define GW_INT_MAX_HOPS		8
#define GW_INT_QUEUE_UNIT	256
#define GW_INT_UDP_PORT		4791

enum gw_int_what {
	GW_INT_ASKED = 0x49,	/* ports write */
	GW_INT_ECHO = 0x45,	/* ports leave it alone */
};

#define GW_INT_HEADER_BYTES	4	/* what, hops filled, hops there is room for, 0 */
#define GW_INT_HOP_BYTES	12
#define GW_INT_MAX_BYTES	(GW_INT_HEADER_BYTES + GW_INT_MAX_HOPS * GW_INT_HOP_BYTES)

struct gw_int_hop {
	u32	time_ns;	/* when its transmission began, modulo 2^32 */
	u32	tx_bytes;	/* L1 bytes that the port had sent until then, modulo 2^32 */
	u16	queue;		/* what waited there, in units of 256 bytes, at most 2^16 - 1 */
	u16	rate_100mbps;
};

#endif
