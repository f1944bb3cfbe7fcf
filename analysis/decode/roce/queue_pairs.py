"""Connected queue pairs from the packets of captures, and the messages that they carry.

A packet names the queue pair that it is for and not the one that it is from. A run's log says which
two belong together; without one, both ends of a pair send from the same UDP port, which Linux makes
of both numbers (`udp_source_port`).

A direction is a stream of the payload of its packets, in the order of their sequence numbers. An
RDMA WRITE whose immediate was captured with its last packet is a message; packets of which that
cannot be told stay without one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from analysis.decode.capture_view import CaptureView
from analysis.decode.roce.packets import RocePackets, having, roce_packets
from analysis.decode.roce.wire_format import PSN_BITS, PSN_MASK, Syndrome, Trait, udp_source_port
from analysis.decode.tcp.pcap import Packets

Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

NO_IMMEDIATE = -1


@dataclass(frozen=True, order=True)
class QueuePair:
    """One end: an IPv4 address (as a number) and the number of the queue pair there."""

    address: int
    number: int


@dataclass(frozen=True)
class ConnectedPair:
    """Two queue pairs that are connected, and the first PSN that each sends; -1 if unknown."""

    ends: tuple[QueuePair, QueuePair]
    start_psns: tuple[int, int] = (-1, -1)


@dataclass(frozen=True)
class LoggedQueuePairs:
    """A pair of ranks that exchange messages of a group, and their queue pairs, as the log has it:
    the rank of each end."""

    group: str
    ranks: tuple[int, int]
    pair: ConnectedPair


@dataclass(frozen=True)
class RoceMessages:
    """The parts of a direction: runs of packets that belong together. Shape (runs,).

    `immediate` is that of a run's last packet, or `NO_IMMEDIATE`. `writes` tells RDMA WRITEs from
    SENDs. `first` is the number of its
    first packet, `position` and `end` are its payload's place in the stream.
    """

    immediate: Int64
    writes: Bool
    first: Int64
    position: Int64
    end: Int64
    time_ns: Int64

    def __len__(self) -> int:
        return len(self.immediate)

    def at(self, number: Int64) -> Int64:
        """The run that holds the packet of each number, or the last one before it; -1 for none."""
        found: Int64 = np.searchsorted(self.first, number, side="right") - 1
        return found


@dataclass(frozen=True)
class RoceView:
    """The packets of one direction in one capture file, in file order. Shape (packets,) each.

    `number` counts the direction's packets from 0 by their PSN; for an acknowledgement it is the
    other direction's, -1 for packets that have none. `again` are those whose PSN this capture has
    seen before.
    """

    stream: CaptureView
    traits: Int64
    number: Int64
    again: Bool
    syndrome: Int64


@dataclass(frozen=True)
class RoceDirection:
    """The packets that one queue pair sends to the other, parts of which were captured: at its
    sender, which is where they were captured first, before others."""

    destination: QueuePair
    messages: RoceMessages
    captured: tuple[RoceView, ...] = field(repr=False)
    length_bytes: int

    @property
    def views(self) -> tuple[CaptureView, ...]:
        """Its packets, in the form of any connection's."""
        return tuple(view.stream for view in self.captured)


@dataclass(frozen=True)
class QueuePairConnection:
    """Two connected queue pairs; the first direction is that from the lower end."""

    directions: tuple[RoceDirection, RoceDirection]

    @property
    def carried(self) -> bool:
        """Always."""
        return True

    @property
    def ends(self) -> tuple[QueuePair, QueuePair]:
        """The first direction leads from the first to the second; numbers are -1 if unknown."""
        return self.directions[1].destination, self.directions[0].destination


@dataclass(frozen=True)
class _Rows:
    """RoCEv2 packets of one direction in one file."""

    file: int
    packets: Packets
    roce: RocePackets
    chosen: npt.NDArray[np.intp]

    def of(self, column: Int64) -> Int64:
        """The direction's part of a column of `roce`."""
        found: Int64 = column[self.chosen]
        return found

    @property
    def row(self) -> Int64:
        return self.of(self.roce.row)

    def carried(self) -> Int64:
        """PSNs of its packets with payload."""
        return self._psns(Trait.CARRIES)

    def answered(self) -> Int64:
        """PSNs of its acknowledgements."""
        return self._psns(Trait.ANSWERS)

    def _psns(self, trait: Trait) -> Int64:
        found: Int64 = self.of(self.roce.psn)[having(self.of(self.roce.traits), trait)]
        return found


_Key = tuple[int, int, int]
"""Source address, destination address, destination queue pair."""


def queue_pairs(
    files: Sequence[Packets], known: Iterable[ConnectedPair] = ()
) -> list[QueuePairConnection]:
    """All connected queue pairs of which these captures have a packet, by their ends. `known` are
    those of the log."""
    rows: dict[_Key, list[_Rows]] = defaultdict(list)
    ports: dict[_Key, int] = {}
    for number, packets in enumerate(files):
        roce = roce_packets(packets)
        if not len(roce):
            continue
        source, destination = packets.source[roce.row], packets.destination[roce.row]
        keys = np.stack([source, destination, roce.destination_qp])
        distinct, of = np.unique(keys, axis=1, return_inverse=True)
        order = np.argsort(of, kind="stable")
        bounds = np.searchsorted(of[order], np.arange(distinct.shape[1] + 1))
        for place, key in enumerate(map(tuple, distinct.T.tolist())):
            chosen = order[bounds[place] : bounds[place + 1]]
            rows[key].append(_Rows(number, packets, roce, chosen))
            ports.setdefault(key, int(packets.source_port[roce.row[chosen[0]]]))
    found: list[QueuePairConnection] = []
    taken: set[_Key] = set()
    for pair in _logged(rows, known) + _paired(rows, ports):
        keys_of = _keys(pair)
        if taken.isdisjoint(keys_of):
            taken.update(keys_of)
            found.append(_connection(pair, rows))
    alone = [_connection(_without_partner(key), rows) for key in sorted(rows) if key not in taken]
    return sorted([*found, *alone], key=lambda each: each.ends)


def _keys(pair: ConnectedPair) -> tuple[_Key, _Key]:
    one, other = pair.ends
    return (one.address, other.address, other.number), (other.address, one.address, one.number)


def _logged(rows: dict[_Key, list[_Rows]], known: Iterable[ConnectedPair]) -> list[ConnectedPair]:
    return [pair for pair in known if any(key in rows for key in _keys(pair))]


def _paired(rows: dict[_Key, list[_Rows]], ports: dict[_Key, int]) -> list[ConnectedPair]:
    """Directions that belong together by the port that they are sent from."""
    by_hosts: dict[tuple[int, int], list[_Key]] = defaultdict(list)
    for key in sorted(rows):
        by_hosts[key[:2]].append(key)
    found = []
    for source, destination, number in sorted(rows):
        port = ports[source, destination, number]
        fitting = [
            key
            for key in by_hosts[destination, source]
            if ports[key] == port == udp_source_port(number, key[2])
        ]
        if len(fitting) == 1 and source <= destination:
            ends = QueuePair(source, fitting[0][2]), QueuePair(destination, number)
            found.append(ConnectedPair(ends))
    return found


def _without_partner(key: _Key) -> ConnectedPair:
    """A direction of which the other one cannot be told."""
    source, destination, number = key
    return ConnectedPair((QueuePair(source, -1), QueuePair(destination, number)))


def _connection(pair: ConnectedPair, rows: dict[_Key, list[_Rows]]) -> QueuePairConnection:
    if pair.ends[1] < pair.ends[0] and pair.ends[0].number >= 0:
        pair = ConnectedPair(pair.ends[::-1], pair.start_psns[::-1])
    parts = [rows.get(key, []) for key in _keys(pair)]
    starts = [_start_psn(pair.start_psns[side], parts[side], parts[1 - side]) for side in (0, 1)]
    numbered = [_numbers(parts[side], starts[side], starts[1 - side]) for side in (0, 1)]
    streams = [_Stream.of(parts[side], numbered[side]) for side in (0, 1)]
    return QueuePairConnection(
        (
            _direction(pair.ends, parts[0], numbered[0], streams[0], streams[1]),
            _direction(pair.ends[::-1], parts[1], numbered[1], streams[1], streams[0]),
        )
    )


def _start_psn(known: int, sent: Sequence[_Rows], back: Sequence[_Rows]) -> int:
    """The PSN that counts as 0: of the log, else the lowest that was sent or acknowledged."""
    if known >= 0:
        return known
    for psns in ([part.carried() for part in sent], [part.answered() for part in back]):
        seen = np.concatenate([np.zeros(0, dtype=np.int64), *psns])
        if seen.size:
            return int(seen[0] + _wrapped(seen - seen[0]).min()) & PSN_MASK
    return 0


def _wrapped(difference: Int64) -> Int64:
    """Differences of PSNs as signed numbers (chapter 9.7.1)."""
    half = 1 << PSN_BITS - 1
    return (difference + half & PSN_MASK) - half


def _numbers(parts: Sequence[_Rows], own: int, other: int) -> list[Int64]:
    """The sequence numbers of all packets of each part; neighbours in a capture are less than 2^23
    packets apart, so steps unwrap."""
    found = []
    for part in parts:
        psn, traits = part.of(part.roce.psn), part.of(part.roce.traits)
        number = np.full(len(psn), -1, dtype=np.int64)
        for trait, start in ((Trait.CARRIES, own), (Trait.ANSWERS, other)):
            mine = np.flatnonzero(traits & trait)
            number[mine] = np.cumsum(_wrapped(np.diff(psn[mine], prepend=start)))
        found.append(number)
    return found


@dataclass(frozen=True)
class _Stream:
    """The packets with payload of a direction, each once, by number; and the run of each."""

    number: Int64
    position: Int64
    messages: RoceMessages
    length_bytes: int

    @classmethod
    def of(cls, parts: Sequence[_Rows], numbers: Sequence[Int64]) -> _Stream:
        """Put together from all files."""
        nothing = np.zeros(0, dtype=np.int64)
        columns: list[list[Int64]] = [[nothing] for _ in range(5)]
        for part, number in zip(parts, numbers, strict=True):
            traits = part.of(part.roce.traits)
            mine = np.flatnonzero(traits & Trait.CARRIES)
            values = (
                number,
                part.packets.timestamp_ns[part.row],
                traits,
                part.of(part.roce.payload_bytes),
                part.of(part.roce.immediate),
            )
            for column, value in zip(columns, values, strict=True):
                column.append(value[mine])
        number, time_ns, traits, payload, immediate = map(np.concatenate, columns)
        order = np.lexsort((time_ns, number))
        order = order[np.flatnonzero(np.diff(number[order], prepend=number[order[:1]] - 1))]
        number, time_ns, traits, payload, immediate = (
            column[order] for column in (number, time_ns, traits, payload, immediate)
        )
        end = np.cumsum(payload)
        position = end - payload
        last = having(traits, Trait.LAST)
        begins = (having(traits, Trait.FIRST)) | (np.diff(number, prepend=number[:1] - 2) != 1)
        begins[1:] |= last[:-1]
        first = np.flatnonzero(begins)
        final = np.append(first[1:], len(number))[: len(first)] - 1
        told = last[final] & (having(traits[final], Trait.IMMEDIATE))
        messages = RoceMessages(
            np.where(told, immediate[final], NO_IMMEDIATE),
            having(traits[final], Trait.WRITES),
            number[first],
            position[first],
            end[final],
            time_ns[first],
        )
        return cls(number, position, messages, int(payload.sum()))

    def position_of(self, number: Int64) -> Int64:
        """The position at which each packet's payload begins. A packet that nobody saw has the
        position of the next one that was seen."""
        bounds = np.append(self.position, self.length_bytes)
        found: Int64 = bounds[np.searchsorted(self.number, number)]
        return found


def _direction(
    ends: Sequence[QueuePair],
    parts: Sequence[_Rows],
    numbers: Sequence[Int64],
    own: _Stream,
    other: _Stream,
) -> RoceDirection:
    # The earliest first, which of two with the same is the one that saw more.
    order = sorted(
        range(len(parts)),
        key=lambda n: (int(parts[n].packets.timestamp_ns[parts[n].row[0]]), -len(parts[n].row), n),
    )
    views = tuple(_view(parts[n], numbers[n], own, other) for n in order)
    return RoceDirection(ends[1], own.messages, views, own.length_bytes)


def _view(part: _Rows, number: Int64, own: _Stream, other: _Stream) -> RoceView:
    roce = part.roce
    traits, syndrome = part.of(roce.traits), part.of(roce.syndrome)
    carries, answers = having(traits, Trait.CARRIES), having(traits, Trait.ANSWERS)
    again = np.zeros(len(number), dtype=np.bool_)
    mine = np.flatnonzero(carries)
    seen_first = np.unique(number[mine], return_index=True)[1]
    again[mine] = True
    again[mine[seen_first]] = False
    # An ACK is for its PSN and all before; a NAK for all before.
    refused = answers & (syndrome >> 5 != Syndrome.ACK)
    acknowledged = np.where(answers, other.position_of(number + ~refused), 0)
    position = np.where(carries, own.position_of(number), -1)
    stream = CaptureView(part.file, part.row, position, part.of(roce.payload_bytes), acknowledged)
    return RoceView(stream, traits, number, again, syndrome)
