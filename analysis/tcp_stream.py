"""TCP connections of a run, put together from captures that hold headers only.

Sequence numbers place every payload byte in its direction's stream whether the snap length
kept the byte or not. What was kept is available through `Direction.read`; where the bytes
of one connection were captured at several ports, any copy will do.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from analysis.pcap import ACK, RST, SYN, Packets

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, order=True)
class Endpoint:
    """An IPv4 address (as a number) and a TCP port."""

    address: int
    port: int

    def __str__(self) -> str:
        octets = ".".join(str(self.address >> shift & 0xFF) for shift in (24, 16, 8, 0))
        return f"{octets}:{self.port}"


@dataclass(frozen=True)
class Sighting:
    """The packets of one direction in one capture file, in file order.

    `position` is the stream position of the first payload byte (the SYN has -1);
    `acknowledged` the position in the *other* direction up to which the packet acknowledges.
    All arrays have shape (packets,).
    """

    file: int
    rows: Int64
    position: Int64
    acknowledged: Int64


@dataclass(frozen=True)
class Direction:
    """One direction of a connection: a stream of bytes, parts of which were captured."""

    source: Endpoint
    destination: Endpoint
    sightings: tuple[Sighting, ...]
    origin_known: bool
    """False when no capture holds the handshake: positions then count from the lowest seen."""
    length_bytes: int
    """Highest stream position seen."""
    windows: list[tuple[int, int, int, int]] = field(repr=False)
    """Captured runs of bytes, ascending: start, end, file, offset in that file's data."""
    window_ends: list[int] = field(repr=False)
    segment_starts: list[int] = field(repr=False)
    segment_times: list[int] = field(repr=False)
    holes: list[tuple[int, int]] = field(repr=False)
    """Parts of the stream of which no capture saw a packet, ascending."""
    files: Sequence[Packets] = field(repr=False)

    def read(self, position: int, count: int) -> bytes:
        """The captured bytes from `position` on: `count` of them, or fewer where cut."""
        parts = []
        index = bisect_right(self.window_ends, position)
        while count > 0 and index < len(self.windows):
            start, end, file, offset = self.windows[index]
            if start > position:
                break
            skip = position - start
            taken = min(end - position, count)
            data = self.files[file].data[offset + skip : offset + skip + taken]
            parts.append(data.tobytes())
            position += taken
            count -= taken
            index += 1
        return b"".join(parts)

    def runs_from(self, position: int) -> Iterator[tuple[int, bytes]]:
        """Every captured run that ends behind `position`: (start, bytes), ascending."""
        for index in range(bisect_right(self.window_ends, position), len(self.windows)):
            start, end, file, offset = self.windows[index]
            skip = max(0, position - start)
            yield (
                start + skip,
                self.files[file].data[offset + skip : offset + end - start].tobytes(),
            )

    def is_whole(self, start: int, end: int) -> bool:
        """Whether packets for all bytes from `start` to `end` were seen."""
        index = bisect_right(self.holes, (start, self.length_bytes))
        before = index > 0 and self.holes[index - 1][1] > start
        return not before and (index == len(self.holes) or self.holes[index][0] >= end)

    def time_ns(self, position: int) -> int:
        """When the segment holding `position` was first seen; 0 where nothing was."""
        index = bisect_right(self.segment_starts, position) - 1
        return self.segment_times[max(index, 0)] if self.segment_times else 0


@dataclass(frozen=True)
class Connection:
    """One TCP connection: `forward` flows from the side that connected."""

    opened_ns: int
    forward: Direction
    backward: Direction
    handshake_seen: bool

    @property
    def directions(self) -> tuple[Direction, Direction]:
        return self.forward, self.backward

    def __str__(self) -> str:
        return f"{self.forward.source} -> {self.forward.destination}"


def connections(files: Sequence[Packets]) -> list[Connection]:
    """All TCP connections in these captures, in the order in which they were opened.

    A pair of endpoints that is used again after a new SYN is a new connection.
    """
    parts = [_tcp_rows(number, packets) for number, packets in enumerate(files)]
    rows = {name: np.concatenate([part[name] for part in parts]) for name in _COLUMNS}
    if not rows["row"].size:
        return []
    endpoints, ids = np.unique(
        np.concatenate([rows["source"], rows["destination"]]), return_inverse=True
    )
    source, destination = np.split(ids.astype(np.int64), 2)
    pair = np.minimum(source, destination) * len(endpoints) + np.maximum(source, destination)
    order = np.argsort(pair, kind="stable")
    edges = np.flatnonzero(np.diff(pair[order], prepend=-1, append=-1))
    found = []
    for start, end in pairwise(edges.tolist()):
        chosen = order[start:end]
        mine = {name: column[chosen] for name, column in rows.items()}
        for life in _lives(mine):
            found.append(_connection({n: c[life] for n, c in mine.items()}, files))
    found.sort(key=lambda connection: (connection.opened_ns, str(connection)))
    return found


_COLUMNS = ("file", "row", "time", "source", "destination", "sequence", "acknowledgement",
            "flags", "payload", "captured", "offset")  # fmt: skip


def _tcp_rows(number: int, packets: Packets) -> dict[str, Int64]:
    row = np.flatnonzero(packets.is_tcp)
    return {
        "file": np.full(len(row), number, dtype=np.int64),
        "row": row,
        "time": packets.timestamp_ns[row],
        "source": packets.source[row] << 16 | packets.source_port[row],
        "destination": packets.destination[row] << 16 | packets.destination_port[row],
        "sequence": packets.sequence[row],
        "acknowledgement": packets.acknowledgement[row],
        "flags": packets.flags[row],
        "payload": packets.payload_bytes[row],
        "captured": packets.payload_captured[row],
        "offset": packets.payload_offset[row],
    }


def _lives(rows: dict[str, Int64]) -> Iterator[npt.NDArray[np.intp]]:
    """Split the packets between two endpoints where a SYN with a new number starts afresh."""
    opening = (rows["flags"] & (SYN | ACK)) == SYN
    numbers = np.unique(rows["sequence"][opening])
    if len(numbers) <= 1:
        yield np.arange(len(opening))
        return
    born = sorted(
        (int(rows["time"][opening & (rows["sequence"] == n)].min()), int(n)) for n in numbers
    )
    times = np.array([time for time, _ in born])
    life = np.clip(np.searchsorted(times, rows["time"], side="right") - 1, 0, None)
    for number in range(len(born)):
        chosen = np.flatnonzero(life == number)
        if chosen.size:
            yield chosen


def _connection(rows: dict[str, Int64], files: Sequence[Packets]) -> Connection:
    flags = rows["flags"]
    opening = np.flatnonzero((flags & (SYN | ACK)) == SYN)
    answer = np.flatnonzero((flags & (SYN | ACK)) == (SYN | ACK))
    if opening.size:
        initiator = int(rows["source"][opening[0]])
    elif answer.size:
        initiator = int(rows["destination"][answer[0]])
    else:
        # Gloo lets the higher address connect (gloo/transport/tcp/device.cc).
        initiator = int(max(rows["source"].max(), rows["destination"].max()))
    outgoing = rows["source"] == initiator
    isn: list[int | None] = [None, None]
    if opening.size:
        isn[0] = int(rows["sequence"][opening[0]])
    if answer.size:
        isn[1] = int(rows["sequence"][answer[0]])
        isn[0] = int(rows["acknowledgement"][answer[0]]) - 1 if isn[0] is None else isn[0]
    anchors = [
        _first_sequence(rows, outgoing) if isn[0] is None else isn[0],
        _first_sequence(rows, ~outgoing) if isn[1] is None else isn[1],
    ]
    ends = (_endpoint(initiator), _endpoint(_other(rows, initiator)))
    directions = [
        _direction(
            {name: column[mine] for name, column in rows.items()},
            (ends[side], ends[1 - side]),
            (anchors[side], anchors[1 - side]),
            isn[side] is not None,
            files,
        )
        for side, mine in ((0, outgoing), (1, ~outgoing))
    ]
    return Connection(
        opened_ns=int(rows["time"].min()),
        forward=directions[0],
        backward=directions[1],
        handshake_seen=isn[0] is not None and isn[1] is not None,
    )


def _other(rows: dict[str, Int64], initiator: int) -> int:
    source, destination = int(rows["source"][0]), int(rows["destination"][0])
    return destination if source == initiator else source


def _endpoint(number: int) -> Endpoint:
    return Endpoint(number >> 16, number & 0xFFFF)


def _first_sequence(rows: dict[str, Int64], mine: npt.NDArray[np.bool_]) -> int:
    """The number before the first byte seen, for a direction whose SYN was not captured."""
    sequence = rows["sequence"][mine]
    if sequence.size:
        return int(sequence[0] + np.min(_wrapped(sequence - sequence[0]))) - 1
    acknowledged = rows["acknowledgement"][~mine]
    return int(acknowledged[0]) - 1 if acknowledged.size else 0


def _wrapped(difference: Int64) -> Int64:
    """Differences of 32-bit sequence numbers as signed numbers (RFC 9293 section 3.4)."""
    return (difference + (1 << 31) & 0xFFFF_FFFF) - (1 << 31)


def _positions(sequence: Int64, anchor: int) -> Int64:
    """Stream positions: neighbours in a capture are less than 2 GiB apart, so steps unwrap."""
    steps = np.diff(sequence, prepend=anchor + 1)
    return np.cumsum(_wrapped(steps))


def _direction(
    rows: dict[str, Int64],
    ends: tuple[Endpoint, Endpoint],
    anchors: tuple[int, int],
    origin_known: bool,
    files: Sequence[Packets],
) -> Direction:
    sightings = []
    position = np.zeros(len(rows["row"]), dtype=np.int64)
    for number in np.unique(rows["file"]):
        mine = np.flatnonzero(rows["file"] == number)
        position[mine] = _positions(rows["sequence"][mine], anchors[0])
        acknowledged = np.zeros(len(mine), dtype=np.int64)
        acks = np.flatnonzero(rows["flags"][mine] & ACK)
        acknowledged[acks] = _positions(rows["acknowledgement"][mine[acks]], anchors[1])
        sightings.append(Sighting(int(number), rows["row"][mine], position[mine], acknowledged))
    loaded = np.flatnonzero((rows["payload"] > 0) & (rows["flags"] & (SYN | RST) == 0))
    # The longest copy of a segment first, so that the others are seen to add nothing.
    kept = loaded[np.lexsort((rows["time"][loaded], -rows["captured"][loaded], position[loaded]))]
    start, end = position[kept], position[kept] + rows["captured"][kept]
    adds = end > np.maximum.accumulate(np.concatenate([[-1], end[:-1]]))
    useful = np.flatnonzero(adds & (rows["captured"][kept] > 0))
    windows = list(
        zip(
            start[useful].tolist(),
            end[useful].tolist(),
            rows["file"][kept][useful].tolist(),
            rows["offset"][kept][useful].tolist(),
            strict=True,
        )
    )
    by_time = loaded[np.lexsort((rows["time"][loaded], position[loaded]))]
    starts, first = np.unique(position[by_time], return_index=True)
    begins = position[by_time]
    stops = begins + rows["payload"][by_time]
    reached = np.maximum.accumulate(np.concatenate([np.zeros(1, dtype=np.int64), stops]))
    open_at = np.flatnonzero(begins > reached[:-1])
    return Direction(
        source=ends[0],
        destination=ends[1],
        sightings=tuple(sightings),
        origin_known=origin_known,
        length_bytes=int(reached[-1]),
        windows=windows,
        window_ends=end[useful].tolist(),
        segment_starts=starts.tolist(),
        segment_times=rows["time"][by_time][first].tolist(),
        holes=list(zip(reached[open_at].tolist(), begins[open_at].tolist(), strict=True)),
        files=files,
    )
