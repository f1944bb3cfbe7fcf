// SPDX-License-Identifier: Apache-2.0
/*
 * Preloaded into programs that use verbs in virtual time, where computing takes no time: who polls
 * a completion queue, which is memory, would never let time pass. Here each poll that finds nothing
 * gives way to others, so that the kernel sees a poller and lets it nap (docs/virtual-kernel.md).
 *
 * Completions of datagrams say what headers their packet had, as those of ConnectX do: UCX drops
 * the packet otherwise.
 *
 * It also shows a program the devices of its own host only, those that GROUNDWIRE_RDMA_DEVICES names,
 * and a PCI bus without devices, as libpci ends programs that look for one where there is none.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#undef ibv_get_device_list

/* All devices are of one driver, so that one of each is enough. */
static int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
static int (*start_poll)(struct ibv_cq_ex *, struct ibv_poll_cq_attr *);
static struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *, struct ibv_cq_init_attr_ex *);

/* The service level of a receive completion of RoCE holds this: a UDP header, after one of IPv4 */
#define RROCE_IPV4 (8 | 2)

static int poll_or_yield(struct ibv_cq *cq, int most, struct ibv_wc *completions)
{
	int found = poll_cq(cq, most, completions);

	if (!found)
		sched_yield();
	for (int i = 0; i < found; i++)
		if (completions[i].wc_flags & IBV_WC_GRH)
			completions[i].sl = RROCE_IPV4;
	return found;
}

static int start_poll_or_yield(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attributes)
{
	int status = start_poll(cq, attributes);

	if (status == ENOENT)
		sched_yield();
	return status;
}

static struct ibv_cq_ex *create_yielding_cq_ex(struct ibv_context *context,
					       struct ibv_cq_init_attr_ex *attributes)
{
	struct ibv_cq_ex *cq = create_cq_ex(context, attributes);

	if (cq && cq->start_poll) {
		start_poll = cq->start_poll;
		cq->start_poll = start_poll_or_yield;
	}
	return cq;
}

/*
 * dlsym() would find the one of version 1.0, which has other structures. Whoever has loaded
 * libibverbs by dlopen(), as Python does, has not made it global: it is not next to us then.
 */
static void *next(const char *name)
{
	void *found = dlvsym(RTLD_NEXT, name, "IBVERBS_1.1");
	void *library = found ? NULL : dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);

	return library ? dlvsym(library, name, "IBVERBS_1.1") : found;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *(*open_device)(struct ibv_device *) = next("ibv_open_device");
	struct ibv_context *context = open_device(device);
	struct verbs_context *extended;

	if (!context)
		return NULL;
	poll_cq = context->ops.poll_cq;
	context->ops.poll_cq = poll_or_yield;
	extended = verbs_get_ctx_op(context, create_cq_ex);
	if (extended) {
		create_cq_ex = extended->create_cq_ex;
		extended->create_cq_ex = create_yielding_cq_ex;
	}
	return context;
}

/* Whether `name` is one of the words of `names`, which commas separate */
static bool is_among(const char *name, const char *names)
{
	size_t length = strlen(name);

	for (const char *word = names; word; word = strchr(word, ','), word += word != NULL)
		if (!strncmp(word, name, length) && (word[length] == ',' || !word[length]))
			return true;
	return false;
}

struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device **(*get_device_list)(int *) = next("ibv_get_device_list");
	const char *own = getenv("GROUNDWIRE_RDMA_DEVICES");
	struct ibv_device **all = get_device_list(NULL);
	int kept = 0;

	for (int i = 0; all && all[i]; i++)
		if (!own || is_among(all[i]->name, own))
			all[kept++] = all[i];
	if (all)
		all[kept] = NULL;
	if (count)
		*count = kept;
	return all;
}

struct pci_access;

void pci_init(struct pci_access *access)
{
	(void) access;
}

void pci_scan_bus(struct pci_access *access)
{
	(void) access;
}
