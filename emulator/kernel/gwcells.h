/* SPDX-License-Identifier: GPL-2.0 */
/*
 * gwcells.h	The fabric inside of a switch with virtual output queues: line cards, fabric
 *		elements, and a link each way between each card and each element.
 *
 * A packet waits at the card that it came in by, in a queue for its egress port. The queue
 * asks that port; the port grants credits at its rate, round robin; what has credits is cut
 * into cells, which take the card's links in turn, and is whole again at the egress card.
 *
 *	ingress card            fabric elements          egress card
 *	queue of a port  -- request ----------------->   credits, round robin
 *	                 <----------------- grant ----
 *	                 == cells == [ ] == cells ====>  whole packets, in their order
 *
 * Only integers and the caller's packets: the kernel calls it for its ports
 * (gwport_cells.c); the packet engine compiles the same file. Times are ns.
 *
 * Everything happens in order of time, but only when somebody asks for it: gwcells_run()
 * does all that falls until now, and gwcells_next() says when to come back at the latest.
 */
#ifndef _GWCELLS_H
#define _GWCELLS_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stdint.h>
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;
#endif

#define GWCELLS_NEVER	(~0ULL)

struct gwcells_settings {
	u64	link_bps;	/* of a fabric link, each way */
	u64	link_ns;	/* its delay; requests and grants take two of them */
	u64	credit_bytes;	/* of a grant at most, as bytes of the egress port's line */
	u32	links;		/* of a card: one to each fabric element */
	u32	cards;
	u32	cell_bytes;	/* what a cell carries at most; the last one of a packet, the rest */
	u32	header_bytes;	/* of a cell, beside that */
};

/* A line is free at ns + frac/rate */
struct gwcells_line {
	u64	ns;
	u64	frac;
};

struct gwcells_port;

/* The cells of a packet that take one link */
struct gwcells_run {
	struct gwcells_packet	*packet;
	struct gwcells_line	line;	/* of the link to the element, up to its next cell */
	u32			link;
	u32			cells;	/* that have not come to the element */
	bool			ends;	/* with the packet's last cell */
};

/* A packet in the fabric */
struct gwcells_packet {
	struct gwcells_packet	*next;	/* of its queue, in the order in which they left it */
	struct gwcells_voq	*voq;
	void			*what;	/* the caller's; NULL: it is gone */
	u64			ready;	/* when the last of the cells that the elements had is there */
	u32			left;	/* cells that they had not */
	u32			last_bytes;	/* carried by its last cell */
	struct gwcells_run	run[];
};

/* A card's queue for a port. Its packets are the caller's. */
struct gwcells_voq {
	struct gwcells_port	*port;
	u32			card;
	s64			balance;	/* credits; below 0: of the packet that left before */
	u64			wanted;		/* bytes asked for and not granted, as the port knows */
	struct gwcells_packet	*first, *last;	/* in the fabric */
	struct gwcells_packet	*open;		/* the first of them that is not known to be whole */
	u64			ready;		/* when the one before that is whole */
};

/* An egress port */
struct gwcells_port {
	void			*of;	/* the caller's */
	u32			card;
	u64			rate_bps;
	struct gwcells_line	granted;	/* until when its line has work */
	u64			due_ns;		/* when that has begun which was granted last: the next grant */
	bool			grants;		/* a grant is due */
	u32			turn;
	u64			wanted;		/* of all its queues */
	struct gwcells_voq	voq[];		/* by card */
};

enum gwcells_what {
	GWCELLS_REQUEST,	/* comes to the port */
	GWCELLS_GRANT,		/* by the port */
	GWCELLS_CREDIT,		/* comes to the queue */
	GWCELLS_CELL,		/* comes to the element */
	GWCELLS_WHOLE,		/* a packet is */
};

struct gwcells_event {
	u64			time;
	u64			number;	/* those of one time are in the order in which they were set */
	void			*of;
	u32			bytes;
	enum gwcells_what	what;
};

struct gwcells_heap {
	struct gwcells_event	*event;
	u32			count;
	u32			room;
};

struct gwcells {
	struct gwcells_settings	set;
	struct gwcells_heap	steps;	/* all that is not seen outside */
	struct gwcells_heap	wholes;
	u64			number;
	struct gwcells_line	*up;	/* by card and link: to the element */
	struct gwcells_line	*down;	/* .. and from it */
	u32			*turn;	/* by card: the link that its next cell takes */
	u64			cells;	/* that were sent */

	/* The first packet of a card's queue for a port: its bytes on the port's line; 0: none */
	u32	(*first)(void *of, u32 card);
	/* .. leaves the queue at t; its bytes */
	void	*(*take)(void *of, u32 card, u64 t, u32 *bytes);
	/* A packet is whole at its port */
	void	(*deliver)(void *of, void *what, u64 t);
};

bool gwcells_init(struct gwcells *c, const struct gwcells_settings *set);
void gwcells_free(struct gwcells *c);
struct gwcells_port *gwcells_add_port(const struct gwcells *c, void *of, u32 card, u64 rate_bps);
void gwcells_free_port(const struct gwcells *c, struct gwcells_port *port);

/* So many bytes of the port's line begin to wait in a card's queue. All until now was done. */
void gwcells_ask(struct gwcells *c, struct gwcells_port *port, u32 card, u32 bytes, u64 now);
void gwcells_run(struct gwcells *c, u64 now);
u64 gwcells_next(const struct gwcells *c);

#endif
