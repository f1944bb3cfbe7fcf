"""A program begins with the registers of a processor just reset (patch 0013)."""

from pathlib import Path

import pytest

from tests.virtual.conftest import Compiled, Guest

# Without a C library, which uses vector registers before main(): what a program finds at its start.
PROGRAM = r"""
static int wrong(void)
{
    unsigned int in_use, high, mxcsr;
    unsigned short control;

    asm volatile("xgetbv" : "=a"(in_use), "=d"(high) : "c"(1));
    asm volatile("stmxcsr %0" : "=m"(mxcsr));
    asm volatile("fnstcw %0" : "=m"(control));
    /* AVX (2), AVX-512 (5 to 7), AMX (17, 18): Intel SDM 1, 13.1. Protection keys (9) are in use
     * in each program, as Linux begins it with init_pkru_value (arch/x86/mm/pkeys.c). */
    return (in_use & 0x600e4u ? 1 : 0) | (mxcsr != 0x1f80 ? 2 : 0) | (control != 0x37f ? 4 : 0);
}

void _start(void)
{
    asm volatile("syscall" : : "a"(231L), "D"((long) wrong()));  /* exit_group */
}
"""


@pytest.mark.parametrize("time_travel", [True, False], ids=["virtual", "traced"])
def test_a_program_begins_with_the_processors_initial_registers(
    guest: Guest, compiled: Compiled, tmp_path: Path, time_travel: bool
) -> None:
    """They held what a process of the host had in them when the guest booted: 1 KB of AVX-512's
    were in use for good in every process, and were loaded at each return to user code."""
    if "xgetbv1" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor does not tell which registers are in use (XGETBV 1)")
    program = compiled(PROGRAM, "-nostdlib", "-static")
    ended = guest(program, directory=tmp_path, time_travel=time_travel)
    assert ended.result.exit_status == 0, ended.errors
