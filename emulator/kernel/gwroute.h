/* SPDX-License-Identifier: GPL-2.0 */
/*
 * gwroute.h	How a switch chooses among equal next hops, where it is not by the kernel's
 * own hash: pure functions in integers.
 *
 * The kernel calls them for each packet that it forwards (gwroute_switch.c); the packet
 * engine and tests compile the same files for user space. Times are ns.
 *
 *	gwroute_choose.c	one of several, by chance, in turn or by queue
 *	gwroute_spray.c		anew for each packet
 *	gwroute_flowlet.c	anew for what a flow sends after a pause
 *	gwroute_adaptive.c	once for a flow, and anew when its queue grows
 *	gwroute_source.c	as the packet says
 */
#ifndef _GWROUTE_H
#define _GWROUTE_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stdint.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;
#endif

#define GWROUTE_MOST_HOPS	64
#define GWROUTE_FLOWS		16384	/* entries of a switch's table of flows */

/*
 * A switch that has had nothing to choose for so long begins anew, as it was made: so what
 * it does in a collective does not depend on what ranks said before they began.
 */
#define GWROUTE_REST_NS		5000000ULL

enum gwroute_kind {
	GWROUTE_HASH,	/* the kernel's own */
	GWROUTE_SPRAY,
	GWROUTE_FLOWLET,
	GWROUTE_ADAPTIVE,
	GWROUTE_SOURCE,
	__GWROUTE_KINDS
};

enum gwroute_by {
	GWROUTE_RANDOM,
	GWROUTE_ROUND_ROBIN,
	GWROUTE_LEAST_OF_TWO,
	GWROUTE_LEAST,
	__GWROUTE_BYS
};

/* All of them 64 bits: user space writes them in this order (topologies/routing/choices.py) */
struct gwroute_settings {
	u64	kind;		/* enum gwroute_kind */
	u64	by;		/* enum gwroute_by */
	u64	seed;		/* of this switch */
	u64	gap_ns;		/* flowlet: a longer pause of a flow begins a new one */
	u64	threshold_bytes;	/* adaptive: more than so much behind the least queue */
	u64	hold_ns;	/* adaptive: between two moves of a flow */
	u64	stride;		/* source: of this switch's digit of a packet's number */
};

/* A switch's memory of a flow, or of several that share an entry */
struct gwroute_flow {
	u64	last_ns;	/* its last packet */
	u64	moved_ns;	/* since when it has this hop */
	u32	hop;		/* 1 + its id; 0: none */
};

struct gwroute_state {
	struct gwroute_settings	set;
	u64			random;
	struct gwroute_flow	*flows;	/* GWROUTE_FLOWS; NULL: this kind has none */
	u64			last_ns;	/* when it last chose */
	u64			began_ns;	/* since when it has not rested */
	u64			choices;
	u64			moves;	/* flows that went on by another hop */
};

/* The count of turns among the same next hops */
struct gwroute_turn {
	u64	count;
	u64	began_ns;	/* as the switch's, when it was counted */
};

/* The next hops that a packet may take */
struct gwroute_hops {
	u32	count;
	u32	id[GWROUTE_MOST_HOPS];	/* each hop's own, always the same */
	struct gwroute_turn *turn;	/* of these hops */
	u32	number;			/* that the packet has: the sum of its ports */
	/* The bytes that wait at a hop, times two, and 1 for a transmitter that is busy */
	u64	(*load)(void *of, u32 hop);
	void	*of;
};

static inline u64 gwroute_mix(u64 z)	/* Steele et al., OOPSLA 2014: splitmix64's finaliser */
{
	z += 0x9e3779b97f4a7c15ULL;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

/* A flow's entry: addresses as numbers, ports as source << 16 | destination */
static inline u64 gwroute_flow_key(u32 source, u32 destination, u32 ports, u8 protocol)
{
	u64 key = gwroute_mix((u64)source << 32 | destination);

	return gwroute_mix(key ^ ((u64)ports << 8 | protocol));
}

void gwroute_begin(struct gwroute_state *s);
u32 gwroute_below(struct gwroute_state *s, u32 count);
u32 gwroute_choose(struct gwroute_state *s, const struct gwroute_hops *hops);
u32 gwroute_least(struct gwroute_state *s, const struct gwroute_hops *hops);
u32 gwroute_position(const struct gwroute_state *s, const struct gwroute_hops *hops,
		     const struct gwroute_flow *flow);

/* Which of the hops a packet of this flow takes now */
u32 gwroute_spray(struct gwroute_state *s, const struct gwroute_hops *hops, u64 key, u64 now);
u32 gwroute_flowlet(struct gwroute_state *s, const struct gwroute_hops *hops, u64 key, u64 now);
u32 gwroute_adaptive(struct gwroute_state *s, const struct gwroute_hops *hops, u64 key, u64 now);
u32 gwroute_source(const struct gwroute_state *s, const struct gwroute_hops *hops);
u32 gwroute_take(struct gwroute_state *s, const struct gwroute_hops *hops, u64 key, u64 now);

#endif
