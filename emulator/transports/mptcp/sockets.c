/*
 * A library that programs are started with on a machine's own kernel: their sockets of TCP are
 * MPTCP's, as with mptcpize(8). The virtual kernel does this by itself (emulator/kernel/gwmptcp.c,
 * patch 0042).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

int socket(int family, int type, int protocol)
{
	static int (*of_libc)(int, int, int);
	const int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (!of_libc)
		of_libc = (int (*)(int, int, int))dlsym(RTLD_NEXT, "socket");
	if ((family == AF_INET || family == AF_INET6) && kind == SOCK_STREAM &&
	    (protocol == 0 || protocol == IPPROTO_TCP))
		protocol = IPPROTO_MPTCP;
	return of_libc(family, type, protocol);
}

/* Gloo allows sockets that it has accepted to share their address, which is of no use, which TCP
 * takes, and which MPTCP refuses.
 */
int setsockopt(int descriptor, int level, int name, const void *value, socklen_t length)
{
	static int (*of_libc)(int, int, int, const void *, socklen_t);
	struct sockaddr_storage peer;
	socklen_t room = sizeof(peer);
	int before = errno;

	if (!of_libc)
		of_libc = (int (*)(int, int, int, const void *, socklen_t))
			dlsym(RTLD_NEXT, "setsockopt");
	if (of_libc(descriptor, level, name, value, length) == 0)
		return 0;
	if (errno != EINVAL || level != SOL_SOCKET || name != SO_REUSEADDR ||
	    getpeername(descriptor, (struct sockaddr *)&peer, &room) != 0)
		return -1;
	errno = before;
	return 0;
}
