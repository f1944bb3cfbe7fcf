"""The clock of a simulated fabric: packets that arrive, and timers, in the order of their times."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TypeAlias

from analysis.predict.engines.tcp.packet import Packet, Sends

Act: TypeAlias = Callable[[int], None]

TIMERS, PORTS, TASKLETS, PROCESSES = range(4)
"""What is done when, of all that falls on a nanosecond: timers of the wheel, ports that hand over
what has arrived and go on to transmit, then packets that were handed over, tasklets, and processes
(the order of softirqs in include/linux/interrupt.h)."""


_NEVER = 1 << 62

_Event: TypeAlias = tuple[int, int, Sends | Act, int]
"""When, its number, what, and in which phase."""


class Network:
    """Events in integer nanoseconds.

    What happens at once does so in the order in which the kernel's timers were set. A port has one
    (`gw_arm_timer`): for what arrives next, and before that for the end of a transmission that
    somebody waits to hear of. All ports whose timers fire at once have set them anew before the
    first of the packets goes on.
    """

    def __init__(self) -> None:
        self._heap: list[_Event] = []
        self._sequence = 0
        self._soft: list[tuple[int, int, Act]] = []
        self._soft_ns = _NEVER
        self.packets = 0

    def at(self, time_ns: int, act: Act, phase: int = PROCESSES) -> None:
        """Have something done then."""
        self._sequence += 1
        heapq.heappush(self._heap, (time_ns, self._sequence, act, phase))

    def within(self, from_ns: int, until_ns: int, act: Act) -> None:
        """Have something done at the end of a range, or with what else is done at the end of its
        own: timers with slack expire together (kernel/time/hrtimer.c)."""
        self._soft.append((until_ns, from_ns, act))
        if until_ns < self._soft_ns:
            self._soft_ns = until_ns
        self.at(until_ns, _nothing, TASKLETS)

    def without(self, act: Act) -> None:
        """Have something not done that was to be `within` a range."""
        self._soft = [each for each in self._soft if each[2] != act]
        self._soft_ns = min((each[0] for each in self._soft), default=_NEVER)

    def _expire(self, now: int) -> None:
        self._soft.sort(key=lambda each: each[0])
        while self._soft and self._soft[0][1] <= now:
            self._soft.pop(0)[2](now)
        self._soft_ns = min((each[0] for each in self._soft), default=_NEVER)

    def leaves(self, port: Sends, leaves_ns: int, packet: Packet) -> None:
        """A packet's last bit leaves a port then, of which a host wants to know."""
        if packet.hop == 1:
            self.packets += 1
            port.ticks.append(leaves_ns)
        port.flying.append((leaves_ns + port.delay_ns, packet))
        self.arm(port)

    def arm(self, port: Sends) -> None:
        """Set a port's timer."""
        flying, ticks = port.flying, port.ticks
        following = flying[0][0] if flying else _NEVER
        if ticks and ticks[0] < following:
            following = ticks[0]
        if following == port.armed_ns:
            return
        port.armed_ns = following
        if following != _NEVER:
            self._sequence += 1
            port.armed_as = self._sequence
            heapq.heappush(self._heap, (following, self._sequence, port, PORTS))

    def run(self, is_over: Callable[[], bool]) -> None:
        """Follow all that happens, until nothing does or `is_over` says so (asked when a packet
        has come)."""
        heap, pop, push = self._heap, heapq.heappop, heapq.heappush
        arrived: list[Packet] = []
        while heap:
            now, number, what, phase = first = pop(heap)
            at_once: list[_Event] | None = None
            if heap and heap[0][0] == now:
                at_once = [first]
                while heap and heap[0][0] == now:
                    at_once.append(pop(heap))
                for early in (TIMERS, PORTS):
                    for each in at_once:
                        if each[3] == early:
                            self._begin(each, now, arrived)
            elif phase != PORTS or what.serves:  # type: ignore[union-attr]
                self._begin(first, now, arrived)
            else:  # as `_begin`, in place: this is done for each packet and hop
                port: Sends = what  # type: ignore[assignment]
                if number != port.armed_as or port.armed_ns != now:
                    continue
                flying, ticks = port.flying, port.ticks
                while ticks and ticks[0] <= now:
                    ticks.popleft()
                while flying and flying[0][0] <= now:
                    arrived.append(flying.popleft()[1])
                following = flying[0][0] if flying else _NEVER
                if ticks and ticks[0] < following:
                    following = ticks[0]
                port.armed_ns = following
                if following != _NEVER:
                    self._sequence = number = self._sequence + 1
                    port.armed_as = number
                    push(heap, (following, number, port, PORTS))
            if arrived:
                for packet in arrived:
                    if self._goes_on(packet, now) and is_over():
                        return
                arrived.clear()
            if at_once:
                for each in at_once:
                    if each[3] == TASKLETS:
                        self._begin(each, now, arrived)
            if now >= self._soft_ns:
                self._expire(now)
            if at_once:
                for each in at_once:
                    if each[3] == PROCESSES:
                        self._begin(each, now, arrived)

    def _begin(self, event: _Event, now: int, arrived: list[Packet]) -> None:
        """Do what is to be done, or take what has arrived by a port, whose timer is set anew."""
        _, number, what, phase = event
        if phase != PORTS:
            what(now)  # type: ignore[operator]
            return
        port: Sends = what  # type: ignore[assignment]
        if number != port.armed_as or port.armed_ns != now:
            return
        port.armed_ns = _NEVER
        ticks, flying = port.ticks, port.flying
        while ticks and ticks[0] <= now:
            ticks.popleft()
        while flying and flying[0][0] <= now:
            arrived.append(flying.popleft()[1])
        if port.serves:
            port.serve(now)
        self.arm(port)

    def _goes_on(self, packet: Packet, now: int) -> bool:
        """To its next port; whether it has come instead."""
        route, hop = packet.route, packet.hop
        if hop == len(route):
            packet.target.receive(packet, now)
            return True
        port = route[hop]
        packet.hop = hop + 1
        leaves = port.send(packet, now)
        if leaves >= 0:
            flying = port.flying
            flying.append((leaves + port.delay_ns, packet))
            if len(flying) == 1 or port.ticks:
                self.arm(port)
        return False


def _nothing(now: int) -> None:
    """An interrupt, with which what is due is done."""
