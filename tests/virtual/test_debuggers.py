"""A debugger gets of a program that it traces (patch 0005) all that it gets on any Linux."""

import os
from pathlib import Path

import pytest

from tests.virtual.conftest import Compiled, Guest

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="the programs are x86-64 assembly"
)

REGISTERS = r"""
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* The child stops with known registers, and says what it has when it goes on */
static void traced(void)
{
    unsigned int mxcsr = 0x9f80;
    double two = 2, half;
    unsigned long xmm[2] = { 11, 22 }, gs = 0;
    unsigned char carry;
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    syscall(SYS_arch_prctl, ARCH_SET_GS, 0x1234);
    __asm__ volatile (
        "ldmxcsr %[mxcsr]\n fldl %[two]\n movdqu %[xmm], %%xmm3\n stc\n"
        "int3\n"
        "setc %[carry]\n movdqu %%xmm3, %[xmm]\n fstpl %[half]\n stmxcsr %[mxcsr]\n"
        : [mxcsr] "+m" (mxcsr), [xmm] "+m" (xmm), [half] "=m" (half), [carry] "=m" (carry)
        : [two] "m" (two) : "xmm3", "cc");
    syscall(SYS_arch_prctl, ARCH_GET_GS, &gs);
    printf("carry %d xmm %lu %lu st %g mxcsr %x gs %lx\n", carry, xmm[0], xmm[1], half, mxcsr, gs);
    fflush(stdout);
    /* Once more, at a system call that is no signal any more (patch 0008), in the initial state,
       of which XSAVEOPT writes nothing: the first time round the call is a signal, the second
       leaves other values behind */
    static struct {
        char x87[24];
        unsigned int mxcsr;
        char others[180];
        unsigned long xmm3[2];
        char more[288];
        unsigned long in_use;  /* bit 1: SSE */
        char header[56];
    } __attribute__((aligned(64))) initial = { .mxcsr = 0x1f80 },
                                   full = { .mxcsr = 0x1f80, .xmm3 = { 77, 88 }, .in_use = 2 };
    for (volatile int round = 0; round < 3; round++)
        __asm__ volatile (
            "mov $3, %%eax\n xor %%edx, %%edx\n xrstor64 (%[state])\n"
            "mov $62, %%eax\n syscall\n"
            "movdqu %%xmm3, %[xmm]"
            : [xmm] "=m" (xmm)
            : [state] "r" (round == 1 ? &full : &initial),
              "D" (getpid()), "S" (round == 2 ? SIGSTOP : 0)
            : "rax", "rcx", "rdx", "r11", "xmm3", "memory");
    printf("from initial xmm %lu %lu\n", xmm[0], xmm[1]);
    fflush(stdout);
    _exit(0);
}

#define TELL(what, call) do { \
    errno = 0; \
    long result = call; \
    printf(what " %ld %d\n", result, errno); \
} while (0)

int main(void)
{
    int status;
    struct user_regs_struct registers;
    struct user_fpregs_struct fp;
    unsigned long gs = 0;
    pid_t pid = fork();
    if (pid == 0) traced();
    waitpid(pid, &status, 0);

    TELL("get", ptrace(PTRACE_GETFPREGS, pid, 0, &fp));
    long double *st = (long double *) fp.st_space;
    unsigned int *xmm3 = fp.xmm_space + 12;
    printf("xmm %u %u st %g mxcsr %x\n", xmm3[0], xmm3[2], (double) *st, fp.mxcsr);
    *st = 0.5, xmm3[0] = 33, xmm3[2] = 44, fp.mxcsr = 0x1f80;
    TELL("set", ptrace(PTRACE_SETFPREGS, pid, 0, &fp));
    fp.mxcsr = ~0U;
    TELL("impossible", ptrace(PTRACE_SETFPREGS, pid, 0, &fp));
    TELL("gs", syscall(SYS_ptrace, PTRACE_ARCH_PRCTL, pid, &gs, ARCH_GET_GS));
    printf("gs %lx\n", gs);
    TELL("set gs", syscall(SYS_ptrace, PTRACE_ARCH_PRCTL, pid, 0x5678UL, ARCH_SET_GS));
    TELL("bad gs", syscall(SYS_ptrace, PTRACE_ARCH_PRCTL, pid, 1UL << 63, ARCH_SET_GS));
    /* Behind user code, and no address at all for a processor of 48 bits */
    size_t fs_base = offsetof(struct user_regs_struct, fs_base);
    TELL("bad fs", ptrace(PTRACE_POKEUSER, pid, fs_base, 1UL << 47));
    ptrace(PTRACE_GETREGS, pid, 0, &registers);
    registers.eflags &= ~1UL;
    TELL("flags", ptrace(PTRACE_SETREGS, pid, 0, &registers));
    TELL("odd address", ptrace(PTRACE_PEEKUSER, pid, 4, 0));
    TELL("odd poke", ptrace(PTRACE_POKEUSER, pid, 4, 0));
    fflush(stdout);
    ptrace(PTRACE_CONT, pid, 0, 0);
    waitpid(pid, &status, 0);
    ptrace(PTRACE_GETFPREGS, pid, 0, &fp);
    printf("initial %u %u %x %d\n", xmm3[0], xmm3[2], fp.cwd, fp.ftw);
    xmm3[0] = 55, xmm3[2] = 66;
    TELL("set", ptrace(PTRACE_SETFPREGS, pid, 0, &fp));
    fflush(stdout);
    ptrace(PTRACE_CONT, pid, 0, 0);
    waitpid(pid, &status, 0);
    printf("%d\n", status);
    return 0;
}
"""


def test_a_debugger_reads_and_writes_registers(
    guest: Guest, compiled: Compiled, tmp_path: Path
) -> None:
    if "avx" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor has no AVX")
    ended = guest(compiled(REGISTERS, "-mavx"), directory=tmp_path)
    assert ended.lines == [
        "get 0 0",
        "xmm 11 22 st 2 mxcsr 9f80",
        "set 0 0",
        "impossible -1 22",  # EINVAL
        "gs 0 0",
        "gs 1234",
        "set gs 0 0",
        "bad gs -1 1",  # EPERM
        "bad fs -1 5",  # EIO
        "flags 0 0",
        "odd address -1 5",
        "odd poke -1 5",
        "carry 0 xmm 33 44 st 0.5 mxcsr 1f80 gs 5678",
        "initial 0 0 37f 0",
        "set 0 0",
        "from initial xmm 55 66",
        "0",
    ], ended.result.message


# The numbers 4 and 5 of the eight are none
DEBUG_REGISTERS = r"""
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    const int numbers[] = { 0, 1, 2, 3, 6, 7 };
    pid_t pid = fork();
    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        _exit(0);
    }
    wait(NULL);
    for (int i = 0; i < 6; i++) {
        size_t place = offsetof(struct user, u_debugreg) + numbers[i] * sizeof(long);
        errno = 0;
        long before = ptrace(PTRACE_PEEKUSER, pid, place, 0), failed = errno;
        long cleared = ptrace(PTRACE_POKEUSER, pid, place, 0);
        long set = ptrace(PTRACE_POKEUSER, pid, place, 0x401), refused = errno;
        long after = ptrace(PTRACE_PEEKUSER, pid, place, 0);
        printf("%ld %ld %ld %ld %ld %ld\n", before, failed, cleared, set, refused, after);
    }
    kill(pid, SIGKILL);
    return 0;
}
"""


def test_watchpoints_in_hardware_are_refused(
    guest: Guest, compiled: Compiled, tmp_path: Path
) -> None:
    """There are none; who believed in them would wait for ever."""
    ended = guest(compiled(DEBUG_REGISTERS), directory=tmp_path)
    assert ended.lines == ["0 0 0 -1 22 0"] * 6, ended.result.message  # EINVAL
