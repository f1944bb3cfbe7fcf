"""Measurements in real time are judged only where the machine kept up with them.

Lower bounds of times are physics and hold on any machine. Upper bounds, and verdicts of "valid",
hold on a machine that is ours alone: what is measured there is measured again while something says
that the machine was not, and skipped with that something's words when it never was.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

from emulator.fidelity import FidelityMonitor
from emulator.fidelity.thresholds import THRESHOLDS
from emulator.network.network import Network

T = TypeVar("T")

_TRIES = 5
_OF_THE_MACHINE = ("saturated_share", "steal_share", "timer_lateness_ns")
_OTHERS_LIMIT = 0.1
"""Share of all processors' time that others may take of a machine that is called idle: half of what
saturates one core of two in 20% of the samples, which is the verdict's limit."""
_LIMITS = {limit.name: limit.limit for limit in THRESHOLDS}
_STOLEN_LIMIT = _LIMITS["steal_share"]
"""A run is invalid when the hypervisor takes more, and rightly so."""
_LATE_LIMIT_NS = _LIMITS["timer_lateness_ns"]
"""Likewise when timers are later. A machine whose other work comes in bursts of milliseconds does
that with a hundredth of its processors, far below the limit of a share."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def believed(live: Network, measure: Callable[[], T], accept: Callable[[T], bool]) -> T:
    """The value of `measure`, as soon as `accept` agrees, or the fidelity monitor says that the
    machine kept up and the value therefore stands as it is."""
    late = ""
    for _ in range(_TRIES):
        monitor = FidelityMonitor(live)
        monitor.start()
        found = measure()
        late = too_late(monitor)
        if accept(found) or not late:
            return found
    pytest.skip(f"{_TRIES} times the machine did not keep up: {late}")


def too_late(monitor: FidelityMonitor) -> str:
    """How the machine did not keep up while it was watched; empty when it did."""
    samples = monitor.verdict().samples
    figures = ((limit, samples[limit.name]) for limit in THRESHOLDS)
    return "; ".join(
        limit.explain(figure)
        for limit, figure in figures
        if limit.name in _OF_THE_MACHINE and figure is not None and figure > limit.limit
    )


def on_an_idle_machine(attempt: Callable[[], T], accept: Callable[[T], bool]) -> T:
    """The value of `attempt`: as soon as `accept` agrees, else the last one, when the machine was
    idle every time."""
    machines = []
    for _ in range(_TRIES):
        with _watched() as watched:
            found = attempt()
        if accept(found):
            return found
        machines.append(watched())
    others = max(machine.others for machine in machines)
    if others > _OTHERS_LIMIT:
        pytest.skip(f"others took up to {others:.0%} of the machine's processors")
    stolen = max(machine.stolen for machine in machines)
    if stolen > _STOLEN_LIMIT:
        pytest.skip(f"the hypervisor took up to {stolen:.0%} of the machine's processors")
    # While half of the processors are free of us, a timer is not late by what we do
    late_ns = max((m.late_ns for m in machines if m.ours < 0.5), default=0)
    if late_ns > _LATE_LIMIT_NS:
        pytest.skip(f"one in a hundred sleeps of a bare loop was {late_ns:,} ns too long or more")
    return found


class _Machine(NamedTuple):
    """The shares of all processors' time: of others than this process, its children that have
    ended, and interrupts (the hypervisor is among the others); of the hypervisor; and of these.
    `late_ns` is how late a timer was that nobody but the machine delays, one in a hundred or
    more."""

    others: float
    stolen: float
    ours: float
    late_ns: int


@contextmanager
def _watched() -> Iterator[Callable[[], _Machine]]:
    """A function that describes the machine during the block; call it after that."""
    machines: list[_Machine] = []
    late_ns: list[int] = []
    ended = threading.Event()
    sleeper = threading.Thread(target=_sleep_and_note, args=(ended, late_ns))
    before, before_own = _fields(), _own_ticks()
    sleeper.start()
    try:
        yield lambda: machines[0]
    finally:
        ended.set()
        sleeper.join()
    spent = [late - early for early, late in zip(before, _fields(), strict=True)]
    user, nice, system, _idle, _iowait, _irq, _softirq, stolen = spent
    own = _own_ticks() - before_own
    whole = max(1, sum(spent))
    others = user + nice + system + stolen - own
    hundredth = sorted(late_ns)[-1 - len(late_ns) // 100] if late_ns else 0
    machines.append(_Machine(others / whole, stolen / whole, own / whole, hundredth))


def _sleep_and_note(ended: threading.Event, late_ns: list[int]) -> None:
    while not ended.is_set():
        due_ns = time.monotonic_ns() + 1_000_000
        time.sleep(0.001)
        late_ns.append(time.monotonic_ns() - due_ns)


def _fields() -> list[int]:
    return [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]


def _own_ticks() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) * _TICKS_PER_S
