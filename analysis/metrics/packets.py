"""Directions of connections, packet by packet, at the place that sent them and the place that
received them. All directions are worked on at once: there are many, of few packets each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from analysis.decode.byte_ledger import repeated_bytes
from analysis.decode.capture_view import CaptureView, Connection
from analysis.decode.segmented import SortedSegments, highest_before, offsets_of, starts_of
from analysis.decode.tcp.pcap import ECN_CE, Packets

Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PayloadPackets:
    """Packets with payload, each direction's as one capture saw them, in order of directions and
    within one in order of capture. Shape (packets,) each; `position` and `end` are places in the
    stream. Direction 2 n is that of connection n from its initiator, 2 n + 1 the other."""

    direction: Int64
    file: Int64
    time_ns: Int64
    position: Int64
    end: Int64
    marked: Bool
    """Congestion Experienced (RFC 3168)."""

    def __len__(self) -> int:
        return len(self.time_ns)

    def take(self, chosen: npt.NDArray[np.intp] | Bool) -> PayloadPackets:
        """The chosen packets."""
        return PayloadPackets(
            self.direction[chosen],
            self.file[chosen],
            self.time_ns[chosen],
            self.position[chosen],
            self.end[chosen],
            self.marked[chosen],
        )

    @cached_property
    def in_order(self) -> npt.NDArray[np.intp]:
        """The packets by direction, position, and time of capture."""
        return np.lexsort((self.position, self.direction))

    @cached_property
    def firsts(self) -> npt.NDArray[np.intp]:
        """The first packet seen of every distinct position, in ascending order of these."""
        return self.in_order[np.flatnonzero(self._new)]

    @cached_property
    def copies(self) -> Int64:
        """How many packets begin at each packet's position."""
        number = np.cumsum(self._new) - 1
        copies = np.zeros(len(self), dtype=np.int64)
        copies[self.in_order] = np.bincount(number)[number]
        return copies

    @property
    def _new(self) -> Bool:
        direction, position = self.direction[self.in_order], self.position[self.in_order]
        new: Bool = (np.diff(direction, prepend=-1) != 0) | (np.diff(position, prepend=-1) != 0)
        return new


def sent_and_received(
    files: Sequence[Packets], connections: Sequence[Connection]
) -> tuple[PayloadPackets, PayloadPackets]:
    """Every direction at its first capture and at its last one; the same where there is only one.
    Directions of which no capture saw payload have no packets."""
    views = [
        (2 * number + side, seen)
        for number, connection in enumerate(connections)
        for side, direction in enumerate(connection.directions)
        for seen in direction.views
    ]
    place, row = _rows(files, [seen for _, seen in views])
    position = _joined([seen.position for _, seen in views])
    payload = _joined([seen.payload_bytes for _, seen in views])
    loaded = np.flatnonzero((payload > 0) & (position >= 0))
    place, row, position, payload = place[loaded], row[loaded], position[loaded], payload[loaded]
    number, file = (
        np.array([*column, 0], dtype=np.int64)
        for column in (
            [direction for direction, _ in views],
            [seen.file for _, seen in views],
        )
    )
    found = PayloadPackets(
        number[place],
        file[place],
        _joined([packets.timestamp_ns for packets in files])[row],
        position,
        position + payload,
        _joined([packets.tos for packets in files])[row] & 3 == ECN_CE,
    )
    begins = starts_of(place)
    order = begins[np.lexsort((found.file[begins], found.time_ns[begins], found.direction[begins]))]
    ends = np.diff(found.direction[order], prepend=-1, append=-1) != 0
    chosen = (place[order[ends[:-1]]], place[order[ends[1:]]])
    first, last = (found.take(np.isin(place, each)) for each in chosen)
    return first, last


def sent_again(sent: PayloadPackets) -> Bool:
    """For each packet, whether it had been sent before. Shape (packets,). The subflows of MPTCP
    send a stream out of its order: a packet that fills a hole is sent for the first time."""
    highest = highest_before(sent.end, sent.direction, 0)
    again: Bool = np.ones(len(sent), dtype=np.bool_)
    again[sent.firsts] = False
    behind = ~again & (sent.position < sent.end) & (sent.end <= highest)
    if behind.any():
        inside = np.isin(sent.direction, np.unique(sent.direction[behind]))
        part = sent.take(inside)
        repeated = np.zeros(len(sent), dtype=np.int64)
        repeated[inside] = repeated_bytes(part.position, part.end, part.direction)
        again |= behind & (repeated > 0)
    return again


def reordered(received: PayloadPackets, sent: PayloadPackets) -> Bool:
    """For each packet, whether it arrived behind a later one though it was sent only once."""
    late = received.position < highest_before(received.position, received.direction, 0)
    again = sent.copies > 1
    twice = set(zip(sent.direction[again].tolist(), sent.position[again].tolist(), strict=True))
    for row in np.flatnonzero(late).tolist():
        late[row] = (int(received.direction[row]), int(received.position[row])) not in twice
    return late


def reordering_extents(received: PayloadPackets, late: Bool) -> Int64:
    """For each packet of `late`, how many arrived of its direction from the first later one on
    until itself (the reordering extent of RFC 4737, 4.2)."""
    found = np.zeros(len(received), dtype=np.int64)
    bounds = np.append(starts_of(received.direction), len(received)).tolist()
    for begin, end in pairwise(bounds):
        rows = begin + np.flatnonzero(late[begin:end])
        highest = np.maximum.accumulate(received.position[begin:end])
        overtaker = begin + np.searchsorted(highest, received.position[rows], side="right")
        found[rows] = rows - overtaker
    return found[late]


def round_trips(
    files: Sequence[Packets], sent: PayloadPackets, connections: Sequence[Connection]
) -> tuple[Int64, Int64]:
    """Nanoseconds from each packet's departure to the acknowledgement of all of it, where it was
    sent only once (Karn and Partridge 1987), and its direction. The receiver's delay of
    acknowledgements is in it."""
    once = sent.take(~sent_again(sent) & (sent.copies == 1))
    begins = starts_of(once.direction)
    answers: list[CaptureView] = []
    answered: list[bool] = []
    for number, file in zip(
        once.direction[begins].tolist(), once.file[begins].tolist(), strict=True
    ):
        back = connections[number // 2].directions[1 - number % 2]
        found = [seen for seen in back.views if seen.file == file]
        answered.append(bool(found))
        answers += found
    of = np.repeat(np.array(answered, dtype=np.bool_), np.diff(begins, append=len(once)))
    once = once.take(of)
    place, row = _rows(files, answers)
    time_ns = _joined([packets.timestamp_ns for packets in files])[row]
    acknowledged = np.maximum(_joined([seen.acknowledged for seen in answers]), 0)
    reached = np.maximum(highest_before(acknowledged, place, 0), acknowledged)
    number = np.cumsum(np.diff(once.direction, prepend=-1) != 0) - 1
    answer = SortedSegments(reached, place, len(answers))
    index = answer.find(number, once.end, "left")
    known = index < answer.bounds[number + 1]
    taken = time_ns[index[known]] - once.time_ns[known]
    return taken[taken > 0], once.direction[known][taken > 0]


def _rows(files: Sequence[Packets], views: Sequence[CaptureView]) -> tuple[Int64, Int64]:
    """The view of each packet, and its row in all files together."""
    begins = offsets_of(np.array([len(packets) for packets in files], dtype=np.int64))
    place = np.repeat(np.arange(len(views)), [len(seen.rows) for seen in views])
    file = np.array([seen.file for seen in views], dtype=np.int64)
    return place, _joined([seen.rows for seen in views]) + begins[file][place]


def _joined(arrays: Sequence[Int64]) -> Int64:
    return np.concatenate([np.zeros(0, dtype=np.int64), *arrays])
