"""The subflows of an MPTCP connection (RFC 8684) taken for one TCP connection: that of the first
subflow, with the numbers of the connection's data in place of those of the subflows.

The stream that is then put together from packets is the one that programs wrote, whichever way its
bytes went. Handshakes say which subflows belong together: a connection's keys have tokens, and
whoever joins it names one. Subflows of which no capture has the connection's handshake stay TCP
connections of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.decode.segmented import starts_of
from analysis.decode.tcp.multipath_options import Mappings, Options, multipath_options
from analysis.decode.tcp.pcap import ACK, SYN, Packets, options_of

Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
Rows = Mapping[str, Int64]

_MASK: Final = 0xFFFF_FFFF


@dataclass(frozen=True)
class _Connection:
    """A connection by its first subflow, which is the TCP connection `number`. `ends` are the end
    that asked for it and the other; `first` has for either the lower 32 bits of the number before
    its first byte, `tokens` the number by which others join it there."""

    number: int
    ends: tuple[int, int]
    first: tuple[int, int]
    tokens: tuple[int, int]


@dataclass(frozen=True)
class _Subflow:
    """A TCP connection that is a subflow. `ends` are its own, in the order of its connection's."""

    number: int
    connection: _Connection
    ends: tuple[int, int]


def joined_subflows(
    files: Sequence[Packets], rows: Rows, numbers: Callable[[], Int64]
) -> dict[str, Int64]:
    """The rows with those of subflows changed. Order and columns stay.

    Args:
        files: the captures.
        rows: the TCP packets of all captures, in order of file and place in it.
        numbers: has the TCP connection of each row, counted from 0.
    """
    changed = dict(rows)
    opening = np.flatnonzero(rows["flags"] & SYN != 0) if rows["row"].size else rows["row"]
    if not opening.size or not (_options(files, rows, opening).capable >= 0).any():
        return changed
    number = numbers()
    found = _options(files, rows, np.arange(len(number)))
    mappings = found.mappings()
    subflows = _subflows(rows, number, found, mappings)
    if subflows:
        changed |= _changed(rows, number, mappings, subflows)
    return changed


def _options(files: Sequence[Packets], rows: Rows, chosen: Int64) -> Options:
    options = np.zeros((len(chosen), 40), dtype=np.uint8)
    room = np.zeros(len(chosen), dtype=np.int64)
    for file in np.unique(rows["file"][chosen]).tolist():
        mine = np.flatnonzero(rows["file"][chosen] == file)
        options[mine], room[mine] = options_of(files[file], rows["row"][chosen[mine]])
    return multipath_options(options, room)


def _subflows(rows: Rows, number: Int64, found: Options, mappings: Mappings) -> list[_Subflow]:
    """All subflows, the first ones and those that joined. A connection that fell back to TCP, whose
    packets say nothing of data, is none."""
    says = set(np.unique(number[mappings.acknowledged >= 0]).tolist())
    first: dict[int, _Connection] = {}
    for row in np.flatnonzero(found.capable >= 0).tolist():
        own = int(number[row])
        keys = found.keys(row)
        if own in says and own not in first and len(keys) == 2:
            hashes = [sha256(key).digest() for key in keys]
            first[own] = _Connection(
                own,
                (int(rows["source"][row]), int(rows["destination"][row])),
                (_low(hashes[0][-4:]), _low(hashes[1][-4:])),
                (_low(hashes[0][:4]), _low(hashes[1][:4])),
            )
    subflows = [_Subflow(own, each, each.ends) for own, each in first.items()]
    known = {
        (end >> 16, token): (each, side)
        for each in first.values()
        for side, (end, token) in enumerate(zip(each.ends, each.tokens, strict=True))
    }
    seen = set()
    asks = (found.join >= 0) & (rows["flags"] & (SYN | ACK) == SYN)
    for row in np.flatnonzero(asks).tolist():
        own, ends = int(number[row]), (int(rows["source"][row]), int(rows["destination"][row]))
        joined = known.get((ends[1] >> 16, found.token(row)))
        if joined is not None and own not in seen:
            seen.add(own)
            connection, side = joined
            subflows.append(_Subflow(own, connection, ends if side else ends[::-1]))
    return subflows


def _low(text: bytes) -> int:
    return int.from_bytes(text, "big")


def _changed(
    rows: Rows, number: Int64, mappings: Mappings, subflows: Sequence[_Subflow]
) -> dict[str, Int64]:
    """The columns that change: ends, numbers and flags of the subflows' rows."""
    subflow_of = np.full(int(number.max()) + 1, -1)
    subflow_of[[each.number for each in subflows]] = np.arange(len(subflows))
    mine = np.flatnonzero(subflow_of[number] >= 0)
    subflow = subflow_of[number[mine]]
    ends = np.array([each.ends for each in subflows])
    joined_ends = np.array([each.connection.ends for each in subflows])
    before = np.array([each.connection.first for each in subflows])
    of_connection = np.array([each.connection.number for each in subflows])
    first = np.array([each.number for each in subflows]) == of_connection

    side = (rows["source"][mine] != ends[subflow, 0]).astype(np.int64)
    flags, payload = rows["flags"][mine], rows["payload"][mine]
    own, other = before[subflow, side], before[subflow, 1 - side]
    opens = flags & SYN != 0
    data = _data_numbers(rows["sequence"][mine], opens, 2 * subflow + side, own, mappings, mine)
    sequence = np.where(opens & first[subflow], own, own + 1)
    loaded = (payload > 0) & ~opens
    sequence[loaded] = data[loaded]
    acknowledged = mappings.acknowledged[mine]
    # A number that a packet does not say is that of the one before it, seen from the same place.
    view = np.unique(
        np.stack([of_connection[subflow], side, rows["file"][mine]]), axis=1, return_inverse=True
    )[1].reshape(-1)
    changed = {
        "source": joined_ends[subflow, side],
        "destination": joined_ends[subflow, 1 - side],
        "sequence": _filled(sequence, loaded | opens, view) & _MASK,
        "acknowledgement": _filled(
            np.where(acknowledged >= 0, acknowledged, other + 1), acknowledged >= 0, view
        )
        & _MASK,
        # The connection has been opened when a further subflow is.
        "flags": np.where(first[subflow], flags, flags & ~SYN),
    }
    for name, column in changed.items():
        whole = rows[name].copy()
        whole[mine] = column
        changed[name] = whole
    return changed


def _data_numbers(
    sequence: Int64, opens: Bool, direction: Int64, before: Int64, mappings: Mappings, rows: Int64
) -> Int64:
    """The number of each packet's first byte among its connection's data; without a mapping, that
    which follows from `before`, the number before the first byte, as after a fall back to TCP."""
    of_data, of_subflow = mappings.of_data[rows], mappings.of_subflow[rows]
    length = mappings.length[rows]
    maps = (of_data >= 0) & (length > 0)
    count = int(direction.max()) + 1
    start = np.full(count, -1)
    # Without a handshake: no mapping begins behind the packet that has it.
    least = np.full(count, np.iinfo(np.int64).max)
    some = np.flatnonzero(maps & ~opens & (of_subflow > 0))
    if some.size:
        reference = np.zeros(count, dtype=np.int64)
        reference[direction[some]] = sequence[some]
        steps = (sequence - of_subflow - reference[direction] + (1 << 31) & _MASK) - (1 << 31)
        np.minimum.at(least, direction[some], steps[some])
        guessed = np.unique(direction[some])
        start[guessed] = reference[guessed] + least[guessed] & _MASK
    opening = np.flatnonzero(opens)[::-1]
    start[direction[opening]] = sequence[opening]
    place = sequence - start[direction] & _MASK  # 1 is the first byte's
    data: Int64 = np.where(maps, of_data + place - of_subflow, before + place)
    lost = np.flatnonzero(~maps & ~opens & ~mappings.begins[rows])
    mapped = np.flatnonzero(maps)
    order = mapped[np.lexsort((of_subflow[mapped], direction[mapped]))]
    keys = direction[order] << 32 | of_subflow[order]
    at = np.searchsorted(keys, direction[lost] << 32 | place[lost], "right") - 1
    near = order[np.maximum(at, 0)] if order.size else lost
    covered = (at >= 0) & (direction[near] == direction[lost]) if order.size else at >= 0
    inside = covered & (place[lost] < of_subflow[near] + length[near])
    lost, near = lost[inside], near[inside]
    data[lost] = of_data[near] + place[lost] - of_subflow[near]
    return data


def _filled(values: Int64, known: Bool, view: Int64) -> Int64:
    """The values, where one is not known that of the row before it in its view, if there is one."""
    order = np.argsort(view, kind="stable")
    kept = known[order]
    kept[starts_of(view[order])] = True
    last = np.maximum.accumulate(np.where(kept, np.arange(len(order)), 0))
    found = np.empty_like(values)
    found[order] = values[order][last]
    return found
