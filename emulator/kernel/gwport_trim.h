/* SPDX-License-Identifier: GPL-2.0 */
/*
 * gwport_trim.h	The DSCPs of packet trimming, and what is left of a packet.
 *
 * Linux's queue pairs and ports agree on them here; Ultra Ethernet and MRC leave the numbers to who
 * runs a fabric.
 */
#ifndef _GWPORT_TRIM_H
#define _GWPORT_TRIM_H

#ifdef __KERNEL__
#include <linux/types.h>
#endif

#define GW_TOS_TRIMMABLE	0x04	/* beside the class selector of a packet */
#define GW_TOS_DSCP_LOW		0x1c	/* what a class selector leaves of the DSCP */
#define GW_TOS_TRIMMED		0xe8	/* class selector 7 */
#define GW_TOS_TRIMMED_LAST	0xec	/* .. by the port of a host */
#define GW_TOS_CONTROL		0xe0	/* acknowledgements of queue pairs whose packets are trimmed */

/* IPv4 20, UDP 8, base transport header 12, RETH 16, immediate 4 */
#define GW_TRIMMED_BYTES	60

static inline bool gw_may_trim(u8 tos)
{
	return (tos & GW_TOS_DSCP_LOW) == GW_TOS_TRIMMABLE;
}

static inline bool gw_is_trimmed(u8 tos)
{
	return (tos & ~0x3) == GW_TOS_TRIMMED || (tos & ~0x3) == GW_TOS_TRIMMED_LAST;
}

static inline bool gw_is_trimmed_last(u8 tos)
{
	return (tos & ~0x3) == GW_TOS_TRIMMED_LAST;
}

#endif
