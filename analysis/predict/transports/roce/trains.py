"""Messages over RoCE as trains of packets, as Linux's rxe sends them.

Differences from TCP (`trains`; drivers/infiniband/sw/rxe of Linux 6.12, with Groundwire's patch):

- a message goes when its receiver's credit has come; nothing announces it;
- a queue pair sends in the order of posting, credits among the rest, and has few packets in its
  host's port: it fills that up again when fewer than `REFILLED_BELOW` are left;
- acknowledgements go at once, before all that waits, and complete the send. Those in the middle of
  a message are left out: by default they are one packet in 66;
- windows are taken to be wider than what is under way, and congestion control not to slow down.
"""

from __future__ import annotations

from analysis.predict.engines.trains import PacketTrains, Stream, Train
from analysis.predict.transports.roce.wire import ACK_BYTES, QUEUED_PACKETS, REFILLED_BELOW
from collectives.schedule.operations import Start

_STEP = QUEUED_PACKETS // 3
"""Packets of a train at most: refilled at a third, a port then has as many as with single ones."""

_CREDIT = -1
"""In place of a message: what is acknowledged is a credit, and nobody waits for that."""


class QueuePairTrains(PacketTrains):
    """As `PacketTrains`, with the credits' size as that of notices."""

    _full: set[int]
    """Streams, by id, that wait until their port has few packets of theirs."""

    def run(self) -> float:
        """Nanoseconds until the last member has finished its program."""
        self._full = set()
        return super().run()

    def _start(self, operation: Start, now: float) -> None:
        for message in operation.receives:
            self._notify(self._destination[message], self._source[message], message, True, now)
        self._post_sends(operation.sends, now)

    def _enqueue(self, message: int, now: float) -> None:
        stream = self._streams[self._source[message], self._destination[message]]
        self._line_up(stream, message, _STEP)
        self._fill(stream, now)

    def _fill(self, stream: Stream, now: float, left: bool = False) -> None:
        waiting = stream.waiting
        if id(stream) in self._full and stream.queued_segments >= REFILLED_BELOW:
            return
        self._full.discard(id(stream))
        while waiting:
            if stream.queued_segments + waiting[0].segments > QUEUED_PACKETS:
                self._full.add(id(stream))
                return
            self._enter(waiting.popleft(), now)

    def _enter(self, train: Train, now: float) -> None:
        train.stream.queued += 1
        train.stream.queued_segments += train.segments
        train.tail_ns = now
        self._forward(train, now)

    def _deliver(self, train: Train, now: float) -> None:
        if train.answers:
            if train.message != _CREDIT:
                self._has_sent(train.message, now)
        elif train.invites:
            self._acknowledge(train, _CREDIT, now)
            self._has_been_invited(train.message, now)
        elif train.last:
            self._acknowledge(train, train.message, now)
            self._has_received(train.message, now)

    def _acknowledge(self, train: Train, message: int, now: float) -> None:
        back = self._other_way[id(train.stream)]
        assert back is not None
        size = float(ACK_BYTES)
        self._enter(Train(back, 1, size, size, message, False, False, False, answers=True), now)
