"""Where the figures come from: /proc, and the counters of the network's ports."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from emulator.counters import read_qdiscs
from emulator.netlink import NetlinkSocket
from emulator.ports import PortContext
from emulator.rtnetlink import TC_H_ROOT

_DEVIATIONS = 3
"""One run in 700 that keeps its rate has less than this many standard deviations below it."""


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


@dataclass(frozen=True, slots=True)
class PortReading:
    """A port's root qdisc at a moment of the monotonic clock."""

    at_ns: int
    sent_bytes: int
    sent_packets: int
    backlog_bytes: int


def read_ports(
    netlink: NetlinkSocket, contexts: Iterable[PortContext], now_ns: int
) -> dict[str, PortReading]:
    """Interface -> reading, of the socket's namespace."""
    qdiscs = read_qdiscs(netlink)
    found = {}
    for context in contexts:
        for qdisc in qdiscs.get(context.ifindex, []):
            if qdisc.parent == TC_H_ROOT:
                found[context.port.interface] = PortReading(
                    now_ns, qdisc.sent_bytes, qdisc.sent_packets, qdisc.backlog_bytes
                )
    return found


@dataclass(slots=True)
class QueueService:
    """What ports had to send and what they sent, over pairs of readings close to each other.

    A frame counts as sent all at once, so between two readings a port that keeps its rate has sent
    up to a frame more or less than its rate says. How much depends on where in a frame each of them
    fell: the difference of two uniform numbers, of variance 1/6 frame^2. `variance_bytes2` sums it.
    """

    due_bytes: float = 0.0
    sent_bytes: float = 0.0
    variance_bytes2: float = 0.0

    def add(
        self,
        contexts: Iterable[PortContext],
        before: Mapping[str, PortReading],
        after: Mapping[str, PortReading],
        overhead_bytes: int,
    ) -> None:
        """Counts the ports whose backlog at the first reading was more than the link could send
        until the second: those cannot have run dry, so all that their rate allows was due. What is
        in a delay line counts as backlog to the kernel and is taken off."""
        for context in contexts:
            name = context.port.interface
            if name not in before or name not in after:
                continue
            early, late = before[name], after[name]
            rate = context.link.rate_bps / 8e9  # bytes per nanosecond
            due = rate * (late.at_ns - early.at_ns)
            if early.backlog_bytes - rate * context.link.delay_ns < due:
                continue
            self.due_bytes += due
            packets = late.sent_packets - early.sent_packets
            self.sent_bytes += late.sent_bytes - early.sent_bytes + packets * overhead_bytes
            frame = context.link.frame_bytes + overhead_bytes
            self.variance_bytes2 += frame**2 / 6

    @property
    def lateness(self) -> float | None:
        """Share of what was due that was not sent, less what the size of frames explains (three
        standard deviations); None when no port ever had enough to send."""
        if self.due_bytes == 0:
            return None
        explained = _DEVIATIONS * math.sqrt(self.variance_bytes2)
        return max(0.0, 1 - (self.sent_bytes + explained) / self.due_bytes)
