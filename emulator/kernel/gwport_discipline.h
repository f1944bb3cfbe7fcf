/* SPDX-License-Identifier: GPL-2.0 */
/* The queue disciplines, one file each or two of a kind. docs/howto/add-a-queue-discipline.md */
#ifndef _GWPORT_DISCIPLINE_H
#define _GWPORT_DISCIPLINE_H

#include "gwport_port.h"

extern const struct gw_discipline gw_droptail;	/* gwport_droptail.c */
extern const struct gw_discipline gw_red;	/* gwport_red.c */
extern const struct gw_discipline gw_codel;	/* gwport_codel.c */
extern const struct gw_discipline gw_fq_codel;
extern const struct gw_discipline gw_shared;	/* gwport_shared.c */
extern const struct gw_discipline gw_voq;	/* gwport_voq.c */
extern const struct gw_discipline gw_lossless;	/* gwport_lossless.c */
extern const struct gw_discipline gw_credits;	/* gwport_credits.c */
extern const struct gw_discipline gw_cells;	/* gwport_cells.c */

/* RED's line, for others that mark by it */
bool gw_red_hits(struct gw_port *p, const struct gw_class *c, u64 queue_q16);

#endif
