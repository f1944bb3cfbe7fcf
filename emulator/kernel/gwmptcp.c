// SPDX-License-Identifier: GPL-2.0
/*
 * gwmptcp.c	Hosts whose programs talk MPTCP without knowing: in a network namespace that says
 *		so by its sysctl, a socket that asks for TCP is one of MPTCP.
 *
 *	net.gwmptcp.sockets	1: yes
 *
 * Linux has update_socket_protocol() for this, a weak function that eBPF may change where there is
 * a just-in-time compiler for it. User-Mode Linux has none. A library that is loaded before a
 * program's own would miss static programs, and ranks, which are forked from a process that began
 * before anybody knew what they are to run.
 */

#include <linux/in.h>
#include <linux/net.h>
#include <linux/nsproxy.h>
#include <linux/slab.h>
#include <linux/sysctl.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

struct gw_mptcp {
	int			sockets;
	struct ctl_table_header	*sysctls;
};

static unsigned int gw_mptcp_net_id __read_mostly;

/* In place of the weak one of net/socket.c */
int update_socket_protocol(int family, int type, int protocol);
int update_socket_protocol(int family, int type, int protocol)
{
	const struct gw_mptcp *told;

	if (family != PF_INET || (type & SOCK_TYPE_MASK) != SOCK_STREAM)
		return protocol;
	if (protocol != IPPROTO_IP && protocol != IPPROTO_TCP)
		return protocol;
	told = net_generic(current->nsproxy->net_ns, gw_mptcp_net_id);
	return READ_ONCE(told->sockets) ? IPPROTO_MPTCP : protocol;
}

static const struct ctl_table gw_mptcp_table[] = {
	{
		.procname = "sockets",
		.maxlen = sizeof(int),
		.mode = 0644,
		.proc_handler = proc_dointvec_minmax,
		.extra1 = SYSCTL_ZERO,
		.extra2 = SYSCTL_ONE,
	},
};

static int __net_init gw_mptcp_net_init(struct net *net)
{
	struct gw_mptcp *told = net_generic(net, gw_mptcp_net_id);
	struct ctl_table *table = kmemdup(gw_mptcp_table, sizeof(gw_mptcp_table), GFP_KERNEL);

	if (!table)
		return -ENOMEM;
	table->data = &told->sockets;
	told->sysctls = register_net_sysctl_sz(net, "net/gwmptcp", table,
					       ARRAY_SIZE(gw_mptcp_table));
	if (!told->sysctls) {
		kfree(table);
		return -ENOMEM;
	}
	return 0;
}

static void __net_exit gw_mptcp_net_exit(struct net *net)
{
	struct gw_mptcp *told = net_generic(net, gw_mptcp_net_id);
	const struct ctl_table *table = told->sysctls->ctl_table_arg;

	unregister_net_sysctl_table(told->sysctls);
	kfree(table);
}

static struct pernet_operations gw_mptcp_net_ops = {
	.init	= gw_mptcp_net_init,
	.exit	= gw_mptcp_net_exit,
	.id	= &gw_mptcp_net_id,
	.size	= sizeof(struct gw_mptcp),
};

static int __init gw_mptcp_init(void)
{
	return register_pernet_subsys(&gw_mptcp_net_ops);
}
subsys_initcall(gw_mptcp_init);
