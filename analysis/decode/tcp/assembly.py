"""TCP connections from the packets of captures.

A run has thousands of connections of few packets each, so all are put together at once: packets are
sorted by connection, direction and capture, and every step is one pass over all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.decode.capture_view import CaptureView
from analysis.decode.segmented import highest_before, starts_of
from analysis.decode.tcp.multipath import joined_subflows
from analysis.decode.tcp.pcap import ACK, RST, SYN, Packets
from analysis.decode.tcp.stream import Direction, Endpoint, TcpConnection

Int64 = npt.NDArray[np.int64]
Rows = dict[str, Int64]


def connections(files: Sequence[Packets]) -> list[TcpConnection]:
    """All TCP connections in these captures, in the order in which they were opened.

    A pair of endpoints that is used again after a new SYN is a new connection. The subflows of
    MPTCP are one connection, with the first one's ports.
    """
    seen = _tcp_rows(files)
    rows = _by_connection(joined_subflows(files, seen, lambda: _numbers(seen)))
    if not rows["row"].size:
        return []
    connection = rows["connection"]
    begins = starts_of(connection)
    flags, source, destination = rows["flags"], rows["source"], rows["destination"]
    opened = _first(connection, flags & (SYN | ACK) == SYN, len(begins))
    answered = _first(connection, flags & (SYN | ACK) == SYN | ACK, len(begins))
    # Gloo lets the higher address connect (gloo/transport/tcp/device.cc).
    initiator = np.maximum.reduceat(np.maximum(source, destination), begins)
    initiator = np.where(answered >= 0, destination[answered], initiator)
    initiator = np.where(opened >= 0, source[opened], initiator)
    other = np.where(source[begins] == initiator, destination[begins], source[begins])

    sequence, acknowledgement = rows["sequence"], rows["acknowledgement"]
    backward = (source != initiator[connection]).astype(np.int64)
    known = np.stack([(opened >= 0) | (answered >= 0), answered >= 0], axis=1)
    anchors = np.stack(
        [
            np.where(opened >= 0, sequence[opened], acknowledgement[answered] - 1),
            sequence[answered],
        ],
        axis=1,
    )
    ends = np.append(begins[1:], len(connection))
    for number, side in np.argwhere(~known).tolist():
        span = slice(begins[number], ends[number])
        anchors[number, side] = _first_sequence(
            sequence[span], acknowledgement[span], backward[span] == side
        )

    rows["direction"] = 2 * connection + backward
    order = np.argsort(rows["direction"], kind="stable")
    parts = _directions({name: column[order] for name, column in rows.items()}, anchors.ravel())
    opened_ns = np.minimum.reduceat(rows["time"], begins).tolist()
    found = []
    for number, (here, there) in enumerate(zip(initiator.tolist(), other.tolist(), strict=True)):
        pair = _endpoint(here), _endpoint(there)
        forward, back = (
            Direction(
                source=pair[side],
                destination=pair[1 - side],
                origin_known=bool(known[number, side]),
                files=files,
                **parts[2 * number + side],
            )
            for side in (0, 1)
        )
        found.append(TcpConnection(opened_ns[number], forward, back))
    found.sort(key=lambda connection: (connection.opened_ns, str(connection)))
    return found


def _tcp_rows(files: Sequence[Packets]) -> Rows:
    """The TCP packets of all captures, in order of file and place in it."""
    parts = []
    for number, packets in enumerate(files):
        row = np.flatnonzero(packets.is_tcp)
        parts.append(
            {
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
        )
    if not parts:
        return {"row": np.zeros(0, dtype=np.int64)}
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _by_connection(rows: Rows) -> Rows:
    """The rows sorted by connection, with a column `connection` that numbers these from 0."""
    if not rows["row"].size:
        return rows
    pair = _pairs(rows)
    life = _lives(rows, pair)
    order = np.lexsort((life, pair))
    fresh = (np.diff(pair[order], prepend=-1) != 0) | (np.diff(life[order], prepend=-1) != 0)
    return {name: column[order] for name, column in rows.items()} | {
        "connection": np.cumsum(fresh) - 1
    }


def _numbers(rows: Rows) -> Int64:
    """The TCP connection of each row, numbered from 0."""
    pair = _pairs(rows)
    both = np.unique(np.stack([pair, _lives(rows, pair)]), axis=1, return_inverse=True)[1]
    return both.reshape(-1).astype(np.int64)


def _pairs(rows: Rows) -> Int64:
    """A number for the two endpoints of each row, whichever has sent it."""
    endpoints, ids = np.unique(
        np.concatenate([rows["source"], rows["destination"]]), return_inverse=True
    )
    source, destination = np.split(ids.astype(np.int64), 2)
    pair: Int64 = np.minimum(source, destination) * len(endpoints) + np.maximum(source, destination)
    return pair


def _lives(rows: Rows, pair: Int64) -> Int64:
    """The connection between its two endpoints that each packet belongs to: a SYN with a new number
    starts afresh."""
    life = np.zeros(len(pair), dtype=np.int64)
    opening = np.flatnonzero((rows["flags"] & (SYN | ACK)) == SYN)
    births = np.unique(np.stack([pair[opening], rows["sequence"][opening]]), axis=1)[0]
    for again in np.unique(births[1:][births[1:] == births[:-1]]).tolist():
        mine = opening[pair[opening] == again]
        numbers, times = rows["sequence"][mine], rows["time"][mine]
        born = sorted(int(times[numbers == number].min()) for number in np.unique(numbers))
        chosen = np.flatnonzero(pair == again)
        life[chosen] = np.searchsorted(np.array(born), rows["time"][chosen], side="right") - 1
    return np.maximum(life, 0)


def _first(connection: Int64, chosen: npt.NDArray[np.bool_], count: int) -> Int64:
    """The first chosen row of each connection; -1 where there is none."""
    found = np.full(count, -1, dtype=np.int64)
    rows = np.flatnonzero(chosen)[::-1]
    found[connection[rows]] = rows
    return found


def _endpoint(number: int) -> Endpoint:
    return Endpoint(number >> 16, number & 0xFFFF)


def _first_sequence(sequence: Int64, acknowledgement: Int64, mine: npt.NDArray[np.bool_]) -> int:
    """The number before the first byte seen, for a direction whose SYN was not captured."""
    sent = sequence[mine]
    if sent.size:
        return int(sent[0] + np.min(_wrapped(sent - sent[0]))) - 1
    acknowledged = acknowledgement[~mine]
    return int(acknowledged[0]) - 1 if acknowledged.size else 0


def _wrapped(difference: Int64) -> Int64:
    """Differences of 32-bit sequence numbers as signed numbers (RFC 9293 section 3.4)."""
    return (difference + (1 << 31) & 0xFFFF_FFFF) - (1 << 31)


def _positions(sequence: Int64, anchor: Int64, segment: Int64) -> Int64:
    """Stream positions, within each segment: neighbours in a capture are less than 2 GiB apart, so
    steps unwrap."""
    if not sequence.size:
        return sequence
    starts = starts_of(segment)
    steps = np.diff(sequence, prepend=0)
    steps[starts] = sequence[starts] - anchor[starts] - 1
    steps = _wrapped(steps)
    total = np.cumsum(steps)
    before = total[starts] - steps[starts]
    position: Int64 = total - np.repeat(before, np.diff(starts, append=len(total)))
    return position


def _directions(rows: Rows, anchors: Int64) -> list[dict[str, Any]]:
    """The fields of every `Direction` that its packets tell, for rows sorted by direction and file.
    `anchors` has the sequence number before the first byte of each direction."""
    direction, file, time = rows["direction"], rows["file"], rows["time"]
    fresh = (np.diff(direction, prepend=-1) != 0) | (np.diff(file, prepend=-1) != 0)
    view = np.cumsum(fresh) - 1
    position = _positions(rows["sequence"], anchors[direction], view)
    acks = np.flatnonzero(rows["flags"] & ACK)
    acknowledged = np.zeros(len(position), dtype=np.int64)
    acknowledged[acks] = _positions(
        rows["acknowledgement"][acks], anchors[direction[acks] ^ 1], view[acks]
    )
    starts = np.flatnonzero(fresh)
    views = [
        CaptureView(
            number,
            rows["row"][start:end],
            position[start:end],
            rows["payload"][start:end],
            acknowledged[start:end],
        )
        for number, (start, end) in zip(
            file[starts].tolist(), pairwise([*starts.tolist(), len(file)]), strict=True
        )
    ]

    loaded = np.flatnonzero((rows["payload"] > 0) & (rows["flags"] & (SYN | RST) == 0))
    # The longest copy of a segment first, so that the others are seen to add nothing.
    captured = rows["captured"]
    kept = loaded[
        np.lexsort((time[loaded], -captured[loaded], position[loaded], direction[loaded]))
    ]
    ends = position[kept] + captured[kept]
    useful = kept[(ends > highest_before(ends, direction[kept], -1)) & (captured[kept] > 0)]
    window_ends = (position + captured)[useful].tolist()
    windows = list(
        zip(
            position[useful].tolist(),
            window_ends,
            file[useful].tolist(),
            rows["offset"][useful].tolist(),
            strict=True,
        )
    )
    by_position = loaded[np.lexsort((position[loaded], direction[loaded]))]
    of, begins = direction[by_position], position[by_position]
    stops = begins + rows["payload"][by_position]
    reached = highest_before(stops, of, 0)
    open_at = np.flatnonzero(begins > reached)
    holes = list(zip(reached[open_at].tolist(), begins[open_at].tolist(), strict=True))
    lengths = np.zeros(len(anchors), dtype=np.int64)
    np.maximum.at(lengths, of, stops)
    # Segments that repeat bytes or fill holes say nothing of when their bytes were written.
    seen_at = loaded[np.lexsort((position[loaded], time[loaded], direction[loaded]))]
    tops = position[seen_at] + rows["payload"][seen_at]
    passed = highest_before(tops, direction[seen_at], 0)
    first = np.flatnonzero(tops > passed)
    fresh_starts, fresh_times = passed[first].tolist(), time[seen_at[first]].tolist()

    def spans(of: Int64) -> list[slice]:
        bounds = np.searchsorted(of, np.arange(len(anchors) + 1)).tolist()
        return [slice(low, high) for low, high in pairwise(bounds)]

    return [
        {
            "views": tuple(views[seen]),
            "length_bytes": length,
            "windows": windows[window],
            "window_ends": window_ends[window],
            "fresh_starts": fresh_starts[part],
            "fresh_times": fresh_times[part],
            "holes": holes[hole],
        }
        for length, seen, window, part, hole in zip(
            lengths.tolist(),
            spans(direction[starts]),
            spans(direction[useful]),
            spans(direction[seen_at[first]]),
            spans(of[open_at]),
            strict=True,
        )
    ]
