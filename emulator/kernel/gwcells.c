// SPDX-License-Identifier: GPL-2.0
/*
 * gwcells.c	Requests, grants and cells of a switch with virtual output queues (gwcells.h).
 *
 * A queue sends its next packet as soon as its balance of credits is above 0, and pays for all
 * of it. It asks for each byte once and is granted each once, so balances come back to 0.
 */

#include "gwcells.h"

#ifdef __KERNEL__
#include <linux/bug.h>
#include <linux/minmax.h>
#include <linux/slab.h>
#include <linux/string.h>
#define gwcells_alloc(type, bytes)	((type *)kzalloc(bytes, GFP_ATOMIC))
#define gwcells_drop(p)			kfree(p)
#define gwcells_bug(condition)		WARN_ON_ONCE(condition)
#else
#include <stdlib.h>
#include <string.h>
#define gwcells_alloc(type, bytes)	((type *)calloc(1, bytes))
#define gwcells_drop(p)			free(p)
#define gwcells_bug(condition)		(condition)
#endif

/* The first ns at which the line is free. */
static u64 gwcells_free_at(const struct gwcells_line *line)
{
	return line->ns + (line->frac ? 1 : 0);
}

static void gwcells_begin(struct gwcells_line *line, u64 t)
{
	if (gwcells_free_at(line) > t)
		return;
	line->ns = t;
	line->frac = 0;
}

/* Takes so many bytes of a line; when their last bit has left. */
static u64 gwcells_occupy(struct gwcells_line *line, u64 bytes, u64 rate_bps)
{
	u64 bits = bytes * 8 * 1000000000ULL;

	line->ns += bits / rate_bps;
	line->frac += bits % rate_bps;
	if (line->frac >= rate_bps) {
		line->frac -= rate_bps;
		line->ns++;
	}
	return gwcells_free_at(line);
}

static bool gwcells_before(const struct gwcells_event *a, const struct gwcells_event *b)
{
	return a->time != b->time ? a->time < b->time : a->number < b->number;
}

static void gwcells_push(struct gwcells *c, struct gwcells_heap *heap, u64 time,
			 enum gwcells_what what, void *of, u32 bytes)
{
	struct gwcells_event event = { .time = time, .number = c->number++, .of = of,
				       .bytes = bytes, .what = what };
	u32 i;

	if (heap->count == heap->room) {
		u32 room = heap->room ? 2 * heap->room : 64;
		struct gwcells_event *more = gwcells_alloc(struct gwcells_event, room * sizeof(*more));

		if (gwcells_bug(!more))
			return;
		if (heap->count)
			memcpy(more, heap->event, heap->count * sizeof(*more));
		gwcells_drop(heap->event);
		heap->event = more;
		heap->room = room;
	}
	for (i = heap->count++; i && gwcells_before(&event, &heap->event[(i - 1) / 4]); i = (i - 1) / 4)
		heap->event[i] = heap->event[(i - 1) / 4];
	heap->event[i] = event;
}

static struct gwcells_event gwcells_pop(struct gwcells_heap *heap)
{
	struct gwcells_event first = heap->event[0], last = heap->event[--heap->count];
	u32 i = 0;

	for (;;) {
		u32 child = 4 * i + 1, least = child, n;

		if (child >= heap->count)
			break;
		for (n = child + 1; n < child + 4 && n < heap->count; n++)
			if (gwcells_before(&heap->event[n], &heap->event[least]))
				least = n;
		if (!gwcells_before(&heap->event[least], &last))
			break;
		heap->event[i] = heap->event[least];
		i = least;
	}
	heap->event[i] = last;
	return first;
}

/* The bytes that a run's next cell carries. */
static u32 gwcells_carries(const struct gwcells *c, const struct gwcells_run *run)
{
	return run->ends && run->cells == 1 ? run->packet->last_bytes : c->set.cell_bytes;
}

/* A run's next cell is on its way to the element. */
static void gwcells_send_cell(struct gwcells *c, struct gwcells_run *run)
{
	u32 bytes = gwcells_carries(c, run) + c->set.header_bytes;
	u64 left = gwcells_occupy(&run->line, bytes, c->set.link_bps);

	gwcells_push(c, &c->steps, left + c->set.link_ns, GWCELLS_CELL, run, bytes);
}

/* A packet is cut into cells, which take the card's links in turn. */
static void gwcells_spray(struct gwcells *c, struct gwcells_voq *voq, void *what, u32 bytes, u64 t)
{
	u32 cells = (bytes + c->set.cell_bytes - 1) / c->set.cell_bytes;
	u32 runs = cells < c->set.links ? cells : c->set.links, i;
	u32 *turn = &c->turn[voq->card];
	struct gwcells_packet *packet;

	packet = gwcells_alloc(struct gwcells_packet,
			       sizeof(*packet) + runs * sizeof(packet->run[0]));
	if (gwcells_bug(!packet))
		return c->deliver(voq->port->of, what, t);
	packet->voq = voq;
	packet->what = what;
	packet->left = cells;
	packet->last_bytes = bytes - (cells - 1) * c->set.cell_bytes;
	if (voq->first)
		voq->last->next = packet;
	else
		voq->first = packet;
	voq->last = packet;
	if (!voq->open)
		voq->open = packet;
	c->cells += cells;
	for (i = 0; i < runs; i++) {
		struct gwcells_run *run = &packet->run[i];
		struct gwcells_line *line;
		u64 all;

		run->packet = packet;
		run->link = (*turn + i) % c->set.links;
		run->cells = (cells - i + c->set.links - 1) / c->set.links;
		run->ends = (cells - 1) % c->set.links == i;
		line = &c->up[voq->card * c->set.links + run->link];
		gwcells_begin(line, t);
		run->line = *line;
		all = (u64)run->cells * (c->set.cell_bytes + c->set.header_bytes);
		if (run->ends)
			all -= c->set.cell_bytes - packet->last_bytes;
		gwcells_occupy(line, all, c->set.link_bps);
		gwcells_send_cell(c, run);
	}
	*turn = (*turn + cells) % c->set.links;
}

/* An element has a cell, which waits for the link to the egress card. */
static void gwcells_at_element(struct gwcells *c, struct gwcells_run *run, u32 bytes, u64 t)
{
	struct gwcells_packet *packet = run->packet;
	struct gwcells_voq *voq = packet->voq;
	struct gwcells_line *line = &c->down[voq->port->card * c->set.links + run->link];
	u64 there;

	gwcells_begin(line, t);
	there = gwcells_occupy(line, bytes, c->set.link_bps) + c->set.link_ns;
	if (there > packet->ready)
		packet->ready = there;
	packet->left--;
	if (--run->cells)
		gwcells_send_cell(c, run);
	/* The first that left a queue goes on first */
	while (voq->open && !voq->open->left) {
		if (voq->open->ready > voq->ready)
			voq->ready = voq->open->ready;
		gwcells_push(c, &c->wholes, voq->ready, GWCELLS_WHOLE, voq, 0);
		voq->open = voq->open->next;
	}
}

/* The first packet of a queue that is in the fabric is whole. */
static void gwcells_whole(struct gwcells *c, struct gwcells_voq *voq, u64 t)
{
	struct gwcells_packet *packet = voq->first;

	voq->first = packet->next;
	if (packet->what)
		c->deliver(voq->port->of, packet->what, t);
	gwcells_drop(packet);
}

/*
 * The port grants to the next queue that wants something, as fast as its line is, and one grant
 * ahead: the line stays busy although cells wait for each other.
 */
static void gwcells_grant(struct gwcells *c, struct gwcells_port *port, u64 t)
{
	struct gwcells_voq *voq;
	u32 bytes;

	do {
		port->turn = (port->turn + 1) % c->set.cards;
		voq = &port->voq[port->turn];
	} while (!voq->wanted);
	bytes = voq->wanted < c->set.credit_bytes ? voq->wanted : c->set.credit_bytes;
	voq->wanted -= bytes;
	port->wanted -= bytes;
	gwcells_push(c, &c->steps, t + 2 * c->set.link_ns, GWCELLS_CREDIT, voq, bytes);
	gwcells_begin(&port->granted, t);
	port->due_ns = gwcells_free_at(&port->granted);
	gwcells_occupy(&port->granted, bytes, port->rate_bps);
	port->grants = port->wanted;
	if (port->grants)
		gwcells_push(c, &c->steps, port->due_ns, GWCELLS_GRANT, port, 0);
}

static void gwcells_asked(struct gwcells *c, struct gwcells_voq *voq, u32 bytes, u64 t)
{
	struct gwcells_port *port = voq->port;

	voq->wanted += bytes;
	port->wanted += bytes;
	if (port->grants)
		return;
	port->grants = true;
	gwcells_push(c, &c->steps, port->due_ns > t ? port->due_ns : t, GWCELLS_GRANT, port, 0);
}

static void gwcells_credited(struct gwcells *c, struct gwcells_voq *voq, u32 bytes, u64 t)
{
	void *of = voq->port->of;

	voq->balance += bytes;
	while (voq->balance > 0) {
		u32 line_bytes = of ? c->first(of, voq->card) : 0, length;
		void *what;

		if (!line_bytes) {	/* its packets were lost with the port */
			voq->balance = 0;
			break;
		}
		voq->balance -= line_bytes;
		what = c->take(of, voq->card, t, &length);
		gwcells_spray(c, voq, what, length, t);
	}
}

void gwcells_ask(struct gwcells *c, struct gwcells_port *port, u32 card, u32 bytes, u64 now)
{
	gwcells_push(c, &c->steps, now + 2 * c->set.link_ns, GWCELLS_REQUEST, &port->voq[card],
		     bytes);
}

/* Do all that falls until now, in order. */
void gwcells_run(struct gwcells *c, u64 now)
{
	for (;;) {
		bool whole = c->wholes.count &&
			     (!c->steps.count ||
			      gwcells_before(&c->wholes.event[0], &c->steps.event[0]));
		struct gwcells_heap *heap = whole ? &c->wholes : &c->steps;
		struct gwcells_event event;

		if (!heap->count || heap->event[0].time > now)
			return;
		event = gwcells_pop(heap);
		switch (event.what) {
		case GWCELLS_REQUEST:
			gwcells_asked(c, (struct gwcells_voq *)event.of, event.bytes, event.time);
			break;
		case GWCELLS_GRANT:
			gwcells_grant(c, (struct gwcells_port *)event.of, event.time);
			break;
		case GWCELLS_CREDIT:
			gwcells_credited(c, (struct gwcells_voq *)event.of, event.bytes, event.time);
			break;
		case GWCELLS_CELL:
			gwcells_at_element(c, (struct gwcells_run *)event.of, event.bytes,
					   event.time);
			break;
		case GWCELLS_WHOLE:
			gwcells_whole(c, (struct gwcells_voq *)event.of, event.time);
			break;
		}
	}
}

/* Nothing is seen outside before: each step is a link's delay at least before a packet is whole. */
u64 gwcells_next(const struct gwcells *c)
{
	u64 next = c->wholes.count ? c->wholes.event[0].time : GWCELLS_NEVER;
	u64 step = c->steps.count ? c->steps.event[0].time + c->set.link_ns : GWCELLS_NEVER;

	return step < next ? step : next;
}

bool gwcells_init(struct gwcells *c, const struct gwcells_settings *set)
{
	size_t lines = (size_t)set->cards * set->links;

	c->set = *set;
	c->up = gwcells_alloc(struct gwcells_line, lines * sizeof(*c->up));
	c->down = gwcells_alloc(struct gwcells_line, lines * sizeof(*c->down));
	c->turn = gwcells_alloc(u32, set->cards * sizeof(*c->turn));
	return c->up && c->down && c->turn;
}

void gwcells_free(struct gwcells *c)
{
	gwcells_drop(c->up);
	gwcells_drop(c->down);
	gwcells_drop(c->turn);
	gwcells_drop(c->steps.event);
	gwcells_drop(c->wholes.event);
}

struct gwcells_port *gwcells_add_port(const struct gwcells *c, void *of, u32 card, u64 rate_bps)
{
	struct gwcells_port *port;
	u32 i;

	port = gwcells_alloc(struct gwcells_port,
			     sizeof(*port) + c->set.cards * sizeof(port->voq[0]));
	if (!port)
		return NULL;
	port->of = of;
	port->card = card;
	port->rate_bps = rate_bps;
	for (i = 0; i < c->set.cards; i++) {
		port->voq[i].port = port;
		port->voq[i].card = i;
	}
	return port;
}

/* Its packets in the fabric are the caller's no more. */
void gwcells_free_port(const struct gwcells *c, struct gwcells_port *port)
{
	u32 i;

	for (i = 0; i < c->set.cards; i++) {
		struct gwcells_packet *packet = port->voq[i].first, *next;

		for (; packet; packet = next) {
			next = packet->next;
			gwcells_drop(packet);
		}
	}
	gwcells_drop(port);
}
