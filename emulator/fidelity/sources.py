"""The sources of the monitor's figures: /proc, and the counters of the network's ports."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from emulator.ports.port_watch import PortService


@dataclass(frozen=True, slots=True)
class CoreTimes:
    """Ticks of one core since boot (/proc/stat): all, those not idle, those stolen."""

    total: int
    busy: int
    stolen: int


def read_cores(path: Path = Path("/proc/stat")) -> tuple[CoreTimes, ...]:
    """The times of every core, in order. Stolen time counts as busy: the core was not ours."""
    cores = []
    for line in path.read_text().splitlines():
        name, *fields = line.split()
        if not name.startswith("cpu") or name == "cpu":
            continue
        # user nice system idle iowait irq softirq steal (guest times are part of user)
        ticks = [int(field) for field in fields[:8]]
        idle = ticks[3] + ticks[4]
        cores.append(CoreTimes(sum(ticks), sum(ticks) - idle, ticks[7]))
    return tuple(cores)


def busiest_share(before: Sequence[CoreTimes], after: Sequence[CoreTimes]) -> float:
    """Share of the time in which the busiest core was busy, between two readings."""
    shares = [
        (late.busy - early.busy) / (late.total - early.total)
        for early, late in zip(before, after, strict=True)
        if late.total > early.total
    ]
    return max(shares, default=0.0)


def stolen_share(before: Sequence[CoreTimes], after: Sequence[CoreTimes]) -> float:
    """Share of all cores' time that was stolen between two readings."""
    total = sum(c.total for c in after) - sum(c.total for c in before)
    stolen = sum(c.stolen for c in after) - sum(c.stolen for c in before)
    return stolen / total if total else 0.0


def read_run_delays_ns(pid: int) -> dict[int, int]:
    """Thread -> nanoseconds that it has waited for a processor (schedstat's second field), of a
    process's living threads. Empty when the process has gone or the kernel does not say."""
    found: dict[int, int] = {}
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
                found[int(thread)] = int(file.read().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        pass  # a thread, or the process, has ended between two looks
    return found


def worst_lateness(services: Iterable[PortService], lateness_ns: int) -> float | None:
    """Share of its long busy periods' time by which a port stayed behind its rate, of the port that
    did so most; None when no port had a long busy period. A port is allowed to be behind by
    `lateness_ns` once: that is what a timer may be late by at the end of a busy period."""
    shares = [
        max(0, service.lost_ns - lateness_ns) / service.busy_ns
        for service in services
        if service.busy_ns
    ]
    return max(shares, default=None)
