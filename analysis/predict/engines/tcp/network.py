"""The clock of a simulated fabric: packets that arrive, and timers, in the order of their times."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TypeAlias

from analysis.predict.engines.tcp.packet import Packet, Sends

Act: TypeAlias = Callable[[int], None]


class Network:
    """Events in integer nanoseconds.

    What happens at once does so in the order in which the kernel's timers were set: that of a link
    is set for one packet at a time, when it becomes the next to arrive, or in a host, whose sockets
    are told of it, when the packet has left.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Packet | Act]] = []
        self._sequence = 0
        self._now = 0
        self._soft: list[tuple[int, Act]] = []
        self.packets = 0

    def at(self, time_ns: int, act: Act) -> None:
        """Have something done then."""
        self._sequence += 1
        heapq.heappush(self._heap, (time_ns, self._now, self._sequence, act))

    def within(self, from_ns: int, until_ns: int, act: Act) -> None:
        """Have something done at the end of a range, or with what else is done at the end of its
        own: timers with slack expire together (kernel/time/hrtimer.c)."""
        self._soft.append((from_ns, act))
        self.at(until_ns, self._expire)

    def _expire(self, now: int) -> None:
        due = [act for from_ns, act in self._soft if from_ns <= now]
        self._soft = [(from_ns, act) for from_ns, act in self._soft if from_ns > now]
        for act in due:
            act(now)

    def leaves(self, port: Sends, leaves_ns: int, packet: Packet) -> None:
        """A packet's last bit leaves a host then."""
        self.packets += 1
        arrives = leaves_ns + port.delay_ns
        if port.flying:
            port.flying.append((arrives, leaves_ns, packet))
            return
        port.flying.append((arrives, leaves_ns, packet))
        self._sequence += 1
        heapq.heappush(self._heap, (arrives, leaves_ns, self._sequence, packet))

    def run(self, is_over: Callable[[], bool]) -> None:
        """Follow all that happens, until nothing does or `is_over` says so (asked when a packet
        has come)."""
        heap, pop, push = self._heap, heapq.heappop, heapq.heappush
        replace = heapq.heapreplace
        while heap:
            now, _, _, what = heap[0]
            self._now = now
            if what.__class__ is not Packet:
                pop(heap)
                what(now)  # type: ignore[operator]
                continue
            assert isinstance(what, Packet)
            route, hop = what.route, what.hop
            flying = route[hop - 1].flying
            flying.popleft()
            if flying:
                arrives, set_ns, following = flying[0]
                self._sequence += 1
                set_ns = set_ns if set_ns > now else now
                replace(heap, (arrives, set_ns, self._sequence, following))
            else:
                pop(heap)
            if hop < len(route):
                port = route[hop]
                what.hop = hop + 1
                leaves = port.send(what, now)
                if leaves >= 0:
                    arrives = leaves + port.delay_ns
                    flying = port.flying
                    if not flying:
                        self._sequence += 1
                        push(heap, (arrives, now, self._sequence, what))
                    flying.append((arrives, now, what))
                continue
            what.target.receive(what, now)
            if is_over():
                return
