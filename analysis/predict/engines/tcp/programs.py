"""Members' programs whose messages travel as TCP segments (`endpoint`, `ports`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from analysis.predict.engines.member_programs import Programs
from analysis.predict.engines.tcp.control.controls import CONTROLS
from analysis.predict.engines.tcp.endpoint import Delivered, Endpoint
from analysis.predict.engines.tcp.network import Network
from analysis.predict.engines.tcp.packet import Sends
from collectives.schedule.gloo import PREAMBLE_BYTES
from collectives.schedule.operations import CompiledPrograms, Start

_GREETING_BYTES = 8
"""What the end that connects sends first (gloo/transport/tcp/device.cc: the sequence number that
the listener knows it by)."""


_WAKES_LATE_NS = 1
"""A process that sleeps in the virtual kernel goes on in the nanosecond after the one that it asked
for."""


@dataclass(frozen=True, slots=True)
class TcpSetting:
    """What the hosts' TCP is set to."""

    control: str
    ecn: bool
    initial_window: int
    min_rto_us: int
    receive_buffer_bytes: int
    mss: int


class TcpPrograms(Programs):
    """Programs over connections, each made when the first of its messages is.

    `routes` has the directed links from each end to each end that it exchanges messages with, both
    ways; `base_ns` what a bare packet takes there and back.
    """

    def __init__(
        self,
        compiled: CompiledPrograms,
        size_bytes: Sequence[int],
        routes: Mapping[tuple[int, int], tuple[Sends, ...]],
        base_ns: Mapping[tuple[int, int], int],
        tcp: TcpSetting,
        network: Network,
    ) -> None:
        super().__init__(compiled)
        self._sizes = size_bytes
        self._routes = routes
        self._base_ns = base_ns
        self._tcp = tcp
        self.network = network
        self._expected: dict[tuple[int, int], deque[tuple[int, int, bool]]] = {}
        self._ends: dict[tuple[int, int], Endpoint] = {}
        self._left = len(self._programs)
        self._ended: set[int] = set()
        self._reading: list[tuple[Callable[[int, float], None], int]] | None = None
        """What those who wait are told once a thread has read all that has come."""

    def run(self) -> float:
        """Nanoseconds until the last member has finished its program."""
        self._begin()
        if self._left:
            self.network.run(lambda: not self._left)
        return max(self.completed_ns, default=0.0)

    @property
    def endpoints(self) -> Mapping[tuple[int, int], Endpoint]:
        """The end of each connection at the first of a pair."""
        return self._ends

    def _advance(self, member: int, now: float) -> None:
        super()._advance(member, now)
        if member not in self._ended and self._position[member] == len(self._programs[member]):
            self._ended.add(member)
            self._left -= 1

    def _wake_at(self, member: int, at: float) -> None:
        self.network.at(round(at) + _WAKES_LATE_NS, lambda now: self._has_slept(member, now))

    def _start(self, operation: Start, now: float) -> None:
        if operation.sends_first:
            self._announce(operation.sends, now)
        for message in operation.receives:
            self._send(self._destination[message], self._source[message], message, True, 0, now)
        if not operation.sends_first:
            self._announce(operation.sends, now)

    def _announce(self, messages: list[int], now: float) -> None:
        for message in messages:
            self._send(self._source[message], self._destination[message], -1, False, 0, now)
        self._post_sends(messages, now)

    def _admit(self, message: int, now: float) -> None:
        ends = self._source[message], self._destination[message]
        self._send(*ends, message, False, self._sizes[message], now)
        self._has_sent(message, now)

    def _has_sent(self, message: int, now: float) -> None:
        if self._reading is None:
            super()._has_sent(message, now)
        else:
            self._reading.append((super()._has_sent, message))

    def _send(
        self, source: int, destination: int, message: int, invites: bool, size: int, now: float
    ) -> None:
        """A preamble with what follows it; `message` -1 is a notice that nobody waits for."""
        end = self._ends.get((source, destination))
        if end is None:
            self._connect(source, destination, int(now))
            end = self._ends[source, destination]
        size += PREAMBLE_BYTES
        if message >= 0:
            awaited = self._expected[source, destination]
            awaited.append((end.write_seq + size, message, invites))
        end.write(size, int(now))

    def _connect(self, source: int, destination: int, now: int) -> None:
        found = []
        for ends in ((source, destination), (destination, source)):
            tcp = self._tcp
            end = Endpoint(
                tcp.receive_buffer_bytes,
                tcp.min_rto_us,
                self.network,
                tcp.mss,
                tcp.initial_window,
                CONTROLS[tcp.control],
                tcp.ecn,
                max(1, (self._base_ns[ends] + 500) // 1000),
            )
            end.route = self._routes[ends]
            self._ends[ends] = end
            self._expected[ends] = deque()
            found.append(end)
        found[0].connect(found[1])
        for end, ends in zip(found, ((destination, source), (source, destination)), strict=True):
            end.delivered_to = self._deliverer(*ends)
        listens = source > destination
        found[not listens].greet(found[listens], _GREETING_BYTES, now)

    def _deliverer(self, source: int, destination: int) -> Delivered:
        expected = self._expected[source, destination]

        def delivered(received: int, now: int) -> None:
            if expected and expected[0][0] <= received:
                self.network.at(now, lambda now: read(received, now))

        def read(received: int, now: int) -> None:
            """The thread that reads takes in what has come, and sends what that invites, before
            those that wait for a message go on: it holds the connection's lock."""
            done = self._reading = []
            while expected and expected[0][0] <= received:
                _, message, invites = expected.popleft()
                if invites:
                    self._has_been_invited(message, now)
                else:
                    done.append((self._has_received, message))
            self._reading = None
            for tell, message in done:
                tell(message, now)

        return delivered
