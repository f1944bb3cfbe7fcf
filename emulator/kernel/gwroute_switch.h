/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _GWROUTE_SWITCH_H
#define _GWROUTE_SWITCH_H

struct gw_switch;
struct net;

int gw_route_net_init(struct net *net, struct gw_switch *sw);
void gw_route_net_exit(struct gw_switch *sw);

#endif
