"""A host without seccomp filters still boots guests, which compute the same."""

import ctypes
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.virtual.host.features import has_seccomp_filters
from tests.virtual.conftest import Guest

ROOT = Path(__file__).resolve().parents[2]
# Random numbers, time, and by how much the processor's counter (patch 0010) differs from the clock.
SCRIPT = """
import ctypes, mmap, os, time
time.sleep(0.1)
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("0f31 48c1e220 4809d0 c3"))  # rdtsc; shl $32,%rdx; or %rdx,%rax; ret
counter = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
print(os.urandom(8).hex(), time.time_ns(), os.getpid(), counter() - time.monotonic_ns())
"""
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _MODE_FILTER = 22, 38, 2


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def forbid_seccomp() -> None:
    """As a container's policy may: seccomp(2) is refused for this process and all below it."""
    instructions = (
        (0x20, 0, 0, 0),  # load the number of the system call
        (0x15, 0, 1, 317),  # seccomp?
        (0x06, 0, 0, 0x00050000 | 1),  # fails with EPERM
        (0x06, 0, 0, 0x7FFF0000),  # is allowed
    )
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in instructions)
    program = Program(len(instructions), code)
    libc = ctypes.CDLL(None)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        os._exit(1)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        os._exit(1)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls are x86-64's")
def test_without_seccomp_filters_the_guest_is_traced_and_repeats_bit_for_bit(guest: Guest) -> None:
    if not has_seccomp_filters():
        pytest.skip("this host has no seccomp filters, so there is nothing to compare with")
    with_filters = guest(sys.executable, "-c", SCRIPT, directory=ROOT)
    done = subprocess.run(
        [sys.executable, "-m", "emulator.virtual", "--mem", "512MB", "--",
         sys.executable, "-c", SCRIPT],
        cwd=ROOT, capture_output=True, text=True, preexec_fn=forbid_seccomp,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == with_filters.lines
    assert done.stdout.split()[-1] == "0"
