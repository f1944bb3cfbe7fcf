"""Measurements in real time are judged only where the machine kept up with them.

Lower bounds of times are physics and hold on any machine. Upper bounds, and verdicts of "valid",
hold on a machine that is ours alone: what is measured there is measured again while something says
that the machine was not, and skipped with that something's words when it never was.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

from emulator.fidelity import FidelityMonitor
from emulator.fidelity.thresholds import THRESHOLDS
from emulator.network import Network

T = TypeVar("T")

_TRIES = 5
_OF_THE_MACHINE = ("saturated_share", "steal_share", "timer_lateness_ns")
_OTHERS_LIMIT = 0.1
"""Share of all processors' time that others may take of a machine that is called idle: half of what
saturates one core of two in 20% of the samples, which is the verdict's limit."""
_STOLEN_LIMIT = next(limit.limit for limit in THRESHOLDS if limit.name == "steal_share")
"""A run is invalid when the hypervisor takes more, and rightly so."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def believed(live: Network, measure: Callable[[], T], accept: Callable[[T], bool]) -> T:
    """What `measure` returns, as soon as `accept` agrees, or the fidelity monitor says that the
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
        limit.seen(figure)
        for limit, figure in figures
        if limit.name in _OF_THE_MACHINE and figure is not None and figure > limit.limit
    )


def on_an_idle_machine(attempt: Callable[[], T], accept: Callable[[T], bool]) -> T:
    """What `attempt` returns: as soon as `accept` agrees, else the last time, when the machine was
    idle every time."""
    others = stolen = 0.0
    for _ in range(_TRIES):
        with _watched() as shares:
            found = attempt()
        if accept(found):
            return found
        others, stolen = max(others, shares().others), max(stolen, shares().stolen)
    if others > _OTHERS_LIMIT:
        pytest.skip(f"others took up to {others:.0%} of the machine's processors")
    if stolen > _STOLEN_LIMIT:
        pytest.skip(f"the hypervisor took up to {stolen:.0%} of the machine's processors")
    return found


class _Shares(NamedTuple):
    """Of all processors' time: what went to others than this process, its children that have ended,
    and interrupts, the hypervisor among them; and what went to the hypervisor."""

    others: float
    stolen: float


@contextmanager
def _watched() -> Iterator[Callable[[], _Shares]]:
    """The shares of the block's time; read them after it."""
    shares: list[_Shares] = []
    before, before_own = _fields(), _own_ticks()
    yield lambda: shares[0]
    spent = [late - early for early, late in zip(before, _fields(), strict=True)]
    user, nice, system, _idle, _iowait, _irq, _softirq, stolen = spent
    others = user + nice + system + stolen - (_own_ticks() - before_own)
    whole = max(1, sum(spent))
    shares.append(_Shares(others / whole, stolen / whole))


def _fields() -> list[int]:
    return [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]


def _own_ticks() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) * _TICKS_PER_S
