// SPDX-License-Identifier: GPL-2.0
/* gwport_switch.c	The ports of one switch, which is a network namespace. */

#include <net/net_namespace.h>
#include <net/netns/generic.h>

#include "gwport_cells.h"
#include "gwport_switch.h"
#include "gwroute_switch.h"

static unsigned int gw_net_id __read_mostly;

struct gw_switch *gw_switch_of(struct net *net)
{
	return net_generic(net, gw_net_id);
}

int gw_switch_join(struct gw_port *p)
{
	u32 ordinal = 0;
	struct gw_port *other;
	unsigned long i;

	/* The lowest number that no port has; ports join under RTNL */
again:
	xa_for_each(&p->sw->ports, i, other) {
		if (other->ordinal == ordinal && i != p->dev->ifindex) {
			ordinal++;
			goto again;
		}
	}
	p->ordinal = ordinal;
	return xa_err(xa_store_bh(&p->sw->ports, p->dev->ifindex, p, GFP_KERNEL));
}

void gw_switch_leave(struct gw_port *p)
{
	if (!p->sw)
		return;
	/* When another qdisc has already taken the device, it is that one's entry */
	xa_cmpxchg_bh(&p->sw->ports, p->dev->ifindex, p, NULL, GFP_KERNEL);
	p->sw->headroom -= p->headroom_bytes;
}

static int __net_init gw_switch_net_init(struct net *net)
{
	struct gw_switch *sw = gw_switch_of(net);

	spin_lock_init(&sw->lock);
	xa_init_flags(&sw->ports, XA_FLAGS_LOCK_BH);
	return gw_route_net_init(net, sw);
}

static void __net_exit gw_switch_net_exit(struct net *net)
{
	gw_route_net_exit(gw_switch_of(net));
	gw_chassis_free(gw_switch_of(net)->chassis);
	xa_destroy(&gw_switch_of(net)->ports);
}

static struct pernet_operations gw_switch_net_ops = {
	.init = gw_switch_net_init,
	.exit = gw_switch_net_exit,
	.id = &gw_net_id,
	.size = sizeof(struct gw_switch),
};

int gw_switch_module_init(void)
{
	return register_pernet_subsys(&gw_switch_net_ops);
}

void gw_switch_module_exit(void)
{
	unregister_pernet_subsys(&gw_switch_net_ops);
}
