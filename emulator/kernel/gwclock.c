// SPDX-License-Identifier: GPL-2.0
/*
 * gwclock.c	A host whose clock is wrong: what CLOCK_REALTIME is for the tasks of a network
 *		namespace (patch 0035), by a sysctl of it.
 *
 *	net.gwclock.error	offset in ns and drift in ns a second, both signed (a negative number
 *				as 2^64 less), and from which CLOCK_MONOTONIC on it drifts
 */

#include <linux/gwclock.h>
#include <linux/math64.h>
#include <linux/nsproxy.h>
#include <linux/slab.h>
#include <linux/sysctl.h>
#include <linux/timekeeping.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

#define GW_CLOCK_MOST_OFFSET	(1000000000LL * NSEC_PER_SEC)
#define GW_CLOCK_MOST_DRIFT	(NSEC_PER_SEC / 10)

struct gw_clock_error {
	s64	offset;
	s64	drift;
	s64	since;	/* CLOCK_MONOTONIC, as it is read and written */
};

struct gw_clock {
	struct gw_clock_error	error;
	s64			since;	/* CLOCK_REALTIME */
	struct ctl_table_header	*sysctls;
};

static unsigned int gw_clock_net_id __read_mostly;
static int gw_clocks_wrong;

static const struct gw_clock *gw_clock_of_current(void)
{
	const struct gw_clock *clock;

	if (likely(!gw_clocks_wrong) || !current->nsproxy)
		return NULL;
	clock = net_generic(current->nsproxy->net_ns, gw_clock_net_id);
	return clock->error.offset || clock->error.drift ? clock : NULL;
}

static s64 gw_clock_tells(const struct gw_clock *clock, s64 real)
{
	s64 drift = clock->error.drift, drifted = 0;

	if (real > clock->since)
		drifted = mul_u64_u64_div_u64(real - clock->since, abs(drift), NSEC_PER_SEC);
	return real + clock->error.offset + (drift < 0 ? -drifted : drifted);
}

/* The clock of current's host, at a time of the true one. */
ktime_t gw_clock_told(ktime_t real)
{
	const struct gw_clock *clock = gw_clock_of_current();

	return clock ? gw_clock_tells(clock, real) : real;
}

void gw_clock_told_ts64(struct timespec64 *ts)
{
	if (unlikely(gw_clocks_wrong))
		*ts = ktime_to_timespec64(gw_clock_told(timespec64_to_ktime(*ts)));
}

/* The first time at which the clock of current's host tells this one: who waits for that time
 * finds that it has come.
 */
ktime_t gw_clock_real(ktime_t told)
{
	const struct gw_clock *clock = gw_clock_of_current();
	s64 real, since;

	if (!clock || told >= KTIME_MAX / 2)
		return told;
	real = told - clock->error.offset;
	since = clock->since;
	if (real > since) {
		real = since + mul_u64_u64_div_u64(real - since, NSEC_PER_SEC,
						   NSEC_PER_SEC + clock->error.drift);
		while (gw_clock_tells(clock, real) < told)
			real++;
		while (gw_clock_tells(clock, real - 1) >= told)
			real--;
	}
	return max(real, 0);
}

static int gw_clock_set(struct gw_clock *clock, const struct gw_clock_error *error)
{
	if (abs(error->offset) > GW_CLOCK_MOST_OFFSET || abs(error->drift) > GW_CLOCK_MOST_DRIFT)
		return -ERANGE;
	gw_clocks_wrong -= clock->error.offset || clock->error.drift;
	clock->error = *error;
	clock->since = ktime_mono_to_real(error->since);
	gw_clocks_wrong += error->offset || error->drift;
	return 0;
}

static int gw_clock_error(const struct ctl_table *table, int write, void *buffer,
			  size_t *length, loff_t *position)
{
	struct gw_clock *clock = table->extra1;
	struct gw_clock_error error = clock->error;
	struct ctl_table numbers = { .data = &error, .maxlen = sizeof(error),
				     .mode = table->mode };
	int err;

	BUILD_BUG_ON(sizeof(unsigned long) != sizeof(s64));
	err = proc_doulongvec_minmax(&numbers, write, buffer, length, position);
	return err || !write ? err : gw_clock_set(clock, &error);
}

static const struct ctl_table gw_clock_table[] = {
	{ .procname = "error", .mode = 0644, .proc_handler = gw_clock_error },
};

static int __net_init gw_clock_net_init(struct net *net)
{
	struct gw_clock *clock = net_generic(net, gw_clock_net_id);
	struct ctl_table *table = kmemdup(gw_clock_table, sizeof(gw_clock_table), GFP_KERNEL);

	if (!table)
		return -ENOMEM;
	table->extra1 = clock;
	clock->sysctls = register_net_sysctl_sz(net, "net/gwclock", table,
						ARRAY_SIZE(gw_clock_table));
	if (!clock->sysctls) {
		kfree(table);
		return -ENOMEM;
	}
	return 0;
}

static void __net_exit gw_clock_net_exit(struct net *net)
{
	static const struct gw_clock_error right;
	struct gw_clock *clock = net_generic(net, gw_clock_net_id);
	const struct ctl_table *table = clock->sysctls->ctl_table_arg;

	gw_clock_set(clock, &right);
	unregister_net_sysctl_table(clock->sysctls);
	kfree(table);
}

static struct pernet_operations gw_clock_net_ops = {
	.init = gw_clock_net_init,
	.exit = gw_clock_net_exit,
	.id = &gw_clock_net_id,
	.size = sizeof(struct gw_clock),
};

static int __init gw_clock_init(void)
{
	return register_pernet_subsys(&gw_clock_net_ops);
}
subsys_initcall(gw_clock_init);
