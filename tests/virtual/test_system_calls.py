"""System calls that are made into jumps into the kernel keep to the contract of `syscall`."""

import os
from pathlib import Path

import pytest

from tests.traced import skip_where_traced
from tests.virtual.conftest import Compiled, Guest

# Threads that take turns at every call, each with its own values in the registers that a call
# must leave alone; a jump to the bare `syscall` of a call that has been made before with another
# number, and of one that has not been made; the instruction that loads a call's number, with a
# prefix that makes it load %r8; vector registers in their initial state, which the processor does
# not save, and those that a signal's handler overwrites; a signal that interrupts a call, which is
# then made again; all of it again after a fork.
PROGRAM = r"""
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void fail(const char *what) { printf("failed: %s\n", what); fflush(stdout); _exit(1); }

static void *turns(void *argument)
{
    long me = (long) argument;
    for (long i = 0; i < 2000; i++) {
        unsigned long want[4] = { me * 1000003 + i, ~me, i, me ^ i }, got[4] = { 0 };
        long result, b = me + i, c = me - i, kept_b, kept_c;
        unsigned int flags;
        __asm__ volatile (
            "vmovdqu %[want], %%ymm15\n"
            "mov %[b], %%r12\n mov %[c], %%rbx\n"
            "stc\n"
            "mov $24, %%eax\n syscall\n" /* sched_yield */
            "setc %b[flags]\n"
            "vmovdqu %%ymm15, %[got]\n"
            "mov %%r12, %[kept_b]\n mov %%rbx, %[kept_c]\n"
            : "=&a" (result), [got] "=m" (got), [kept_b] "=m" (kept_b), [kept_c] "=m" (kept_c),
              [flags] "=&d" (flags)
            : [want] "m" (want), [b] "m" (b), [c] "m" (c)
            : "rcx", "r11", "r12", "rbx", "xmm15", "memory");
        if (result != 0) fail("the result");
        if (memcmp(want, got, sizeof(want))) fail("vector registers");
        if (b != kept_b || c != kept_c) fail("general registers");
        if (!(flags & 1)) fail("the carry flag");
    }
    return NULL;
}

/* A call with the vector registers as at the start of a program, and what they are after it */
static void call_with_initial_registers(long number, long first, long second)
{
    unsigned long got[4] = { 1, 1, 1, 1 };
    long result;
    __asm__ volatile (
        "vzeroall\n mov %[number], %%rax\n syscall\n vmovdqu %%ymm15, %[got]\n"
        : "=&a" (result), [got] "=m" (got)
        : [number] "r" (number), "D" (first), "S" (second)
        : "rcx", "r11", "xmm15", "memory");
    if (result != 0) fail("the result of a call with initial registers");
    if (got[0] | got[1] | got[2] | got[3]) fail("initial registers");
}

static void *initial_turns(void *unused)
{
    for (int i = 0; i < 2000; i++) call_with_initial_registers(24, 0, 0);
    return unused;
}

static void overwrite(int signal)
{
    unsigned long ones[4] = { signal, ~0UL, ~0UL, ~0UL };
    __asm__ volatile ("vmovdqu %0, %%ymm15" : : "m" (ones) : "xmm15");
}

#define CALL(name) \
__attribute__((noinline, noclone)) static long name(long number, int bare) \
{ \
    long result; \
    __asm__ volatile ( \
        "test %[bare], %[bare]\n mov %[number], %%rax\n jnz 1f\n" \
        "nop\n mov $39, %%eax\n" \
        "1: syscall\n" /* getpid, or what the caller says */ \
        : "=&a" (result) : [number] "r" (number), [bare] "r" (bare) : "rcx", "r11", "memory"); \
    return result; \
}
CALL(call)
CALL(call_bare_first)

__attribute__((noinline, noclone)) static long read_letter(int file, char *letter)
{
    long result;
    __asm__ volatile ("mov $0, %%eax\n syscall" : "=&a" (result)
                      : "D" (file), "S" (letter), "d" (1) : "rcx", "r11", "memory");
    return result;
}

__attribute__((noinline, noclone)) static long load_r8_before_call(void)
{
    long loaded;
    __asm__ volatile ("xor %%r8d, %%r8d\n mov $39, %%eax\n mov $39, %%r8d\n syscall\n mov %%r8, %0"
                      : "=r" (loaded) : : "rax", "rcx", "r8", "r11", "memory");
    return loaded;
}

static void on_alarm(int signal) { (void) signal; }

static void all(void)
{
    pthread_t threads[5];
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, turns, (void *) i);
    pthread_create(&threads[4], NULL, initial_turns, NULL);
    for (int i = 0; i < 5; i++) pthread_join(threads[i], NULL);

    signal(SIGUSR1, overwrite);
    for (int i = 0; i < 3; i++) call_with_initial_registers(62, getpid(), SIGUSR1); /* kill */

    for (int i = 0; i < 3; i++) {
        if (call(0, 0) != getpid()) fail("getpid");
        if (call(110, 1) != getppid()) fail("a jump to the bare instruction");
        if (call_bare_first(110, 1) != getppid()) fail("the bare instruction at first");
        if (call_bare_first(0, 0) != getpid()) fail("a call after the bare instruction");
        if (load_r8_before_call() != 39) fail("an instruction with a prefix");
    }

    int ends[2];
    char letter = 0;
    struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
    sigaction(SIGALRM, &action, NULL);
    for (int i = 0; i < 3; i++) {
        if (pipe(ends)) fail("pipe");
        if (fork() == 0) {
            usleep(20000);
            kill(getppid(), SIGALRM);
            usleep(20000);
            if (write(ends[1], "x", 1) != 1) fail("write");
            _exit(0);
        }
        if (read_letter(ends[0], &letter) != 1 || letter != 'x') fail("a call that was made again");
        wait(NULL);
    }
}

int main(void)
{
    int status = 1;
    all();
    if (fork() == 0) { all(); _exit(0); }
    wait(&status);
    if (status) fail("the child");
    puts("all as it should be");
    return 0;
}
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the program is x86-64 assembly")
def test_calls_that_are_not_signals_leave_everything_as_system_calls_do(
    guest: Guest, compiled: Compiled, tmp_path: Path
) -> None:
    if "avx" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor has no AVX")
    ended = guest(compiled(PROGRAM, "-mavx", "-pthread"), directory=tmp_path)
    assert ended.lines == ["all as it should be"], ended.errors
    assert ended.result.exit_status == 0


# Calls in which the kernel leaves vector registers where they are. Four threads, two of each of two
# processes, pass a byte on, each with its own values in the registers, and into memory that has no
# page yet; then a signal comes while a call waits, or by the call itself (SIGPIPE), and its handler
# overwrites them.
PASSED_ON = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 500
#define PAGE 4096

static int pipes[5][2];

static void fail(const char *what) { printf("failed: %s\n", what); fflush(stdout); _exit(1); }

__attribute__((noinline, noclone)) static void
pass_byte(int from, int to, char *byte, const unsigned long *want, unsigned long *got, long wrote)
{
    long read_one, wrote_one;
    __asm__ volatile (
        "vmovdqu %[want], %%ymm15\n"
        "mov %[from], %%edi\n mov %[byte], %%rsi\n mov $1, %%edx\n"
        "mov $0, %%eax\n syscall\n mov %%rax, %%r12\n"
        "mov %[to], %%edi\n mov %[byte], %%rsi\n mov $1, %%edx\n"
        "mov $1, %%eax\n syscall\n"
        "vmovdqu %%ymm15, %[got]\n mov %%r12, %[read_one]\n"
        : "=&a" (wrote_one), [read_one] "=m" (read_one), [got] "=m" (*(unsigned long (*)[4]) got)
        : [want] "m" (*(const unsigned long (*)[4]) want), [from] "m" (from), [to] "m" (to),
          [byte] "m" (byte)
        : "rcx", "r11", "r12", "rdi", "rsi", "rdx", "xmm15", "memory");
    if (read_one != 1 || wrote_one != wrote) fail("a byte");
}

static void *pass_on(void *argument)
{
    long me = (long) argument;
    char *memory = mmap(NULL, ROUNDS * PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long i = 0; i < ROUNDS; i++) {
        unsigned long want[4] = { me * 1000003 + i, ~me, i, me ^ i }, got[4] = { 0 };
        pass_byte(pipes[me][0], pipes[(me + 1) % 4][1], memory + i * PAGE, want, got, 1);
        if (memcmp(want, got, sizeof(want))) fail("registers of who passes on");
    }
    return NULL;
}

static void two_threads(long first)
{
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, pass_on, (void *) (first + i));
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

static void overwrite(int signal)
{
    unsigned long ones[4] = { signal, ~0UL, ~0UL, ~0UL };
    __asm__ volatile ("vmovdqu %0, %%ymm15" : : "m" (ones) : "xmm15");
}

int main(void)
{
    struct sigaction action = { .sa_handler = overwrite, .sa_flags = SA_RESTART };
    unsigned long want[4] = { 1, 2, 3, 4 }, got[4];
    int status = 1;
    char byte;

    for (int i = 0; i < 5; i++) if (pipe(pipes[i])) fail("pipe");
    if (write(pipes[0][1], "x", 1) != 1) fail("write");
    if (fork() == 0) { two_threads(0); _exit(0); }
    two_threads(2);
    wait(&status);
    if (status) fail("the child");

    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < 3; i++) {
        memset(got, 0, sizeof(got));
        if (fork() == 0) {
            usleep(20000);
            kill(getppid(), SIGUSR1);
            usleep(20000);
            if (write(pipes[4][1], "x", 1) != 1) fail("write");
            _exit(0);
        }
        pass_byte(pipes[4][0], pipes[1][1], &byte, want, got, 1);
        if (memcmp(want, got, sizeof(want))) fail("registers around a signal");
        wait(NULL);
    }
    sigaction(SIGPIPE, &action, NULL);
    close(pipes[2][0]);
    for (int i = 0; i < 3; i++) {
        memset(got, 0, sizeof(got));
        want[0] = 10 + i; /* not what was there when anybody else ran */
        if (write(pipes[4][1], "x", 1) != 1) fail("write");
        pass_byte(pipes[4][0], pipes[2][1], &byte, want, got, -EPIPE);
        if (memcmp(want, got, sizeof(want))) fail("registers around a call's own signal");
    }
    puts("all as it should be");
    return 0;
}
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the program is x86-64 assembly")
def test_calls_that_keep_vector_registers_keep_each_threads_own(
    guest: Guest, compiled: Compiled, tmp_path: Path
) -> None:
    if "avx" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor has no AVX")
    ended = guest(compiled(PASSED_ON, "-mavx", "-pthread"), directory=tmp_path)
    assert ended.lines == ["all as it should be"], ended.errors
    assert ended.result.exit_status == 0


@skip_where_traced
def test_nearly_all_system_calls_come_without_a_signal(guest: Guest) -> None:
    # The first is the C library's, the second the vDSO's.
    script = "import os, time\nfor i in range(10000): os.getppid(), time.monotonic()"
    ended = guest("/usr/bin/python3", "-c", script)
    stops = ended.result.stops
    assert stops["calls"] > 20_000
    assert stops["signalled_calls"] < 0.5 * (stops["calls"] - 20_000) + 100


# Code with a system call, which is made thrice, then changed to make another, and made again: in
# memory that is executable when it is not writable, as compilers at run time have it, and in a
# file's that is both.
CODE_THAT_CHANGES = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define INDEX 16  /* not first in its page, where calls stay signals */

int main(void)
{
    const unsigned char code[] = { 0xb8, SYS_getpid, 0, 0, 0, 0x0f, 0x05, 0xc3 };
    int file = memfd_create("code", 0), all = PROT_READ | PROT_WRITE | PROT_EXEC;
    if (pwrite(file, code, sizeof(code), INDEX) != sizeof(code)) return 1;
    for (int from_file = 0; from_file < 2; from_file++) {
        unsigned char *page = mmap(NULL, 4096, from_file ? all : PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | (from_file ? 0 : MAP_ANONYMOUS),
                                   from_file ? file : -1, 0);
        int (*call)(void) = (int (*)(void)) (page + INDEX);
        if (!from_file) {
            memcpy(page + INDEX, code, sizeof(code));
            mprotect(page, 4096, PROT_READ | PROT_EXEC);
        }
        for (int i = 0; i < 3; i++) printf("%d ", call() == getpid());
        if (!from_file) mprotect(page, 4096, PROT_READ | PROT_WRITE);
        page[INDEX + 1] = SYS_getppid;
        if (!from_file) mprotect(page, 4096, PROT_READ | PROT_EXEC);
        printf("%d\n", call() == getppid());
        fflush(stdout);
    }
    return 0;
}
"""


def test_code_that_changes_is_left_alone(guest: Guest, compiled: Compiled, tmp_path: Path) -> None:
    ended = guest(compiled(CODE_THAT_CHANGES), directory=tmp_path)
    assert ended.lines == ["1 1 1 1"] * 2, ended.result.message


# Vector registers of which no processor has so many, or bits that MXCSR has not, for the return
# from a signal
IMPOSSIBLE_FRAME = r"""
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static int offset, size;

static void set_bits(int signal, siginfo_t *info, void *context)
{
    (void) signal, (void) info;
    memset((char *) ((ucontext_t *) context)->uc_mcontext.fpregs + offset, 0xff, size);
}

int main(int count, char **arguments)
{
    int status;
    if (count != 3) return 1;
    offset = atoi(arguments[1]), size = atoi(arguments[2]);
    if (fork() == 0) {
        struct sigaction action = { .sa_sigaction = set_bits, .sa_flags = SA_SIGINFO };
        sigaction(SIGUSR1, &action, NULL);
        raise(SIGUSR1);
        _exit(0);
    }
    wait(&status);
    return 0;
}
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the layout is that of x86-64's XSAVE")
@pytest.mark.parametrize(("offset", "size"), [(512, 8), (24, 4)], ids=["components", "mxcsr"])
def test_registers_that_no_processor_has_harm_nobody_else(
    guest: Guest, compiled: Compiled, tmp_path: Path, offset: int, size: int
) -> None:
    ended = guest(compiled(IMPOSSIBLE_FRAME), offset, size, directory=tmp_path)
    assert ended.result.exit_status == 0, ended.result.message
