"""Guests that run at once: each on a core of its own, and all end when one of them fails."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from emulator.virtual.boot import GuestResult, GuestSpec, run_guest, run_guests
from emulator.virtual.build import KernelImage
from emulator.virtual.failure import VirtualKernelError
from emulator.virtual.memory import available_memory_bytes
from tests.session.leftovers import left_by
from tests.slowdown import slowdown

ROOT = Path(__file__).resolve().parents[2]
LOOKAHEAD_NS = 1000
FOR_EVER = "while true; do sleep 1; done"

Said = Callable[[int, str], None]


def _guest(script: str) -> GuestSpec:
    return GuestSpec(argv=("sh", "-c", script), memory_bytes=400 * 10**6)


def _run(
    kernel: KernelImage, *scripts: str, on_line: Said | None = None
) -> tuple[tuple[GuestResult, ...], list[list[str]]]:
    lines: list[list[str]] = [[] for _ in scripts]

    def say(index: int, line: str) -> None:
        lines[index].append(line)
        if on_line is not None:
            on_line(index, line)

    results = run_guests(kernel, [_guest(script) for script in scripts], LOOKAHEAD_NS, say)
    assert left_by(os.getpid()) == []
    return results, lines


def test_each_does_what_it_was_told(kernel: KernelImage) -> None:
    scripts = [f"sleep {n}; echo {n}; echo error {n} >&2" for n in (3, 1, 2)]
    results, lines = _run(kernel, *scripts)
    assert [sorted(said) for said in lines] == [[n, f"error {n}"] for n in "312"]
    assert [(result.reason, result.exit_status) for result in results] == [("exited", 0)] * 3
    assert [result.virtual_ns // 10**9 for result in results] == [3, 1, 2]
    assert not any(result.failed for result in results)


RANDOM = "head -c 16 /dev/urandom | od -An -tx1"


def test_only_the_first_draws_the_random_numbers_of_a_guest_alone(kernel: KernelImage) -> None:
    alone: list[str] = []
    run_guest(kernel, _guest(RANDOM), alone.append)
    drawn = [_run(kernel, RANDOM, RANDOM, RANDOM)[1] for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert drawn[0][0] == alone
    assert len({said for lines in drawn[0] for said in lines}) == 3


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processor cores")
def test_two_are_on_two_cores(kernel: KernelImage) -> None:
    cores: list[frozenset[int]] = []
    policies: list[int] = []

    def look(index: int, line: str) -> None:
        if not cores and line == "here":
            cores.extend(frozenset(os.sched_getaffinity(pid)) for pid in _kernels())
            policies.extend(os.sched_getscheduler(pid) for pid in _kernels())

    _run(kernel, "sleep 1; echo here", "sleep 1; echo here", on_line=look)
    assert [len(core) for core in cores] == [1, 1]
    assert cores[0] != cores[1]
    # Woken by the other, each must get its core at once, whoever else is there.
    assert policies == [os.sched_getscheduler(0)] * 2


def _kernels() -> list[int]:
    """First processes of this process's guests, in order of their start."""
    found = []
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        with contextlib.suppress(OSError):
            if "init=/proc/self/cwd/init" in Path(f"/proc/{pid}/cmdline").read_text():
                found.append(int(pid))
    return found


@pytest.mark.parametrize("failing", [0, 1])
def test_one_that_fails_ends_the_others(kernel: KernelImage, failing: int) -> None:
    scripts = [FOR_EVER, FOR_EVER]
    scripts[failing] = "echo has failed; exit 3"
    results, lines = _run(kernel, *scripts)
    assert lines[failing] == ["has failed"]
    assert (results[failing].reason, results[failing].exit_status) == ("exited", 3)
    other = results[1 - failing]
    assert (other.reason, other.exit_status) == ("stopped", None)
    assert "another kernel of the run had failed" in other.message
    assert results[failing].failed and other.failed


@pytest.mark.parametrize("failing", [0, 1])
def test_one_that_dies_ends_the_others(kernel: KernelImage, failing: int) -> None:
    scripts = [FOR_EVER, FOR_EVER]
    scripts[failing] = f"echo started; {FOR_EVER}"

    def kill(index: int, line: str) -> None:
        os.kill(_kernels()[index], signal.SIGKILL)

    results, _ = _run(kernel, *scripts, on_line=kill)
    assert [result.reason for result in results] == (
        ["died", "stopped"] if failing == 0 else ["stopped", "died"]
    )


@pytest.mark.parametrize("computing", [0, 1])
def test_the_one_that_computes_for_ever_is_stalled_not_who_waits_for_it(
    kernel: KernelImage, computing: int
) -> None:
    scripts = [FOR_EVER, FOR_EVER]
    scripts[computing] = "sleep 5; echo computing; while true; do :; done"
    said: list[str] = []
    # On a machine that is busy, booting alone may take longer than a short limit.
    for limit_s in (2, 8, 32, 128):
        guests = [replace(_guest(script), stall_timeout_s=limit_s) for script in scripts]
        results = run_guests(kernel, guests, LOOKAHEAD_NS, lambda index, line: said.append(line))
        if said:
            break
    assert results[computing].reason == "stalled"
    assert f"no virtual time passed for {limit_s} real seconds" in results[computing].message
    assert results[1 - computing].reason == "stopped"


def test_memory_is_refused_for_all_together(kernel: KernelImage) -> None:
    half = available_memory_bytes() * 2 // 3
    guests = [GuestSpec(argv=("true",), memory_bytes=half) for _ in range(2)]
    with pytest.raises(VirtualKernelError) as refused:
        run_guests(kernel, guests, LOOKAHEAD_NS, lambda index, line: None)
    assert f"{2 * half / 1e6:,.0f} MB for 2 guests refused" in str(refused.value)


TWO = f"""
from emulator.interruption import run_heeding_signals
from emulator.virtual.boot import GuestSpec, run_guests
from emulator.virtual.build import ensure_kernel
def body():
    guest = GuestSpec(argv=("sh", "-c", "echo started; {FOR_EVER}"), memory_bytes=400 * 10**6)
    say = lambda index, line: print(index, line, flush=True)
    run_guests(ensure_kernel(print), [guest, guest], {LOOKAHEAD_NS}, say)
run_heeding_signals(body)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_all_and_leaves_nothing(kernel: KernelImage, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", TWO], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        said = {process.stdout.readline() for _ in range(2)}
        asked = time.monotonic()
        process.send_signal(number)
        status = process.wait(timeout=300)
        took_s = time.monotonic() - asked
    finally:
        process.kill()
        process.communicate()
    assert said == {"0 started\n", "1 started\n"}
    assert status == (130 if number == signal.SIGINT else -signal.SIGKILL)
    assert took_s < 2 * slowdown()
    assert left_by(process.pid) == []
