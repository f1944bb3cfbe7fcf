// pollers server|client ADDRESS LOOP: 8 bytes to and fro, and each side waits by the same loop.
// The client prints the mean one-way time in nanoseconds.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

enum { ROUNDS = 20, OTHERS = 300 };

static int the_socket, epoll, others[OTHERS];
static volatile int *arrived; // bytes that somebody else has read from the socket
static int taken;

static long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static int ready(int fd)
{
    struct pollfd p = { fd, POLLIN, 0 };
    return poll(&p, 1, 0);
}

static int selected(int fd)
{
    fd_set set;
    struct timeval none = { 0, 0 };
    FD_ZERO(&set);
    FD_SET(fd, &set);
    return select(fd + 1, &set, NULL, NULL, &none);
}

static int epolled(void)
{
    struct epoll_event event;
    return epoll_wait(epoll, &event, 1, 0);
}

static int has_data(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1;
}

static int in_memory(void)
{
    return *arrived > taken;
}

static void wait_poll(void) { while (!ready(the_socket)); }
static void wait_select(void) { while (!selected(the_socket)); }
static void wait_epoll(void) { while (!epolled()); }
static void wait_recv(void) { while (!has_data(the_socket)); }

static void wait_poll_2(void) { do ready(others[0]); while (!ready(the_socket)); }

static void wait_poll_many(void)
{
    do
        for (int i = 0; i < OTHERS; i++)
            ready(others[i]);
    while (!ready(the_socket));
}

static void wait_recv_many(void)
{
    do
        for (int i = 0; i < OTHERS; i++)
            has_data(others[i]);
    while (!has_data(the_socket));
}

static void wait_mixed(void)
{
    for (;;) {
        has_data(others[0]);
        selected(others[1]);
        ready(others[2]);
        waitpid(-1, NULL, WNOHANG);
        if (epolled())
            return;
    }
}

static void wait_yield_poll(void) { do sched_yield(); while (!ready(the_socket)); }

static void wait_once_a_clock(void)
{
    static long last;
    for (;;) {
        long now = now_ns();
        if (now > last) {
            last = now;
            if (ready(the_socket))
                return;
        }
    }
}

static void wait_once_a_stamp(void)
{
    static unsigned long last;
    for (;;) {
        unsigned long now = __rdtsc();
        if (now > last) {
            last = now;
            if (ready(the_socket))
                return;
        }
    }
}

static void wait_as_open_mpi(void)
{
    static unsigned long last;
    for (;;) {
        for (int i = 0; i < 8; i++)
            now_ns();
        unsigned long now = __rdtsc();
        if (now > last) {
            last = now;
            if (epolled())
                return;
        }
    }
}

static void wait_memory_yield(void) { while (!in_memory()) sched_yield(); }
static void wait_memory_clock(void) { while (!in_memory()) now_ns(); }
static void wait_memory_stamp(void) { while (!in_memory()) __rdtsc(); }
static void wait_memory_poll(void) { while (!in_memory()) ready(others[0]); }

static void wait_memory_many(void)
{
    do
        for (int i = 0; i < OTHERS; i++)
            ready(others[i]);
    while (!in_memory());
}

// Somebody writes a file where only its size tells
static char counted[64];

static void wait_stat(void)
{
    struct stat file;
    do
        stat(counted, &file);
    while (file.st_size <= taken);
}

static void *read_into_memory(void *unused)
{
    char bytes[8];
    for (ssize_t n; (n = recv(the_socket, bytes, sizeof bytes, 0)) > 0;)
        *arrived += n;
    return unused;
}

static void start_thread(void)
{
    pthread_t thread;
    static int memory;
    arrived = &memory;
    pthread_create(&thread, NULL, read_into_memory, NULL);
}

static void start_process(void)
{
    arrived = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!fork()) {
        read_into_memory(NULL);
        exit(0);
    }
}

static void start_file(void)
{
    snprintf(counted, sizeof counted, "/tmp/counted.%d", getpid());
    if (!fork()) {
        FILE *file = fopen(counted, "w");
        char bytes[8];
        for (ssize_t n; (n = recv(the_socket, bytes, sizeof bytes, 0)) > 0;) {
            fwrite(bytes, 1, n, file);
            fflush(file);
        }
        exit(0);
    }
}

static const struct loop {
    const char *name;
    void (*wait)(void);
    void (*start)(void); // somebody else who reads the socket
} loops[] = {
    { "blocking" },
    { "poll", wait_poll },
    { "select", wait_select },
    { "epoll", wait_epoll },
    { "recv", wait_recv },
    { "poll-2-sockets", wait_poll_2 },
    { "poll-301-sockets", wait_poll_many },
    { "recv-301-sockets", wait_recv_many },
    { "mixed", wait_mixed },
    { "yield-poll", wait_yield_poll },
    { "poll-once-a-clock", wait_once_a_clock },
    { "poll-once-a-time-stamp", wait_once_a_stamp },
    { "as-open-mpi", wait_as_open_mpi },
    { "thread-yield", wait_memory_yield, start_thread },
    { "thread-clock", wait_memory_clock, start_thread },
    { "thread-time-stamp", wait_memory_stamp, start_thread },
    { "thread-poll", wait_memory_poll, start_thread },
    { "thread-poll-300-sockets", wait_memory_many, start_thread },
    { "process-yield", wait_memory_yield, start_process },
    { "process-poll", wait_memory_poll, start_process },
    { "file-stat", wait_stat, start_file },
};

static void receive(const struct loop *loop)
{
    char bytes[8];
    if (loop->wait)
        loop->wait();
    if (!loop->start && recv(the_socket, bytes, sizeof bytes, 0) != sizeof bytes)
        exit(1);
    taken += sizeof bytes;
}

static void transmit(void)
{
    if (send(the_socket, "12345678", 8, 0) != 8)
        exit(1);
}

int main(int count, char **words)
{
    int is_server = count == 4 && !strcmp(words[1], "server"), one = 1;
    struct sockaddr_in address = { AF_INET, htons(7000) };
    const struct loop *loop = loops;

    while (strcmp(loop->name, words[3]))
        if (++loop == loops + sizeof loops / sizeof *loops)
            return 2;
    inet_pton(AF_INET, words[2], &address.sin_addr);
    the_socket = socket(AF_INET, SOCK_STREAM, 0);
    if (is_server) {
        setsockopt(the_socket, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        bind(the_socket, (void *)&address, sizeof address);
        listen(the_socket, 1);
        the_socket = accept(the_socket, NULL, NULL);
    } else {
        while (connect(the_socket, (void *)&address, sizeof address))
            usleep(1000);
    }
    setsockopt(the_socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    epoll = epoll_create1(0);
    epoll_ctl(epoll, EPOLL_CTL_ADD, the_socket, &(struct epoll_event) { EPOLLIN });
    for (int i = 0, pair[2]; i < OTHERS; i++) {
        socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
        others[i] = pair[0];
    }
    if (loop->start)
        loop->start();

    long start = 0;
    for (int i = -2; i < ROUNDS; i++) {
        if (i == 0)
            start = now_ns();
        if (is_server) {
            receive(loop);
            transmit();
        } else {
            transmit();
            receive(loop);
        }
    }
    if (!is_server)
        printf("%ld\n", (now_ns() - start) / ROUNDS / 2);
    fflush(stdout);
    shutdown(the_socket, SHUT_RDWR);
    return 0;
}
