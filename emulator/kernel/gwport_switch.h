/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _GWPORT_SWITCH_H
#define _GWPORT_SWITCH_H

#include "gwport_port.h"

struct gw_switch *gw_switch_of(struct net *net);
int gw_switch_join(struct gw_port *p);
void gw_switch_leave(struct gw_port *p);
int gw_switch_module_init(void);
void gw_switch_module_exit(void);

/* The port of an interface, or NULL. */
static inline struct gw_port *gw_switch_port(struct gw_switch *sw, u32 ifindex)
{
	return xa_load(&sw->ports, ifindex);
}

#endif
