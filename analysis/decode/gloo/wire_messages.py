"""Messages of a group's connections with their times at the hosts of both ends."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.decode.gloo.groups_on_wire import WireGroup
from analysis.decode.gloo.stream import MessageStream
from analysis.decode.gloo.wire_format import Opcode
from analysis.decode.tcp.stream import Direction
from collectives.schedule.gloo import PREAMBLE_BYTES

Int64 = npt.NDArray[np.int64]


class HostTimes:
    """When the bytes of a direction passed the ports of one host, of the files `captured` there."""

    def __init__(self, direction: Direction, captured: frozenset[int]) -> None:
        views = [view for view in direction.views if view.file in captured]
        files = [direction.files[view.file] for view in views]
        rows = [
            view.rows[packets.payload_bytes[view.rows] > 0]
            for view, packets in zip(views, files, strict=True)
        ]
        position = _joined(
            [
                view.position[packets.payload_bytes[view.rows] > 0]
                for view, packets in zip(views, files, strict=True)
            ]
        )
        time_ns = _joined(
            [packets.timestamp_ns[chosen] for packets, chosen in zip(files, rows, strict=True)]
        )
        order = np.lexsort((time_ns, position))
        position, time_ns = position[order], time_ns[order]
        fresh = np.ones(len(position), dtype=np.bool_)
        fresh[1:] = position[1:] != position[:-1]  # a retransmission changes nothing
        self._position, self._first_ns = position[fresh], time_ns[fresh]
        self._until_ns = np.maximum.accumulate(self._first_ns) if fresh.any() else self._first_ns

    def passed_ns(self, position: int) -> int | None:
        """When the byte first passed; None where nothing was captured."""
        index = int(np.searchsorted(self._position, position, side="right")) - 1
        return int(self._first_ns[index]) if index >= 0 else None

    def leads(self, position: int) -> bool:
        """Whether a segment began with the byte."""
        index = int(np.searchsorted(self._position, position, side="right")) - 1
        return index >= 0 and int(self._position[index]) == position

    def whole_ns(self, position: int) -> int | None:
        """When all bytes up to this one, itself included, had passed."""
        index = int(np.searchsorted(self._position, position, side="right")) - 1
        return int(self._until_ns[index]) if index >= 0 else None


def _joined(arrays: Sequence[Int64]) -> Int64:
    return np.concatenate([np.zeros(0, dtype=np.int64), *arrays])


@dataclass(slots=True)
class WireMessage:
    """Data from a rank to another, `number` of those under its slot between the two.

    `announced_ns` is when the sender's announcement left its host, `asked_ns` when the receiver's
    left its own; a bound buffer has neither. `sent_ns` is when the first byte left the sender's
    host, `left_ns` the last one, `come_ns` when that was at the receiver's. Times are those of the
    captures; None: not captured. `announced_behind` and `asked_behind` say that what announces it,
    or asks for it, left behind other data in one segment. With `inferred` the preamble of the data
    was not captured, so that where its first byte lies is known up to some preambles.
    """

    source: int
    destination: int
    slot: int
    number: int
    bound: bool = False
    size_bytes: int | None = None
    announced_ns: int | None = None
    asked_ns: int | None = None
    sent_ns: int | None = None
    left_ns: int | None = None
    come_ns: int | None = None
    inferred: bool = False
    announced_behind: bool = False
    asked_behind: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether its data was captured at both hosts."""
        return None not in (self.size_bytes, self.sent_ns, self.left_ns, self.come_ns)

    def posted_ns(self, rank: int) -> int | None:
        """When the first that one of its ends wrote for it left that rank's host; the receiver of a
        bound buffer writes nothing."""
        if rank == self.destination:
            return self.asked_ns
        known = [time for time in (self.announced_ns, self.sent_ns) if time is not None]
        return min(known, default=None)

    def left_behind(self, rank: int) -> bool:
        """Whether the first that one of its ends wrote for it left behind other data, so that it
        was written while that waited for the port."""
        return self.asked_behind if rank == self.destination else self.announced_behind


def messages_of(
    group: WireGroup, captured: Mapping[int, frozenset[int]]
) -> tuple[list[WireMessage], Counter[tuple[int, int]]]:
    """The messages of a group, and by writer and reader how many bytes of its connections' streams
    could not be read. `captured` has the capture files of each rank's host."""
    found: dict[tuple[int, int, int, bool], list[WireMessage]] = defaultdict(list)
    unread: Counter[tuple[int, int]] = Counter()
    for initiator, responder, _, streams in group.connections:
        ends = (initiator, responder), (responder, initiator)
        own: dict[tuple[int, int, int, bool], list[WireMessage]] = defaultdict(list)
        for (writer, reader), stream in zip(ends, streams, strict=True):
            unread[writer, reader] += sum(gap.end - gap.position for gap in stream.gaps)
            _read(stream, writer, reader, captured, own)
        for key, many in own.items():
            found[key] += many
    return [each for many in found.values() for each in many], unread


def _read(
    stream: MessageStream,
    writer: int,
    reader: int,
    captured: Mapping[int, frozenset[int]],
    found: dict[tuple[int, int, int, bool], list[WireMessage]],
) -> None:
    """Add what one direction of a connection carried."""
    leaving = HostTimes(stream.direction, captured[writer])
    coming = HostTimes(stream.direction, captured[reader])
    for part in stream.messages:
        if part.slot is None or part.opcode is None:
            continue
        back = part.opcode is Opcode.NOTIFY_RECV_READY
        ends = (reader, writer) if back else (writer, reader)
        bound = part.opcode is Opcode.SEND_BUFFER
        many = found[(*ends, part.slot, bound)]
        many.extend(
            WireMessage(*ends, part.slot, number, bound)
            for number in range(len(many), part.step + 1)
        )
        message = many[part.step]
        first_ns = leaving.passed_ns(part.position)
        if back:
            message.asked_ns = first_ns
            message.asked_behind = not leaving.leads(part.position)
        elif part.opcode is Opcode.NOTIFY_SEND_READY:
            message.announced_ns = first_ns
            message.announced_behind = not leaving.leads(part.position)
        else:
            message.size_bytes = part.nbytes - PREAMBLE_BYTES
            message.inferred = part.inferred
            message.sent_ns = first_ns
            message.left_ns = leaving.whole_ns(part.end - 1)
            message.come_ns = coming.whole_ns(part.end - 1)


def by_time(messages: Sequence[WireMessage]) -> Iterator[WireMessage]:
    """In the order in which they left."""
    return iter(sorted(messages, key=lambda one: (one.sent_ns or 0, one.source, one.destination)))
