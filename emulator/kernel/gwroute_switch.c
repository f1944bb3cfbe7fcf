// SPDX-License-Identifier: GPL-2.0
/*
 * gwroute_switch.c	A switch that chooses the way of each packet by itself: called for what
 * is forwarded and has several next hops (patch 0029), and told how by a sysctl of its
 * network namespace.
 *
 *	net.gwroute.settings	struct gwroute_settings, number by number
 *	net.gwroute.counts	choices, and flows that have moved
 */

#include <linux/ip.h>
#include <linux/slab.h>
#include <linux/sysctl.h>
#include <net/ip_fib.h>
#include <net/net_namespace.h>
#include <net/nexthop.h>

#include "gwport_link.h"
#include "gwport_switch.h"
#include "gwroute.h"
#include "gwroute_switch.h"

#define GW_ROUTE_SETTINGS	(sizeof(struct gwroute_settings) / sizeof(u64))
#define GW_ROUTE_SETS		64	/* of next hops that one switch has */

struct gw_route_turn {
	u64			hops;	/* what they are, in a number; 0: nothing is here */
	struct gwroute_turn	turn;
};

struct gw_route {
	struct gwroute_state	state;
	struct gw_route_turn	turns[GW_ROUTE_SETS];
};

struct gw_route_packet {
	struct gw_port	*port[GWROUTE_MOST_HOPS];
	u64		now;
};

static u64 gw_route_load(void *of, u32 hop)
{
	struct gw_route_packet *packet = of;
	struct gw_port *p = packet->port[hop];

	if (!p)
		return 0;
	gw_update(p, packet->now);
	gw_arm_timer(p);
	return 2 * p->backlog_bytes + (gw_ready_ns(p) > packet->now);
}

/* From which port to which: source << 16 | destination; 0: it has none */
static u32 gw_route_ports(const struct sk_buff *skb)
{
	const struct iphdr *ip = ip_hdr(skb);
	__be16 buffer[2], *ports = NULL;

	if (ip->protocol == IPPROTO_TCP || ip->protocol == IPPROTO_UDP)
		ports = skb_header_pointer(skb, skb_network_offset(skb) + ip->ihl * 4,
					   sizeof(buffer), buffer);
	return ports ? (u32)ntohs(ports[0]) << 16 | ntohs(ports[1]) : 0;
}

static struct gwroute_turn *gw_route_turn(struct gw_route *route, const struct gwroute_hops *hops)
{
	u64 name = hops->count;
	struct gw_route_turn *turn;
	u32 i;

	for (i = 0; i < hops->count; i++)
		name = gwroute_mix(name ^ hops->id[i]);
	name |= 1;
	for (i = 0; i < GW_ROUTE_SETS; i++) {
		turn = &route->turns[(name + i) % GW_ROUTE_SETS];
		if (turn->hops == name)
			break;
		if (!turn->hops) {
			turn->hops = name;
			break;
		}
	}
	return &turn->turn;
}

/* Which of a route's next hops a packet takes; -1: the kernel's own hash says so. */
int gw_route_choose(const struct sk_buff *skb, struct fib_info *fi)
{
	struct gw_switch *sw = gw_switch_of(fi->fib_net);
	struct gw_route_packet packet;
	struct gwroute_hops hops = { .load = gw_route_load, .of = &packet };
	u8 place[GWROUTE_MOST_HOPS];
	struct gw_route *route;
	const struct iphdr *ip = ip_hdr(skb);
	int i, chosen = -1;
	u32 ports;

	if (!READ_ONCE(sw->route))
		return -1;
	spin_lock_bh(&sw->lock);
	route = sw->route;
	if (route->state.set.kind == GWROUTE_HASH)
		goto out;
	packet.now = ktime_get_ns();
	for (i = 0; i < fib_info_num_path(fi) && hops.count < GWROUTE_MOST_HOPS; i++) {
		const struct fib_nh_common *nhc = fib_info_nhc(fi, i);

		if (nhc->nhc_flags & (RTNH_F_DEAD | RTNH_F_LINKDOWN))
			continue;
		packet.port[hops.count] = gw_switch_port(sw, nhc->nhc_oif);
		hops.id[hops.count] = nhc->nhc_oif;
		place[hops.count++] = i;
	}
	if (!hops.count)
		goto out;
	chosen = place[0];
	if (hops.count > 1) {
		ports = gw_route_ports(skb);
		hops.number = ((ports >> 16) + ports) & 0xffff;
		hops.turn = gw_route_turn(route, &hops);
		chosen = place[gwroute_take(&route->state, &hops,
					    gwroute_flow_key(ntohl(ip->saddr), ntohl(ip->daddr),
							     ports, ip->protocol),
					    packet.now)];
	}
out:
	spin_unlock_bh(&sw->lock);
	return chosen;
}

static void gw_route_free(struct gw_route *route)
{
	if (route)
		kvfree(route->state.flows);
	kfree(route);
}

static int gw_route_set(struct gw_switch *sw, const struct gwroute_settings *set)
{
	bool has_flows = set->kind == GWROUTE_FLOWLET || set->kind == GWROUTE_ADAPTIVE;
	struct gwroute_flow *flows = NULL;
	struct gw_route *route;

	if (set->kind >= __GWROUTE_KINDS || set->by >= __GWROUTE_BYS)
		return -EINVAL;
	route = kzalloc(sizeof(*route), GFP_KERNEL);
	if (has_flows)
		flows = kvcalloc(GWROUTE_FLOWS, sizeof(*flows), GFP_KERNEL);
	if (!route || (has_flows && !flows)) {
		kfree(route);
		kvfree(flows);
		return -ENOMEM;
	}
	route->state.set = *set;
	route->state.flows = flows;
	gwroute_begin(&route->state);
	spin_lock_bh(&sw->lock);
	swap(sw->route, route);
	spin_unlock_bh(&sw->lock);
	gw_route_free(route);
	return 0;
}

static int gw_route_settings(const struct ctl_table *table, int write, void *buffer,
			     size_t *length, loff_t *position)
{
	struct gw_switch *sw = table->extra1;
	struct gwroute_settings set = {};
	struct ctl_table numbers = { .data = &set, .maxlen = sizeof(set), .mode = table->mode };
	int err;

	BUILD_BUG_ON(sizeof(unsigned long) != sizeof(u64));
	spin_lock_bh(&sw->lock);
	if (sw->route)
		set = sw->route->state.set;
	spin_unlock_bh(&sw->lock);
	err = proc_doulongvec_minmax(&numbers, write, buffer, length, position);
	return err || !write ? err : gw_route_set(sw, &set);
}

static int gw_route_counts(const struct ctl_table *table, int write, void *buffer,
			   size_t *length, loff_t *position)
{
	struct gw_switch *sw = table->extra1;
	u64 counts[2] = {};
	struct ctl_table numbers = { .data = counts, .maxlen = sizeof(counts),
				     .mode = table->mode };

	spin_lock_bh(&sw->lock);
	if (sw->route) {
		counts[0] = sw->route->state.choices;
		counts[1] = sw->route->state.moves;
	}
	spin_unlock_bh(&sw->lock);
	return proc_doulongvec_minmax(&numbers, write, buffer, length, position);
}

static const struct ctl_table gw_route_table[] = {
	{ .procname = "settings", .mode = 0644, .proc_handler = gw_route_settings },
	{ .procname = "counts", .mode = 0444, .proc_handler = gw_route_counts },
};

int gw_route_net_init(struct net *net, struct gw_switch *sw)
{
	struct ctl_table *table = kmemdup(gw_route_table, sizeof(gw_route_table), GFP_KERNEL);
	int i;

	if (!table)
		return -ENOMEM;
	for (i = 0; i < ARRAY_SIZE(gw_route_table); i++)
		table[i].extra1 = sw;
	sw->route_sysctls = register_net_sysctl_sz(net, "net/gwroute", table,
						   ARRAY_SIZE(gw_route_table));
	if (!sw->route_sysctls) {
		kfree(table);
		return -ENOMEM;
	}
	return 0;
}

void gw_route_net_exit(struct gw_switch *sw)
{
	const struct ctl_table *table = sw->route_sysctls->ctl_table_arg;

	unregister_net_sysctl_table(sw->route_sysctls);
	kfree(table);
	gw_route_free(sw->route);
}
