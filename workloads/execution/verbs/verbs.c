// SPDX-License-Identifier: Apache-2.0
/*
 * A rank's use of verbs: its device, queue pairs with those of other ranks, credits, RDMA
 * WRITEs, and completions that it sleeps for. `library.py` is its face in Python.
 *
 * Functions return 0 or a number that errno has, unless said otherwise.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A receiver's buffer, as it travels: in the network's order of bytes */
struct credit {
	uint64_t address;
	uint32_t rkey;
	uint32_t length;
} __attribute__((packed));

struct device {
	struct ibv_context *context;
	struct ibv_pd *domain;
	struct ibv_comp_channel *channel;
	struct ibv_cq *completions;
	int gid_index;
};

struct queue_pair {
	struct ibv_qp *qp;
	struct ibv_mr *region;
	struct credit *credits;
	int depth;
};

/* An event; `slot` is of the message, credit or completed work */
struct event {
	uint32_t qpn;
	uint32_t slot;
	int32_t kind;
	int32_t status;
	struct credit credit;
};

enum { CREDIT_CAME, MESSAGE_CAME, CREDIT_SENT, MESSAGE_SENT, FAILED };

static const uint64_t receives = 1ULL << 63, writes = 1ULL << 62;

static int find_gid(struct device *device, const char *address)
{
	struct ibv_port_attr port;
	union ibv_gid wanted = { .raw = { [10] = 0xff, [11] = 0xff } }, found;

	if (inet_pton(AF_INET, address, wanted.raw + 12) != 1)
		return EINVAL;
	if (ibv_query_port(device->context, 1, &port))
		return EIO;
	for (int i = 0; i < port.gid_tbl_len; i++) {
		if (ibv_query_gid(device->context, 1, i, &found))
			continue;
		if (!memcmp(found.raw, wanted.raw, sizeof(found.raw))) {
			device->gid_index = i;
			return 0;
		}
	}
	return EADDRNOTAVAIL;
}

/* A device with room for `depth` completions, whose port has `address` */
int gw_open(const char *name, const char *address, int depth, struct device **opened)
{
	struct device *device = calloc(1, sizeof(*device));
	struct ibv_device **all = ibv_get_device_list(NULL);

	if (!device || !all)
		return ENOMEM;
	for (int i = 0; all[i]; i++)
		if (!strcmp(ibv_get_device_name(all[i]), name))
			device->context = ibv_open_device(all[i]);
	ibv_free_device_list(all);
	if (!device->context)
		return ENODEV;
	device->domain = ibv_alloc_pd(device->context);
	device->channel = ibv_create_comp_channel(device->context);
	if (!device->domain || !device->channel)
		return errno;
	device->completions = ibv_create_cq(device->context, depth, NULL, device->channel, 0);
	if (!device->completions)
		return errno;
	*opened = device;
	return find_gid(device, address);
}

static int post_receive(struct queue_pair *pair, uint64_t number)
{
	struct ibv_sge place = {
		.addr = (uintptr_t)(pair->credits + number),
		.length = sizeof(struct credit),
		.lkey = pair->region->lkey,
	};
	struct ibv_recv_wr request = {
		.wr_id = receives | number, .sg_list = &place, .num_sge = 1,
	}, *bad;

	return ibv_post_recv(pair->qp, &request, &bad);
}

/* A queue pair with `depth` sends and as many receives, all of which are posted */
int gw_make(struct device *device, int depth, struct queue_pair **made, uint32_t *qpn)
{
	struct queue_pair *pair = calloc(1, sizeof(*pair));
	struct ibv_qp_init_attr wanted = {
		.send_cq = device->completions,
		.recv_cq = device->completions,
		.cap = { depth, depth, 1, 1, sizeof(struct credit) },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
	};

	if (!pair)
		return ENOMEM;
	pair->depth = depth;
	pair->credits = calloc(depth, sizeof(*pair->credits));
	if (!pair->credits)
		return ENOMEM;
	pair->region = ibv_reg_mr(device->domain, pair->credits, depth * sizeof(*pair->credits),
				  IBV_ACCESS_LOCAL_WRITE);
	pair->qp = ibv_create_qp(device->domain, &wanted);
	if (!pair->region || !pair->qp)
		return errno;
	*made = pair;
	*qpn = pair->qp->qp_num;
	return ibv_modify_qp(pair->qp, &init,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

struct connection {
	const char *address;
	uint32_t qpn;
	uint32_t psn, own_psn;
	int32_t path_mtu, timeout, retries;
};

/* Connects a queue pair with one at `address` */
int gw_connect(struct device *device, struct queue_pair *pair, const struct connection *to)
{
	struct ibv_qp_attr receive = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_256,
		.dest_qp_num = to->qpn,
		.rq_psn = to->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = {
			.is_global = 1, .port_num = 1,
			.grh = { .sgid_index = device->gid_index, .hop_limit = 64 },
		},
	};
	struct ibv_qp_attr send = {
		.qp_state = IBV_QPS_RTS,
		.timeout = to->timeout,
		.retry_cnt = to->retries,
		.rnr_retry = to->retries,
		.sq_psn = to->own_psn,
		.max_rd_atomic = 1,
	};
	int failed;

	for (int mtu = to->path_mtu; mtu > 256; mtu /= 2)
		receive.path_mtu++;
	receive.ah_attr.grh.dgid.raw[10] = receive.ah_attr.grh.dgid.raw[11] = 0xff;
	if (inet_pton(AF_INET, to->address, receive.ah_attr.grh.dgid.raw + 12) != 1)
		return EINVAL;
	failed = ibv_modify_qp(pair->qp, &receive,
			       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	for (int i = 0; !failed && i < pair->depth; i++)
		failed = post_receive(pair, i);
	if (failed)
		return failed;
	return ibv_modify_qp(pair->qp, &send,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* Memory that the device may read, and others write with the key */
int gw_register(struct device *device, void *address, size_t length, struct ibv_mr **region)
{
	*region = ibv_reg_mr(device->domain, address, length,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	return *region ? 0 : errno;
}

/* By which others write there */
uint32_t gw_remote_key(struct ibv_mr *region)
{
	return region->rkey;
}

int gw_release(struct ibv_mr *region)
{
	return ibv_dereg_mr(region);
}

/* Tells the other end that a message may be written */
int gw_give(struct queue_pair *pair, struct ibv_mr *region, void *address, uint32_t length,
	    uint32_t slot)
{
	struct credit credit = {
		htobe64((uintptr_t)address), htonl(region->rkey), htonl(length),
	};
	struct ibv_sge place = { .addr = (uintptr_t)&credit, .length = sizeof(credit) };
	struct ibv_send_wr request = {
		.wr_id = slot,
		.sg_list = &place,
		.num_sge = 1,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = IBV_SEND_INLINE,
		.imm_data = htonl(slot),
	}, *bad;

	return ibv_post_send(pair->qp, &request, &bad);
}

/* Writes a message to where a credit says */
int gw_write(struct queue_pair *pair, struct ibv_mr *region, void *address, uint32_t length,
	     uint32_t slot, const struct credit *credit)
{
	struct ibv_sge place = {
		.addr = (uintptr_t)address, .length = length, .lkey = region->lkey,
	};
	struct ibv_send_wr request = {
		.wr_id = writes | slot,
		.sg_list = &place,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.imm_data = htonl(slot),
		.wr.rdma = { be64toh(credit->address), ntohl(credit->rkey) },
	}, *bad;

	return ibv_post_send(pair->qp, &request, &bad);
}

static void describe(const struct ibv_wc *from, struct event *event)
{
	event->qpn = from->qp_num;
	event->status = from->status;
	event->slot = (uint32_t)from->wr_id;
	if (from->status)
		event->kind = FAILED;
	else if (!(from->wr_id & receives))
		event->kind = from->wr_id & writes ? MESSAGE_SENT : CREDIT_SENT;
	else {
		event->kind = from->opcode == IBV_WC_RECV ? CREDIT_CAME : MESSAGE_CAME;
		event->slot = ntohl(from->imm_data);
	}
}

/* Sleeps until something has happened; returns how many events there are, or less than 0 */
int gw_wait(struct device *device, struct event *events, int most)
{
	struct ibv_wc found[32];
	struct ibv_cq *queue;
	void *unused;
	int count = ibv_poll_cq(device->completions, most < 32 ? most : 32, found);

	while (!count) {
		if (ibv_req_notify_cq(device->completions, 0))
			return -1;
		count = ibv_poll_cq(device->completions, most < 32 ? most : 32, found);
		if (count)
			break;
		if (ibv_get_cq_event(device->channel, &queue, &unused))
			return -1;
		ibv_ack_cq_events(queue, 1);
		count = ibv_poll_cq(device->completions, most < 32 ? most : 32, found);
	}
	for (int i = 0; i < count; i++) {
		describe(found + i, events + i);
		/* Which receive it was, until its credit is taken */
		if (found[i].wr_id & receives)
			events[i].credit.address = found[i].wr_id & ~receives;
	}
	return count;
}

/* The credit that a receive has got; the receive is posted again */
int gw_take(struct queue_pair *pair, uint64_t number, struct credit *credit)
{
	*credit = pair->credits[number];
	return post_receive(pair, number);
}

const char *gw_status(int status)
{
	return ibv_wc_status_str(status);
}

void gw_destroy(struct queue_pair *pair)
{
	ibv_destroy_qp(pair->qp);
	ibv_dereg_mr(pair->region);
	free(pair->credits);
	free(pair);
}
