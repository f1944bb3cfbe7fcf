// SPDX-License-Identifier: Apache-2.0
/*
 * Preloaded into the processes of a guest, whose processors take no time: what sending, receiving
 * and waking up cost a real host is charged here, as sleep of the thread that would have been busy.
 *
 * A thread is on a host of the fabric when its network namespace is not that of the guest's first
 * process. A host's processors are a table in shared memory: until when each of them is busy. A
 * thread that is charged takes the one that is free first, and sleeps until its turn has ended.
 *
 * - A call that sends bytes over TCP or UDP copies them first: a piece of PIECE bytes at a time, so
 *   that the first ones leave while the next ones are copied.
 * - A call that receives copies them afterwards, and pays for the packets that they came in: as many
 *   as the connection's segments (TCP_MAXSEG) hold.
 * - A call that waited, for a socket or for another thread, pays for being woken.
 * - A call that writes LEAST_ON_DISK bytes or more to a file of the run's directory, or reads them
 *   from there, waits for the host's disk, which does one after the other.
 *
 * GROUNDWIRE_HOST has the costs: syscall, wakeup and packet in ns, copy in bytes per second, cores,
 * and the disk's write and read in bytes per second.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define PIECE 65536
#define MOST_CORES 64
#define MOST_PARTS 16
#define OUTSIDE "GROUNDWIRE_HOST_OUTSIDE"
#define LEAST_ON_DISK 4096
#define HOSTFS 0x00c0ffee /* HOSTFS_SUPER_MAGIC: the machine's files, writable in the run's directory */
#define READ_ONLY 1 /* ST_RDONLY of statvfs(3), whose header does not go with sys/vfs.h */

struct cores {
	atomic_int lock;
	int64_t busy_until[MOST_CORES], disk_busy_until;
};

static int64_t syscall_ns, wakeup_ns, packet_ns, copy_rate, cores, disk_write, disk_read;
static ino_t outside;

static ssize_t (*real_sendmsg)(int, const struct msghdr *, int);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static ssize_t (*real_sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
static ssize_t (*real_read)(int, void *, size_t);
static ssize_t (*real_readv)(int, const struct iovec *, int);
static ssize_t (*real_recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
static ssize_t (*real_recvmsg)(int, struct msghdr *, int);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_pread)(int, void *, size_t, off_t);
static size_t (*real_fwrite)(const void *, size_t, size_t, FILE *);
static size_t (*real_fread)(void *, size_t, size_t, FILE *);
static int (*real_epoll_wait)(int, struct epoll_event *, int, int);
static int (*real_poll)(struct pollfd *, nfds_t, int);
static int (*real_cond_wait)(pthread_cond_t *, pthread_mutex_t *);
static int (*real_cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*real_cond_clockwait)(pthread_cond_t *, pthread_mutex_t *, clockid_t,
				  const struct timespec *);

static __thread ino_t known_host;
static __thread struct cores *known_cores;

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static ino_t this_host(void)
{
	struct stat found;

	return stat("/proc/thread-self/ns/net", &found) ? outside : found.st_ino;
}

/* The table of the thread's host; NULL outside of the fabric. */
static struct cores *host_cores(void)
{
	ino_t host = this_host();
	char name[64];
	int fd;

	if (host == outside)
		return NULL;
	if (host == known_host)
		return known_cores;
	snprintf(name, sizeof(name), "/dev/shm/groundwire-cores-%lu", (unsigned long)host);
	fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0 || ftruncate(fd, sizeof(struct cores)))
		abort();
	known_cores = mmap(NULL, sizeof(struct cores), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (known_cores == MAP_FAILED)
		abort();
	known_host = host;
	return known_cores;
}

static void sleep_until(int64_t end_ns)
{
	struct timespec end = {end_ns / 1000000000, end_ns % 1000000000};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
		;
}

static void charge(int64_t cost_ns)
{
	struct cores *table = cost_ns > 0 ? host_cores() : NULL;
	int64_t now, begin, *first;
	int saved = errno;

	if (!table)
		return;
	now = now_ns();
	begin = now;
	if (cores) {
		while (atomic_exchange(&table->lock, 1))
			sched_yield();
		first = &table->busy_until[0];
		for (int64_t i = 1; i < cores; i++)
			if (table->busy_until[i] < *first)
				first = &table->busy_until[i];
		if (*first > begin)
			begin = *first;
		*first = begin + cost_ns;
		atomic_store(&table->lock, 0);
	}
	sleep_until(begin + cost_ns);
	errno = saved;
}

/* A call on a file has moved bytes; `rate` is the disk's for them. */
static ssize_t charged_disk(int fd, ssize_t size, int64_t rate)
{
	int saved = errno;
	struct cores *table;
	struct statfs found;
	int64_t end;

	if (!rate || size < LEAST_ON_DISK)
		return size;
	if (fstatfs(fd, &found) || found.f_type != HOSTFS || found.f_flags & READ_ONLY ||
	    !(table = host_cores())) {
		errno = saved;
		return size;
	}
	while (atomic_exchange(&table->lock, 1))
		sched_yield();
	end = now_ns();
	if (table->disk_busy_until > end)
		end = table->disk_busy_until;
	end += (int64_t)(size * 1e9 / rate);
	table->disk_busy_until = end;
	atomic_store(&table->lock, 0);
	sleep_until(end);
	errno = saved;
	return size;
}

static void begin(void);

/* Another library's constructor may call before ours has run. */
static inline void ready(void)
{
	if (!real_cond_clockwait)
		begin();
}

static bool over_network(int fd)
{
	int domain, saved = errno;
	socklen_t size = sizeof(domain);
	bool found = (syscall_ns || wakeup_ns || packet_ns || copy_rate) &&
		     !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) &&
		     (domain == AF_INET || domain == AF_INET6);

	errno = saved;
	return found && host_cores();
}

static int64_t copying_ns(size_t size)
{
	return copy_rate ? (int64_t)(size * 1e9 / copy_rate) : 0;
}

static int64_t packets_ns(int fd, size_t size)
{
	int segment = 0, saved = errno;
	socklen_t length = sizeof(segment);

	if (getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, &length) || segment <= 0)
		segment = size ? (int)size : 1;
	errno = saved;
	return packet_ns * (int64_t)((size + segment - 1) / segment);
}

static bool writable(int fd)
{
	struct pollfd asked = {fd, POLLOUT, 0};
	int saved = errno;
	bool found = real_poll(&asked, 1, 0) > 0;

	errno = saved;
	return found;
}

static size_t size_of(const struct iovec *parts, size_t count)
{
	size_t size = 0;

	for (size_t i = 0; i < count; i++)
		size += parts[i].iov_len;
	return size;
}

/* The next bytes of a message, behind those that went: a piece at most. */
static size_t piece_of(const struct msghdr *message, size_t gone, struct msghdr *piece,
		       struct iovec *parts)
{
	size_t size = 0, count = 0;

	for (size_t i = 0; i < message->msg_iovlen && size < PIECE && count < MOST_PARTS; i++) {
		struct iovec part = message->msg_iov[i];
		size_t skipped = gone < part.iov_len ? gone : part.iov_len;

		gone -= skipped;
		part.iov_base = (char *)part.iov_base + skipped;
		part.iov_len -= skipped;
		if (part.iov_len > PIECE - size)
			part.iov_len = PIECE - size;
		if (part.iov_len)
			parts[count++] = part;
		size += part.iov_len;
	}
	memset(piece, 0, sizeof(*piece));
	piece->msg_iov = parts;
	piece->msg_iovlen = count;
	return size;
}

static ssize_t charged_send(int fd, const struct msghdr *message, int flags)
{
	size_t size = size_of(message->msg_iov, message->msg_iovlen), gone = 0;
	int state = fcntl(fd, F_GETFL), type = 0;
	bool waits = !(flags & MSG_DONTWAIT) && !(state & O_NONBLOCK);
	struct iovec parts[MOST_PARTS];
	socklen_t length = sizeof(type);

	getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length);
	if (type != SOCK_STREAM || message->msg_control || size <= 1) {
		charge(syscall_ns + copying_ns(size));
		return real_sendmsg(fd, message, flags);
	}
	while (gone < size) {
		struct msghdr piece;
		size_t next = piece_of(message, gone, &piece, parts);
		bool room = writable(fd);
		ssize_t sent;

		if (!room && gone && !waits)
			break;
		if (room)
			charge((gone ? 0 : syscall_ns) + copying_ns(next));
		sent = real_sendmsg(fd, &piece, flags);
		if (sent < 0)
			return gone ? (ssize_t)gone : -1;
		if (!room)
			charge((gone ? 0 : syscall_ns) + copying_ns(sent));
		gone += sent;
		if ((size_t)sent < next && !waits)
			break;
	}
	return gone;
}

static ssize_t charged_receipt(int fd, ssize_t received, int64_t since_ns)
{
	int64_t cost = syscall_ns;

	if (received > 0) {
		if (now_ns() > since_ns)
			cost += wakeup_ns;
		cost += copying_ns(received) + packets_ns(fd, received);
	}
	charge(cost);
	return received;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	ready();
	return over_network(fd) ? charged_send(fd, message, flags) : real_sendmsg(fd, message, flags);
}

ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to,
	       socklen_t length)
{
	ready();
	struct iovec part = {(void *)data, size};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (!over_network(fd))
		return real_sendto(fd, data, size, flags, to, length);
	if (to) {
		charge(syscall_ns + copying_ns(size));
		return real_sendto(fd, data, size, flags, to, length);
	}
	return charged_send(fd, &message, flags);
}

ssize_t send(int fd, const void *data, size_t size, int flags)
{
	return sendto(fd, data, size, flags, NULL, 0);
}

ssize_t write(int fd, const void *data, size_t size)
{
	ready();
	return over_network(fd) ? sendto(fd, data, size, 0, NULL, 0)
				: charged_disk(fd, real_write(fd, data, size), disk_write);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
	ready();
	struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = count};

	return over_network(fd) ? charged_send(fd, &message, 0)
				: charged_disk(fd, real_writev(fd, parts, count), disk_write);
}

ssize_t read(int fd, void *data, size_t size)
{
	ready();

	int64_t since = now_ns();
	ssize_t received = real_read(fd, data, size);

	return over_network(fd) ? charged_receipt(fd, received, since)
				: charged_disk(fd, received, disk_read);
}

ssize_t readv(int fd, const struct iovec *parts, int count)
{
	ready();

	int64_t since = now_ns();
	ssize_t received = real_readv(fd, parts, count);

	return over_network(fd) ? charged_receipt(fd, received, since)
				: charged_disk(fd, received, disk_read);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
	ready();
	return charged_disk(fd, real_pwrite(fd, data, size, at), disk_write);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t at)
{
	return pwrite(fd, data, size, at);
}

ssize_t pread(int fd, void *data, size_t size, off_t at)
{
	ready();
	return charged_disk(fd, real_pread(fd, data, size, at), disk_read);
}

ssize_t pread64(int fd, void *data, size_t size, off_t at)
{
	return pread(fd, data, size, at);
}

size_t fwrite(const void *data, size_t size, size_t count, FILE *file)
{
	ready();

	size_t done = real_fwrite(data, size, count, file);

	charged_disk(fileno(file), done * size, disk_write);
	return done;
}

size_t fread(void *data, size_t size, size_t count, FILE *file)
{
	ready();

	size_t done = real_fread(data, size, count, file);

	charged_disk(fileno(file), done * size, disk_read);
	return done;
}

ssize_t recvfrom(int fd, void *data, size_t size, int flags, struct sockaddr *from,
		 socklen_t *length)
{
	ready();

	int64_t since = now_ns();
	ssize_t received = real_recvfrom(fd, data, size, flags, from, length);

	return over_network(fd) ? charged_receipt(fd, received, since) : received;
}

ssize_t recv(int fd, void *data, size_t size, int flags)
{
	return recvfrom(fd, data, size, flags, NULL, NULL);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	ready();

	int64_t since = now_ns();
	ssize_t received = real_recvmsg(fd, message, flags);

	return over_network(fd) ? charged_receipt(fd, received, since) : received;
}

static void charge_waiter(int64_t since_ns)
{
	if (now_ns() > since_ns)
		charge(wakeup_ns);
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout)
{
	ready();

	int64_t since = now_ns();
	int found = real_epoll_wait(fd, events, most, timeout);

	if (found > 0)
		charge_waiter(since);
	return found;
}

int poll(struct pollfd *files, nfds_t count, int timeout)
{
	ready();

	int64_t since = now_ns();
	int found = real_poll(files, count, timeout);

	if (found > 0)
		charge_waiter(since);
	return found;
}

/* A thread that was woken has the lock only when it runs. */
static int charged_waiter(int status, pthread_mutex_t *lock, int64_t since_ns)
{
	if (!status && wakeup_ns && now_ns() > since_ns && host_cores()) {
		pthread_mutex_unlock(lock);
		charge(wakeup_ns);
		pthread_mutex_lock(lock);
	}
	return status;
}

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock)
{
	ready();

	int64_t since = now_ns();

	return charged_waiter(real_cond_wait(condition, lock), lock, since);
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock,
			   const struct timespec *end)
{
	ready();

	int64_t since = now_ns();

	return charged_waiter(real_cond_timedwait(condition, lock, end), lock, since);
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *lock, clockid_t clock,
			   const struct timespec *end)
{
	ready();

	int64_t since = now_ns();

	return charged_waiter(real_cond_clockwait(condition, lock, clock, end), lock, since);
}

static void *of(const char *name, const char *version)
{
	void *found = version ? dlvsym(RTLD_NEXT, name, version) : NULL;

	return found ? found : dlsym(RTLD_NEXT, name);
}

__attribute__((constructor)) static void begin(void)
{
	const char *costs = getenv("GROUNDWIRE_HOST"), *first = getenv(OUTSIDE);
	struct stat here;
	char text[32];

	real_sendmsg = of("sendmsg", NULL);
	real_sendto = of("sendto", NULL);
	real_write = of("write", NULL);
	real_writev = of("writev", NULL);
	real_read = of("read", NULL);
	real_readv = of("readv", NULL);
	real_recvfrom = of("recvfrom", NULL);
	real_recvmsg = of("recvmsg", NULL);
	real_pwrite = of("pwrite", NULL);
	real_pread = of("pread", NULL);
	real_fwrite = of("fwrite", NULL);
	real_fread = of("fread", NULL);
	real_epoll_wait = of("epoll_wait", NULL);
	real_poll = of("poll", NULL);
	real_cond_wait = of("pthread_cond_wait", "GLIBC_2.3.2");
	real_cond_timedwait = of("pthread_cond_timedwait", "GLIBC_2.3.2");
	real_cond_clockwait = of("pthread_cond_clockwait", NULL);
	if (first)
		outside = strtoul(first, NULL, 10);
	else if (!stat("/proc/self/ns/net", &here)) {
		outside = here.st_ino;
		snprintf(text, sizeof(text), "%lu", (unsigned long)outside);
		setenv(OUTSIDE, text, 1);
	}
	if (!costs)
		return;
	if (sscanf(costs, "syscall=%ld,wakeup=%ld,packet=%ld,copy=%ld,cores=%ld,write=%ld,read=%ld",
		   &syscall_ns, &wakeup_ns, &packet_ns, &copy_rate, &cores, &disk_write,
		   &disk_read) != 7)
		abort();
	if (cores > MOST_CORES)
		cores = MOST_CORES;
}
