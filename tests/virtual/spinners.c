// Waits in the way that is named until a thread has set a flag in memory after a millisecond, and
// prints how many nanoseconds after that it has seen it.
#define _GNU_SOURCE
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int flag;
static long set_ns;
static int ready[2], queue, word = 1;

static long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static void *set(void *unused)
{
    usleep(1000);
    set_ns = now_ns();
    flag = 1;
    return unused;
}

// Memory alone
static unsigned long rounds;
static void spin_counting(void) { while (!flag) rounds++; }
static void spin_memory(void) { while (!flag); }
static void spin_pause(void) { while (!flag) __builtin_ia32_pause(); }
static void spin_exchange(void) { while (!__atomic_exchange_n(&flag, 0, __ATOMIC_SEQ_CST)); }
static void spin_locked(void) { while (!__sync_fetch_and_and(&flag, 3)); }
static void spin_on_stack(void)
{
    volatile int there_and_back = 0;
    while (!flag) {
        there_and_back++;
        there_and_back--;
    }
}
static void spin_in_function(void)
{
    char text[32];
    while (!flag) snprintf(text, sizeof text, "%d %f", flag, 1.5);
}

// Time, and calls that ask for nothing
static void spin_yield(void) { while (!flag) sched_yield(); }
static void spin_clock(void) { while (!flag) now_ns(); }
static void spin_time_stamp(void) { while (!flag) __builtin_ia32_rdtsc(); }
static void spin_call(void) { while (!flag) getppid(); }
static void futex(int what, int value) { syscall(SYS_futex, &word, what, value, NULL, NULL, 0); }
static void spin_futex_wake(void) { while (!flag) futex(FUTEX_WAKE_PRIVATE, 1); }
static void spin_futex_wait(void) { while (!flag) futex(FUTEX_WAIT_PRIVATE, 0); }

// A file that is ready all the time
static void spin_epoll(void)
{
    struct epoll_event event;
    while (!flag) epoll_wait(queue, &event, 1, -1);
}
static void spin_poll(void)
{
    while (!flag) {
        struct pollfd asked = { ready[0], POLLIN };
        poll(&asked, 1, -1);
    }
}
static void spin_select(void)
{
    while (!flag) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(ready[0], &set);
        select(ready[0] + 1, &set, NULL, NULL, NULL);
    }
}
static void spin_peek(void)
{
    char byte;
    while (!flag) recv(ready[0], &byte, 1, MSG_PEEK);
}
static void spin_modify(void)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT };
    while (!flag) {
        epoll_ctl(queue, EPOLL_CTL_MOD, ready[0], &event);
        epoll_wait(queue, &event, 1, -1);
        event.events = EPOLLIN | EPOLLONESHOT;
    }
}

static const struct spinner {
    const char *name;
    void (*spin)(void);
} spinners[] = {
    { "memory", spin_memory },
    { /* for tests of its own */ "counting", spin_counting },
    { "pause", spin_pause },
    { "exchange", spin_exchange },
    { "locked", spin_locked },
    { "on-stack", spin_on_stack },
    { "in-function", spin_in_function },
    { "yield", spin_yield },
    { "clock", spin_clock },
    { "time-stamp", spin_time_stamp },
    { "call", spin_call },
    { "futex-wake", spin_futex_wake },
    { "futex-wait", spin_futex_wait },
    { "epoll", spin_epoll },
    { "poll", spin_poll },
    { "select", spin_select },
    { "peek", spin_peek },
    { "modify", spin_modify },
};

int main(int count, char **names)
{
    pthread_t thread;
    struct epoll_event event = { .events = EPOLLIN };

    queue = epoll_create1(0);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ready) || write(ready[1], "x", 1) != 1) return 1;
    epoll_ctl(queue, EPOLL_CTL_ADD, ready[0], &event);
    for (size_t i = 0; i < sizeof spinners / sizeof *spinners; i++) {
        if (count != 2 || strcmp(names[1], spinners[i].name)) continue;
        pthread_create(&thread, NULL, set, NULL);
        spinners[i].spin();
        printf("%s %ld\n", names[1], now_ns() - set_ns);
        return pthread_join(thread, NULL);
    }
    return 2;
}
