// SPDX-License-Identifier: GPL-2.0
/* gwport_droptail.c	Drop-tail; with k_bytes also DCTCP's step (RFC 8257). */

#include "gwport_discipline.h"
#include "gwport_queue.h"

const struct gw_discipline gw_droptail = {
	.can_bypass	= true,
	.admit		= gw_admit_to_buffer,
};
