"""The ports that copies take, one after the other (topologies/fabrics/copies.py)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from emulator.network.samples import CarriedSpan
from topologies.fabrics.copies import NO_LINK


@dataclass(slots=True)
class Copy:
    """A copy that both ends have posted. `first` and `second` are the directed links out of the
    sender and into the receiver, NO_LINK at the switch's own end; `group` and `slot` name its
    message. `begins_ns` is when its first port takes it up, `ends_ns` when it is complete."""

    group: str
    slot: int
    first: int
    second: int
    size_bytes: int
    ready_ns: int
    begins_ns: int = -1
    ends_ns: int = -1


_Order = tuple[int, int, int, int, str]
"""A time, two links, and the message."""


def _order(at_ns: int, link: int, other: int, copy: Copy) -> _Order:
    return at_ns, link, other, copy.slot, copy.group


@dataclass(slots=True)
class CopyPorts:
    """All ports of a fabric's copies. All that comes to a port in a nanosecond is known once that
    is over, so ports take up then what came in it: nothing is complete sooner than that, as a copy
    takes a nanosecond at least."""

    rate_bps: int
    delay_ns: int
    spans: dict[int, list[CarriedSpan]] = field(default_factory=lambda: defaultdict(list))
    """By directed link, in order of time: what it has carried, and will have."""
    _free_ns: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _leaving: list[tuple[_Order, Copy]] = field(default_factory=list)
    _coming: list[tuple[_Order, Copy]] = field(default_factory=list)
    _due: list[tuple[_Order, Copy]] = field(default_factory=list)
    _wakes_ns: list[int] = field(default_factory=list)
    """When something can be complete, at the earliest."""

    def add(self, copy: Copy) -> None:
        """Both ends have posted it, at its `ready_ns`, which nothing that came before is after."""
        if copy.first == NO_LINK:
            copy.begins_ns = copy.ready_ns
            self._comes(copy, copy.ready_ns)
            return
        links = 1 if copy.second == NO_LINK else 2
        least_ns = links * self.delay_ns + self.occupied_ns(copy.size_bytes)
        heappush(self._wakes_ns, copy.ready_ns + least_ns)
        heappush(self._leaving, (_order(copy.ready_ns, copy.second, copy.first, copy), copy))

    def complete(self, now_ns: int) -> Sequence[Copy]:
        """Those that are complete by now, in order. All that was added before this nanosecond is
        taken into account, and nothing of it may be added later."""
        while self._leaving and self._leaving[0][0][0] < now_ns:
            (at_ns, *_), copy = heappop(self._leaving)
            copy.begins_ns = self._take(copy.first, at_ns, copy.size_bytes)
            if copy.second == NO_LINK:
                self._ends(copy, copy.begins_ns)
            else:
                self._comes(copy, copy.begins_ns + self.delay_ns)
        while self._coming and self._coming[0][0][0] < now_ns:
            (at_ns, *_), copy = heappop(self._coming)
            self._ends(copy, self._take(copy.second, at_ns, copy.size_bytes))
        while self._wakes_ns and self._wakes_ns[0] <= now_ns:
            heappop(self._wakes_ns)
        found = []
        while self._due and self._due[0][1].ends_ns <= now_ns:
            found.append(heappop(self._due)[1])
        return found

    def next_ns(self) -> int | None:
        """When the next copy can be complete, at the earliest; None where there is none."""
        return self._wakes_ns[0] if self._wakes_ns else None

    def occupied_ns(self, size_bytes: int) -> int:
        """As `CopyPaths.occupied_ns` has it."""
        return -(-size_bytes * 8 * 10**9 // self.rate_bps)

    def _comes(self, copy: Copy, at_ns: int) -> None:
        heappush(self._wakes_ns, at_ns + self.delay_ns + self.occupied_ns(copy.size_bytes))
        heappush(self._coming, (_order(at_ns, copy.first, copy.second, copy), copy))

    def _take(self, link: int, at_ns: int, size_bytes: int) -> int:
        """When a port takes up what comes to it."""
        begins_ns = max(at_ns, self._free_ns[link])
        self._free_ns[link] = begins_ns + self.occupied_ns(size_bytes)
        self.spans[link].append(CarriedSpan(begins_ns, self._free_ns[link], size_bytes))
        return begins_ns

    def _ends(self, copy: Copy, last_begins_ns: int) -> None:
        copy.ends_ns = last_begins_ns + self.occupied_ns(copy.size_bytes) + self.delay_ns
        heappush(self._wakes_ns, copy.ends_ns)
        heappush(self._due, (_order(copy.ends_ns, copy.second, copy.first, copy), copy))
