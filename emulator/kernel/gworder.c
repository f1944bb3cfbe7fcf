// SPDX-License-Identifier: GPL-2.0
/*
 * gworder.c	What has no order of its own, drawn (patch 0036): which of a process's threads that
 *		are ready goes on, when it gives way to another, and which of the files that are
 *		ready epoll_wait() tells of first. For processes of hosts, which have a network
 *		namespace of their own.
 *
 *	kernel.gworder		a seed; 0: as Linux has it
 */

#include <linux/gworder.h>
#include <linux/init.h>
#include <linux/nsproxy.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sysctl.h>
#include <net/net_namespace.h>

#define GW_ORDER_CALLS	8	/* of so many system calls a thread gives way once */

unsigned long gw_order_seed;
static u64 gw_order_state;

/* SplitMix64, as os_getrandom() has it (patch 0003) */
static u64 gw_order_next(void)
{
	u64 z = (gw_order_state += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static bool gw_order_drawn_for(const struct task_struct *task)
{
	return task->nsproxy && task->nsproxy->net_ns != &init_net;
}

/* A number below `many`, drawn where current is a host's; 0 otherwise. */
unsigned int __gw_order_draw(unsigned int many)
{
	return gw_order_drawn_for(current) ? gw_order_next() % many : 0;
}

/* Is current to give way to another thread of its process, after a system call? */
bool __gw_order_gives_way(void)
{
	return !thread_group_empty(current) && gw_order_drawn_for(current) &&
	       gw_order_next() % GW_ORDER_CALLS == 0;
}

/* Which thread of a process goes on: one of those for which `ready` holds, `chosen` being one. */
struct task_struct *__gw_order_thread(struct task_struct *chosen,
				      bool (*ready)(const struct task_struct *thread))
{
	struct task_struct *thread, *first = chosen;
	unsigned int many = 0;

	if (thread_group_empty(first) || !gw_order_drawn_for(first))
		return chosen;
	rcu_read_lock();
	for_each_thread(first, thread)
		if (ready(thread) && gw_order_next() % ++many == 0)
			chosen = thread;
	rcu_read_unlock();
	return chosen;
}

static int gw_order_set(const struct ctl_table *table, int write, void *buffer,
			size_t *length, loff_t *position)
{
	int err = proc_doulongvec_minmax(table, write, buffer, length, position);

	if (!err && write)
		gw_order_state = gw_order_seed;
	return err;
}

static struct ctl_table gw_order_table[] = {
	{ .procname = "gworder", .data = &gw_order_seed, .maxlen = sizeof(gw_order_seed),
	  .mode = 0644, .proc_handler = gw_order_set },
};

static int __init gw_order_init(void)
{
	register_sysctl("kernel", gw_order_table);
	return 0;
}
subsys_initcall(gw_order_init);
