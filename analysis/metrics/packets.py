"""One direction of a connection, packet by packet, at the place that sent it and the place that
received it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.pcap import ECN_CE, Packets
from analysis.tcp_stream import Direction, Sighting

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Segments:
    """Packets with payload as one capture saw them, in order of capture. Shape (packets,) each;
    `position` and `end` are stream positions."""

    file: int
    time_ns: Int64
    position: Int64
    end: Int64
    marked: npt.NDArray[np.bool_]
    """Congestion Experienced (RFC 3168)."""

    def __len__(self) -> int:
        return len(self.time_ns)

    @property
    def first_times(self) -> tuple[Int64, Int64]:
        """Every distinct position, ascending, and when it was first seen."""
        positions, first = np.unique(self.position, return_index=True)
        return positions, self.time_ns[first]


def segments(files: Sequence[Packets], seen: Sighting) -> Segments:
    """The packets with payload of one direction in one capture."""
    packets = files[seen.file]
    payload = packets.payload_bytes[seen.rows]
    loaded = np.flatnonzero((payload > 0) & (seen.position >= 0))
    rows = seen.rows[loaded]
    return Segments(
        seen.file,
        packets.timestamp_ns[rows],
        seen.position[loaded],
        seen.position[loaded] + payload[loaded],
        packets.tos[rows] & 3 == ECN_CE,
    )


def sent_and_received(
    files: Sequence[Packets], direction: Direction
) -> tuple[Segments, Segments] | None:
    """The direction at its first capture and at its last one; the same where there is only one.
    None when no capture saw payload."""
    found = [segments(files, seen) for seen in direction.sightings]
    found = [each for each in found if len(each)]
    if not found:
        return None
    order = sorted(found, key=lambda s: (int(s.time_ns[0]), s.file))
    return order[0], order[-1]


def sent_again(sent: Segments) -> npt.NDArray[np.bool_]:
    """For each packet, whether a part of it had been sent before. Shape (packets,)."""
    highest = np.maximum.accumulate(np.concatenate([[0], sent.end[:-1]]))
    repeats = np.zeros(len(sent), dtype=np.bool_)
    positions = np.unique(sent.position)
    if len(positions) < len(sent):
        first = np.zeros(len(sent), dtype=np.bool_)
        first[np.unique(sent.position, return_index=True)[1]] = True
        repeats = ~first
    return repeats | (sent.position < np.minimum(highest, sent.end)) & (sent.end <= highest)


def reordered(received: Segments, sent: Segments) -> int:
    """Packets that arrived behind a later one though they were sent only once."""
    positions, counts = np.unique(sent.position, return_counts=True)
    again = positions[counts > 1]
    highest = np.maximum.accumulate(np.concatenate([[0], received.position[:-1]]))
    late = (received.position < highest) & ~np.isin(received.position, again)
    return int(late.sum())


def round_trips(files: Sequence[Packets], sent: Segments, backward: Direction) -> Int64:
    """Nanoseconds from each packet's departure to the acknowledgement of all of it, where it was
    sent only once (Karn and Partridge 1987). The receiver's delay of acknowledgements is in it."""
    answers = [seen for seen in backward.sightings if seen.file == sent.file]
    if not answers:
        return np.zeros(0, dtype=np.int64)
    answer = answers[0]
    time_ns = files[answer.file].timestamp_ns[answer.rows]
    acknowledged = np.maximum.accumulate(answer.acknowledged)
    once = ~sent_again(sent)
    positions, counts = np.unique(sent.position, return_counts=True)
    once &= ~np.isin(sent.position, positions[counts > 1])
    index = np.searchsorted(acknowledged, sent.end[once], side="left")
    answered = index < len(acknowledged)
    taken: Int64 = time_ns[index[answered]] - sent.time_ns[once][answered]
    return taken[taken > 0]
