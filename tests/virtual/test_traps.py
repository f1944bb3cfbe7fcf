"""Processor exceptions of user code reach the program, or its tracer, and nobody else."""

import os
from pathlib import Path

import pytest

from tests.virtual.conftest import Compiled, Guest

FAULTS = r"""
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD(name, code) do { \
    int status; \
    if (fork() == 0) { code; _exit(7); } \
    wait(&status); \
    printf(name " %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status)); \
    fflush(stdout); \
} while (0)

int main(void)
{
    CHILD("division", __asm__ volatile ("xor %%ecx, %%ecx\n idiv %%ecx" ::: "rax", "rcx", "rdx"));
    CHILD("breakpoint", __asm__ volatile ("int3"));
    CHILD("unknown", __asm__ volatile ("ud2"));
    CHILD("null", *(volatile char *) 0 = 1);
    CHILD("nothing", );
    return 0;
}
"""

# A breakpoint that is the program's own: its handler goes on behind it.
HANDLED = r"""
#include <signal.h>
#include <stdio.h>

static volatile int caught;
static void on_trap(int signal) { caught += signal; }

int main(void)
{
    signal(SIGTRAP, on_trap);
    for (int i = 0; i < 3; i++) __asm__ volatile ("int3");
    printf("%d\n", caught);
    return 0;
}
"""

# Stepped through by its parent, instruction by instruction. The system calls are made by the same
# instructions as in the round before and after: they may have become jumps (patch 0008) or not.
STEPPED = r"""
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static void call(void) { for (int i = 0; i < 3; i++) { getppid(); getuid(); } }

int main(void)
{
    for (int round = 0; round < 4; round++) {
        int status, steps = 0, moved = 0;
        unsigned long last = 0;
        struct user_regs_struct registers;
        pid_t pid = fork();
        if (pid == 0) {
            ptrace(PTRACE_TRACEME, 0, 0, 0);
            raise(SIGSTOP);
            call();
            _exit(7);
        }
        waitpid(pid, &status, 0);
        /* In the last one it is let go after ten: nothing may stop it then */
        while (WIFSTOPPED(status) && steps < (round < 3 ? 100000 : 10)) {
            if (ptrace(PTRACE_GETREGS, pid, 0, &registers)) return 1;
            moved += registers.rip != last;
            last = registers.rip;
            if (ptrace(PTRACE_SINGLESTEP, pid, 0, 0)) return 2;
            waitpid(pid, &status, 0);
            steps++;
        }
        if (WIFSTOPPED(status)) {
            ptrace(PTRACE_DETACH, pid, 0, 0);
            waitpid(pid, &status, 0);
        }
        printf("%d %d %d\n", steps, moved, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
        fflush(stdout);
        if (round == 1) call();
    }
    return 0;
}
"""

# Bases of thread-local memory that no processor takes, for itself and for a child
IMPOSSIBLE_BASES = r"""
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
    const unsigned long impossible = 1UL << 63;
    printf("%ld", syscall(SYS_arch_prctl, ARCH_SET_FS, impossible));
    printf(" %d\n", errno);
    printf("%ld", syscall(SYS_clone, CLONE_SETTLS | SIGCHLD, 0, 0, 0, impossible));
    printf(" %d\n", errno);
    return 0;
}
"""

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="the programs are x86-64 assembly"
)


def test_exceptions_are_the_programs_signals(
    guest: Guest, compiled: Compiled, tmp_path: Path
) -> None:
    """SIGFPE, SIGTRAP, SIGILL, SIGSEGV; and the guest goes on."""
    ended = guest(compiled(FAULTS), directory=tmp_path)
    expected = ["division 8", "breakpoint 5", "unknown 4", "null 11", "nothing -7"]
    assert ended.lines == expected, ended.result.message


def test_a_breakpoint_can_be_handled(guest: Guest, compiled: Compiled, tmp_path: Path) -> None:
    ended = guest(compiled(HANDLED), directory=tmp_path)
    assert ended.lines == ["15"], ended.result.message


def test_a_debugger_steps_through_a_program(
    guest: Guest, compiled: Compiled, tmp_path: Path
) -> None:
    ended = guest(compiled(STEPPED), directory=tmp_path)
    assert ended.result.exit_status == 0, ended.result.message
    rounds = [[int(word) for word in line.split()] for line in ended.lines]
    assert [status for _, _, status in rounds] == [7, 7, 7, 7]
    assert rounds[3][0] == 10
    for steps, moved, _ in rounds[:3]:
        # Six calls, each with at least its own instruction, one that loads its number and a return
        assert 18 < steps < 100_000
        assert moved >= 0.9 * steps


def test_an_impossible_base_of_thread_local_memory_is_refused(
    guest: Guest, compiled: Compiled, tmp_path: Path
) -> None:
    ended = guest(compiled(IMPOSSIBLE_BASES), directory=tmp_path)
    assert ended.lines == ["-1 1", "-1 1"], ended.result.message  # EPERM
