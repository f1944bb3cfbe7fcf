"""A guest keeps to one core, and leaves it when it is crowded there and not elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from emulator.virtual.host.core import Core, better_core

_PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=sys.stdin)
print(child.pid, flush=True)
child.wait()
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processor cores")
def test_every_process_of_a_guest_is_on_the_one_core_and_nobody_else() -> None:
    ours = os.sched_getaffinity(0)
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        child = int(parent.stdout.readline())
        with Core(parent.pid):
            pass
        cores = [os.sched_getaffinity(pid) for pid in (parent.pid, child)]
        policy = os.sched_getscheduler(parent.pid)
        parent.stdin.write(b"\n")
        parent.stdin.close()
    assert len(cores[0]) == 1 and cores[0] <= ours
    assert cores[1] == cores[0]
    assert policy == os.SCHED_BATCH
    assert os.sched_getaffinity(0) == ours


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processor cores")
def test_guests_take_cores_that_no_other_guest_has() -> None:
    """In a network namespace of its own, where no other guest's claims are; with an even and an odd
    number of processes between those that choose."""
    script = """
import ctypes, os, subprocess, sys
from emulator.virtual.host.core import Core
if ctypes.CDLL(None).unshare(0x40000000 | (0x10000000 if os.geteuid() else 0)):
    sys.exit(77)
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
def core_of(guest):
    (core,) = os.sched_getaffinity(guest.pid)
    return core
for number in range(2):
    guests = [subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True)
              for _ in range(4 - number)]
    one, other, *_, late = guests
    with Core(one.pid):
        with Core(other.pid):
            assert core_of(one) != core_of(other)
        with Core(late.pid):
            assert core_of(late) != core_of(one)
            Core(guests[2].pid)  # none is left: it takes one that another has
    for guest in guests:
        guest.communicate()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip("this machine gives users no network namespaces")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("others", "idle", "expected"),
    [
        (0.5, {0: 0.0, 1: 1.0}, 1),  # a hog came to the guest's core
        (0.2, {0: 0.0, 1: 1.0}, 0),  # nearly alone
        (0.5, {0: 0.0, 1: 0.1}, 0),  # no core is free: nothing to gain
        (0.5, {0: 0.9, 1: 0.0}, 0),
    ],
)
def test_a_guest_leaves_only_what_is_crowded_for_what_is_free(
    others: float, idle: dict[int, float], expected: int
) -> None:
    assert better_core(0, others, idle) == expected
