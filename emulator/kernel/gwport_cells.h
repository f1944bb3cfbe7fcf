/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _GWPORT_CELLS_H
#define _GWPORT_CELLS_H

#include "gwcells.h"
#include "gwport_port.h"

/* A port becomes an egress of its switch's fabric, which is made for the first of them. */
int gw_chassis_join(struct gw_port *p, struct netlink_ext_ack *extack);
void gw_chassis_leave(struct gw_port *p);

/* A packet for the port that waits at a card or is in the fabric, and no longer; NULL: there is none. */
struct sk_buff *gw_chassis_drop(struct gw_port *p);

void gw_chassis_free(struct gw_chassis *chassis);

#endif
