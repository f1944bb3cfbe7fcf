"""A program may ask that access to what is not aligned be a fault (flag AC). The kernel that it
calls then runs with that flag, on the same processor and in the same process of the host."""

import os
import subprocess

import pytest

from tests.virtual.conftest import Compiled, Guest

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="the programs are x86-64 assembly"
)

PROGRAM = r"""
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define AC "$0x40000"

static long call(long number, long a, long b)
{
    long result;
    __asm__ volatile ("xor %%r10d, %%r10d\n syscall" : "=a" (result)
                      : "a" (number), "D" (a), "S" (b), "d" (0) : "rcx", "r10", "r11", "memory");
    return result;
}

/* The C library need not be fit for it */
static void checked(int what, char *memory)
{
    int i, status;
    long child;
    if (what == 0)
        for (i = 0; i < 100; i++) call(SYS_getppid, 0, 0);
    if (what == 1)
        for (i = 0; i < 256; i++) *(volatile long *) (memory + 4096 * i) = i;
    if (what == 2) {
        child = call(SYS_fork, 0, 0);
        if (!child) call(SYS_exit, 3, 0);
        call(SYS_wait4, child, (long) &status);
    }
    if (what == 3)
        *(volatile int *) (memory + 1) = 5;
}

int main(void)
{
    for (int what = 0; what < 4; what++) {
        int status;
        if (!fork()) {
            unsigned long flags;
            char *memory = mmap(0, 1 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            __asm__ volatile ("pushf\n orl " AC ", (%%rsp)\n popf" ::: "memory", "cc");
            checked(what, memory);
            __asm__ volatile ("pushf\n pop %0\n pushf\n andl $~0x40000, (%%rsp)\n popf"
                              : "=r" (flags) :: "memory", "cc");
            _exit(flags & 0x40000 ? 7 : 8);
        }
        wait(&status);
        printf("%d: %x\n", what, status);
        fflush(stdout);
    }
}
"""


def test_a_program_with_the_alignment_check_on_calls_the_kernel(
    guest: Guest, compiled: Compiled
) -> None:
    program = compiled(PROGRAM, "-mno-red-zone")
    on_the_host = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    ended = guest(program)
    assert ended.lines == on_the_host.splitlines(), ended.result.message
    assert ended.lines == ["0: 700", "1: 700", "2: 700", "3: 7"]  # SIGBUS
