// SPDX-License-Identifier: Apache-2.0
/*
 * Traffic between two connected sockets, and the processor time that it takes. Python makes the
 * sockets (emulator/host_time/measuring.py). Times are of the threads' processors (CLOCK_THREAD_CPUTIME_ID),
 * so that other processes of a busy machine count little. A function returns 0, or an errno.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

/* processor: ns of both threads. calls: that sent or received. waits: times that a thread slept. */
struct spent {
	int64_t processor_ns, wall_ns, calls, waits;
};

struct side {
	int fd, failed;
	char *data;
	int64_t size, bytes, call_bytes, rounds;
	struct spent spent;
};

static int64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int64_t waits(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

static void begin(struct side *side)
{
	side->spent.waits = -waits();
	side->spent.wall_ns = -clock_ns(CLOCK_MONOTONIC);
	side->spent.processor_ns = -clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static void end(struct side *side)
{
	side->spent.processor_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID);
	side->spent.wall_ns += clock_ns(CLOCK_MONOTONIC);
	side->spent.waits += waits();
}

static int64_t step_of(const struct side *side, int64_t gone)
{
	int64_t left = side->bytes - gone, room = side->size - gone % side->size;
	int64_t step = side->call_bytes < left ? side->call_bytes : left;

	return step < room ? step : room;
}

static void *sender(void *of)
{
	struct side *side = of;

	begin(side);
	for (int64_t gone = 0; gone < side->bytes; side->spent.calls++) {
		ssize_t sent = send(side->fd, side->data + gone % side->size, step_of(side, gone), MSG_NOSIGNAL);

		if (sent < 0) {
			side->failed = errno;
			break;
		}
		gone += sent;
	}
	end(side);
	return NULL;
}

static void *receiver(void *of)
{
	struct side *side = of;

	begin(side);
	for (int64_t gone = 0; gone < side->bytes; side->spent.calls++) {
		ssize_t got = recv(side->fd, side->data + gone % side->size, step_of(side, gone), 0);

		if (got <= 0) {
			side->failed = got ? errno : ECONNRESET;
			break;
		}
		gone += got;
	}
	end(side);
	return NULL;
}

static void one_way(struct side *side, int first)
{
	for (int64_t i = 0; i < side->rounds && !side->failed; i++) {
		char byte = 0;

		if (first && send(side->fd, &byte, 1, MSG_NOSIGNAL) != 1)
			side->failed = errno;
		else if (recv(side->fd, &byte, 1, 0) != 1)
			side->failed = errno ? errno : ECONNRESET;
		else if (!first && send(side->fd, &byte, 1, MSG_NOSIGNAL) != 1)
			side->failed = errno;
		side->spent.calls += 2;
	}
}

static void *asker(void *of)
{
	begin(of);
	one_way(of, 1);
	end(of);
	return NULL;
}

static void *answerer(void *of)
{
	begin(of);
	one_way(of, 0);
	end(of);
	return NULL;
}

static int both(struct side *a, struct side *b, void *(*run_a)(void *), void *(*run_b)(void *),
		struct spent *spent)
{
	pthread_t other;
	int failed = pthread_create(&other, NULL, run_b, b);

	if (failed)
		return failed;
	run_a(a);
	if (a->failed)
		shutdown(a->fd, SHUT_RDWR);
	pthread_join(other, NULL);
	spent->processor_ns = a->spent.processor_ns + b->spent.processor_ns;
	spent->wall_ns = a->spent.wall_ns;
	spent->calls = a->spent.calls + b->spent.calls;
	spent->waits = a->spent.waits + b->spent.waits;
	return a->failed ? a->failed : b->failed;
}

static int two_threads(struct side *a, struct side *b, struct spent *spent)
{
	return both(a, b, sender, receiver, spent);
}

/* One thread, which sends `call_bytes` and then receives them. */
static int one_thread(struct side *a, struct side *b, struct spent *spent)
{
	int failed = 0;

	begin(a);
	for (int64_t gone = 0; gone < a->bytes && !failed;) {
		int64_t step = step_of(a, gone), offset = gone % a->size;

		if (send(a->fd, a->data + offset, step, MSG_NOSIGNAL) != step)
			failed = errno ? errno : EMSGSIZE;
		else if (recv(b->fd, b->data + offset, step, MSG_WAITALL) != step)
			failed = errno ? errno : ECONNRESET;
		gone += step;
		a->spent.calls += 2;
	}
	end(a);
	*spent = a->spent;
	return failed;
}

static int with_memory(int out, int in, int64_t bytes, int64_t size, int64_t call_bytes,
		       int (*run)(struct side *, struct side *, struct spent *), struct spent *spent)
{
	struct side a = {.fd = out, .size = size, .bytes = bytes, .call_bytes = call_bytes}, b = a;
	int failed = ENOMEM;

	b.fd = in;
	a.data = malloc(size);
	b.data = malloc(size);
	if (a.data && b.data) {
		memset(a.data, 1, size);
		memset(b.data, 1, size);
		failed = run(&a, &b, spent);
	}
	free(a.data);
	free(b.data);
	return failed;
}

/* `bytes` from one socket to the other, out of and into memory of `size` bytes, by calls of
 * `call_bytes` at most. */
int stream(int out, int in, int64_t bytes, int64_t size, int64_t call_bytes, struct spent *spent)
{
	return with_memory(out, in, bytes, size, call_bytes, two_threads, spent);
}

/* A byte there and back between two threads, each of which waits for the other. */
int ping(int one, int other, int64_t rounds, struct spent *spent)
{
	struct side a = {.fd = one, .rounds = rounds}, b = {.fd = other, .rounds = rounds};

	return both(&a, &b, asker, answerer, spent);
}

/* The same by one thread, which never waits: what is to be received is there. */
int alone(int one, int other, int64_t rounds, struct spent *spent)
{
	struct side side = {.fd = one};
	char byte = 0;

	begin(&side);
	for (int64_t i = 0; i < 2 * rounds; i++) {
		int out = i % 2 ? other : one, in = i % 2 ? one : other;

		if (send(out, &byte, 1, MSG_NOSIGNAL) != 1 || recv(in, &byte, 1, 0) != 1)
			return errno ? errno : ECONNRESET;
		side.spent.calls += 2;
	}
	end(&side);
	*spent = side.spent;
	return 0;
}

/* `bytes` from one socket to the other by one thread, which sends `call_bytes` and then receives them:
 * no two threads share a core, a cache or a lock. */
int turns(int out, int in, int64_t bytes, int64_t size, int64_t call_bytes, struct spent *spent)
{
	return with_memory(out, in, bytes, size, call_bytes, one_thread, spent);
}

/* Calls for what has not come, which do nothing else. */
int empty_calls(int fd, int64_t rounds, struct spent *spent)
{
	struct side side = {.fd = fd};
	char byte;

	begin(&side);
	for (int64_t i = 0; i < rounds; i++)
		if (recv(fd, &byte, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN)
			return EPROTO;
	end(&side);
	side.spent.calls = rounds;
	*spent = side.spent;
	return 0;
}
