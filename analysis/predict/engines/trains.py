"""Gloo's messages as trains of packets through the FIFO queues of ports, event by event.

Ports serve who came first, not all alike: a message that is posted a little earlier is through
earlier, and a sender whose turn it is keeps its receivers busy one by one. Three things decide
what is in a host's port (net/ipv4/tcp.c and tcp_output.c of Linux 6.12):

- a connection has little there (`small_queues`); each packet that leaves lets the next one in, at
  the end of the queue;
- a message's last piece, shorter than a full segment, waits until a packet of its connection has
  left or a packet of the other end has come, if any is there ("auto corking"), and so do
  notifications; but for those that full segments follow, as they are in the first of these then;
- otherwise the whole message goes in at once: windows are taken to be wider than that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from analysis.predict.engines.member_programs import Programs
from analysis.predict.engines.ports.class_ports import ClassPorts
from analysis.predict.queue_waits import QueueWaits
from collectives.schedule.operations import CompiledPrograms, Start

TRAINS_PER_MESSAGE = 48
"""A message is followed as about this many trains of equal length; more changes little."""

_NO_LIMIT = 1 << 30
_ARRIVED, _BEGUN, _LEFT, _POSTED, _AWAKE, _FREE = 0, 1, 2, 3, 4, 5


@dataclass(frozen=True, slots=True)
class Cut:
    """How a message of `size_bytes` on the wire is cut: full segments, then a shorter one."""

    full: int
    full_bytes: float
    rest_bytes: float


@dataclass(slots=True)
class Stream:
    """One direction of a TCP connection: the directed links of its path, and what waits to enter
    its host's port, `full_waiting` trains of full segments among it. `corked` pieces go in when a
    packet of the stream has left, when none is there, when full segments follow them, or when a
    packet has come by the other direction. `priority` is the class of its packets."""

    links: tuple[int, ...]
    priority: int = 0
    waiting: deque[Train] = field(default_factory=deque)
    queued: int = 0
    queued_segments: int = 0
    full_waiting: int = 0


@dataclass(slots=True)
class Train:
    """Segments that follow each other. `message` is numbered from 0; `invites` makes it the
    RECV_READY of that message, `last` the end of its payload, `answers` its acknowledgement, where
    that is followed."""

    stream: Stream
    segments: int
    wire_bytes: float
    first_bytes: float
    message: int
    invites: bool
    last: bool
    corked: bool
    hop: int = 0
    tail_ns: float = 0.0
    answers: bool = False


class PacketTrains(Programs):
    """One collective's members, and the ports that their messages pass.

    `cuts` has how each message is cut; `streams` the path of each pair that
    exchanges anything, notifications included; `bytes_per_ns`, `delay_ns` and `queued_segments`
    (of one connection in its port, at most) are by link.
    """

    def __init__(
        self,
        compiled: CompiledPrograms,
        cuts: Sequence[Cut],
        streams: dict[tuple[int, int], Stream],
        bytes_per_ns: Sequence[float],
        delay_ns: Sequence[float],
        notice_bytes: float,
        queued_segments: Sequence[int],
        overhead_ns: float = 0.0,
        sharing_factor: float = 1.0,
        trains_per_message: int = TRAINS_PER_MESSAGE,
        waits: QueueWaits | None = None,
        classes: ClassPorts[Train] | None = None,
    ) -> None:
        super().__init__(compiled)
        self._waits = waits
        self._classes = classes
        self._trains_per_message = trains_per_message
        self._cuts = cuts
        self._streams = streams
        self._other_way = {id(streams[a, b]): streams.get((b, a)) for a, b in streams}
        self._capacity = bytes_per_ns
        self._delay = delay_ns
        self._notice_bytes = notice_bytes
        if not notice_bytes:  # nobody asks for messages, or is told of them
            self._invited = bytearray(b"\1" * len(self._invited))
        self._limits = queued_segments
        self._overhead_ns = overhead_ns
        self._sharing_factor = sharing_factor
        self._free = [0.0] * len(bytes_per_ns)
        self._user: list[Stream | None] = [None] * len(bytes_per_ns)
        self._limit_of: dict[int, int] = {}  # by a stream's identity
        self._heap: list[tuple[float, int, int, Train]] = []
        self._sequence = 0

    def run(self) -> float:
        """Nanoseconds until the last member has finished its program."""
        self._begin()
        heap = self._heap
        while heap:
            now, _, kind, train = heappop(heap)
            if kind == _ARRIVED:
                if train.hop < len(train.stream.links):
                    self._forward(train, now)
                else:
                    self._deliver(train, now)
            elif kind == _BEGUN:
                self._fill(train.stream, now, left=True)
            elif kind == _LEFT:
                train.stream.queued -= 1
                train.stream.queued_segments -= train.segments
                self._fill(train.stream, now, left=True)
            elif kind == _AWAKE:
                self._has_slept(train.message, now)
            elif kind == _FREE:
                self._serve(train.message, now)
            else:
                self._enqueue(train.message, now)
        return max(self.completed_ns)

    def _schedule(self, at: float, kind: int, train: Train) -> None:
        self._sequence += 1
        # Rounded, so that what happens at once does so in the order in which it was caused.
        heappush(self._heap, (round(at, 3), self._sequence, kind, train))

    def _wake_at(self, member: int, at: float) -> None:
        self._schedule(at, _AWAKE, Train(Stream(()), 0, 0.0, 0.0, member, False, False, False))

    def _start(self, operation: Start, now: float) -> None:
        if operation.sends_first:
            self._announce(operation.sends, now)
        for message in operation.receives:
            self._notify(self._destination[message], self._source[message], message, True, now)
        if not operation.sends_first:
            self._announce(operation.sends, now)

    def _announce(self, messages: list[int], now: float) -> None:
        for message in messages:
            self._notify(self._source[message], self._destination[message], message, False, now)
        self._post_sends(messages, now)

    def _notify(
        self, source: int, destination: int, message: int, invites: bool, now: float
    ) -> None:
        """SEND_READY, which nobody waits for, or RECV_READY."""
        if not self._notice_bytes:
            return
        stream, size = self._streams[source, destination], self._notice_bytes
        stream.waiting.append(Train(stream, 1, size, size, message, invites, False, True))
        self._fill(stream, now)

    def _admit(self, message: int, now: float) -> None:
        if self._overhead_ns == 0.0:
            self._enqueue(message, now)
            return
        stream = self._streams[self._source[message], self._destination[message]]
        at = max(now, now + self._overhead_ns)
        self._schedule(at, _POSTED, Train(stream, 0, 0.0, 0.0, message, False, False, False))

    def _enqueue(self, message: int, now: float) -> None:
        stream = self._streams[self._source[message], self._destination[message]]
        self._line_up(stream, message, self._limit(stream) // 4)
        self._fill(stream, now)
        self._has_sent(message, now)

    def _line_up(self, stream: Stream, message: int, most: int) -> None:
        """Have a message wait, in trains of at most so many full segments and one of the rest."""
        cut = self._cuts[message]
        step = max(1, min(-(-cut.full // self._trains_per_message), most))
        for first in range(0, cut.full, step):
            count = min(step, cut.full - first)
            last = first + count == cut.full and not cut.rest_bytes
            size = count * cut.full_bytes
            stream.waiting.append(
                Train(stream, count, size, cut.full_bytes, message, False, last, False)
            )
            stream.full_waiting += 1
        if cut.rest_bytes:
            rest = cut.rest_bytes
            stream.waiting.append(Train(stream, 1, rest, rest, message, False, True, True))

    def _fill(self, stream: Stream, now: float, left: bool = False) -> None:
        """Trains that may enter the host's port do, in order."""
        waiting = stream.waiting
        while waiting and not stream.links:  # within a host nothing takes time
            train = waiting.popleft()
            stream.full_waiting -= not train.corked
            self._schedule(now, _ARRIVED, train)
        while waiting:
            train = waiting[0]
            if stream.queued:
                if stream.queued_segments + train.segments > self._limit(stream):
                    break
                if train.corked and not left and not stream.full_waiting:
                    break
            waiting.popleft()
            stream.full_waiting -= not train.corked
            stream.queued += 1
            stream.queued_segments += train.segments
            train.tail_ns = now
            self._forward(train, now)

    def _limit(self, stream: Stream) -> int:
        found = self._limit_of.get(id(stream))
        if found is None:
            found = min((self._limits[link] for link in stream.links), default=_NO_LIMIT)
            self._limit_of[id(stream)] = found
        return found

    def _forward(self, train: Train, now: float) -> None:
        """Into the queue of the next port. Where there is one class of traffic its time there is
        known at once, as nothing that comes later goes first."""
        link = train.stream.links[train.hop]
        if self._classes is None:
            self._send(train, link, now, self._free[link])
            return
        idle = self._classes.put(link, train.stream.priority, train, train.wire_bytes, now)
        if idle:
            self._serve(link, now)

    def _serve(self, link: int, now: float) -> None:
        """A port of several classes sends what is next, if anything is."""
        assert self._classes is not None
        found = self._classes.next(link)
        if found is None:
            return
        train, came_ns = found
        self._send(train, link, came_ns, now)
        # Only the link of the event is looked at.
        free = Train(train.stream, 0, 0.0, 0.0, link, False, False, False)
        self._schedule(self._free[link], _FREE, free)

    def _send(self, train: Train, link: int, now: float, free: float) -> None:
        """A train that came `now` leaves a port once that is free."""
        rate = self._capacity[link]
        if free > now:
            start = free
            if self._user[link] is not train.stream:
                rate /= self._sharing_factor
        else:
            start = now
        head = start + train.first_bytes / rate
        end = max(start + train.wire_bytes / rate, train.tail_ns + train.first_bytes / rate)
        self._free[link] = end
        self._user[link] = train.stream
        if self._waits is not None:
            self._waits.passes(link, train.message, now, start, end)
        delay = self._delay[link]
        if train.hop == 0:
            if train.segments > 1:
                self._schedule(head, _BEGUN, train)
            self._schedule(end, _LEFT, train)
        train.hop += 1
        train.tail_ns = end + delay
        arrives = train.tail_ns if train.hop == len(train.stream.links) else head + delay
        # As `_schedule` does, without a call: this is where most of the time goes.
        self._sequence += 1
        heappush(self._heap, (round(arrives, 3), self._sequence, _ARRIVED, train))

    def _deliver(self, train: Train, now: float) -> None:
        # A packet that comes has the kernel try to send what is held back (tcp_data_snd_check).
        other_way = self._other_way[id(train.stream)]
        if other_way is not None:
            self._fill(other_way, now, left=True)
        if train.invites:
            self._has_been_invited(train.message, now)
        elif train.last:
            self._has_received(train.message, now)
