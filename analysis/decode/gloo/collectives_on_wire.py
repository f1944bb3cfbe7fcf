"""The collectives of a group from what its connections carried: Gloo's slots name kind and number,
the messages' sizes and ends the rest (docs/gloo-wire-format.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from analysis.decode.gloo.groups_on_wire import WireGroup
from analysis.decode.gloo.stream import MessageStream
from analysis.decode.gloo.wire_format import PREAMBLE_BYTES, Opcode, Prefix, Slot
from analysis.decode.tcp.stream import Direction
from collectives.kinds import Kind

Int64 = npt.NDArray[np.int64]

_KINDS = {
    Prefix.ALLREDUCE: Kind.ALL_REDUCE,
    Prefix.ALLGATHER: Kind.ALL_GATHER,
    Prefix.ALLTOALL: Kind.ALL_TO_ALL,
    Prefix.BROADCAST: Kind.BROADCAST,
    Prefix.REDUCE: Kind.REDUCE,
    Prefix.GATHER: Kind.GATHER,
    Prefix.SCATTER: Kind.SCATTER,
    Prefix.BARRIER: Kind.BARRIER,
}
_ELEMENT_BYTES = (8, 4, 2, 1)


@dataclass(frozen=True)
class WireCollective:
    """A collective as the wire tells it. `root` is a position in `ranks`. Of each rank, in the
    captures' time: when its first message of it left its host, and when the last that it sent had
    left or that it received had come. The number of a message's tag and order is in `id`."""

    id: str
    kind: Kind
    group: str
    tag: int | None
    size_bytes: int
    element_bytes: int
    ranks: tuple[int, ...]
    root: int
    uneven: bool
    intervals_ns: Mapping[int, tuple[int, int]]


@dataclass
class _Exchange:
    """All messages of a collective: (source, destination, bytes) of data, and times of ranks."""

    data: list[tuple[int, int, int]] = field(default_factory=list)
    first_ns: dict[int, int] = field(default_factory=dict)
    sent_ns: dict[int, int] = field(default_factory=dict)
    come_ns: dict[int, int] = field(default_factory=dict)

    def sent(self, rank: int, first_ns: int, last_ns: int) -> None:
        self.first_ns[rank] = min(first_ns, self.first_ns.get(rank, first_ns))
        self.sent_ns[rank] = max(last_ns, self.sent_ns.get(rank, last_ns))

    def came(self, rank: int, last_ns: int) -> None:
        self.come_ns[rank] = max(last_ns, self.come_ns.get(rank, last_ns))

    def intervals_ns(self, kind: Kind) -> dict[int, tuple[int, int]]:
        """Of ranks that have sent something. Where every rank has data from others, it has done its
        part when all of that has come: what it sends has left the rank before, if not its host."""
        found = {}
        for rank, first_ns in self.first_ns.items():
            come_ns = self.come_ns.get(rank)
            if come_ns is None or not kind.traits.ends_together:
                come_ns = max(come_ns or 0, self.sent_ns[rank])
            found[rank] = first_ns, come_ns
        return found


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

    def whole_ns(self, position: int) -> int | None:
        """When all bytes up to this one, itself included, had passed."""
        index = int(np.searchsorted(self._position, position, side="right")) - 1
        return int(self._until_ns[index]) if index >= 0 else None


def _joined(arrays: Sequence[Int64]) -> Int64:
    return np.concatenate([np.zeros(0, dtype=np.int64), *arrays])


def collectives_on_wire(
    group: WireGroup, captured: Mapping[int, frozenset[int]]
) -> Iterator[WireCollective]:
    """What the group did; `captured` has the capture files of each rank's host. Left out is what
    has a message that could not be read, or of which a rank's part was not captured."""
    counted: dict[Slot, _Exchange] = defaultdict(_Exchange)
    messages: dict[tuple[int, int, int], list[_Exchange]] = defaultdict(list)
    for initiator, responder, _, streams in group.connections:
        ends = (initiator, responder), (responder, initiator)
        own: dict[tuple[int, int, int], list[_Exchange]] = defaultdict(list)
        for (sender, receiver), stream in zip(ends, streams, strict=True):
            _read(stream, sender, receiver, captured, counted, own)
        for key, exchanges in own.items():
            messages[key] += exchanges
    for slot, exchange in counted.items():
        found = _collective(group, slot, exchange)
        if found is not None:
            yield found
    for (source, destination, tag), exchanges in messages.items():
        for number, exchange in enumerate(exchanges):
            if exchange.data and {source, destination} <= set(exchange.first_ns):
                yield _message(group, (source, destination), tag, number, exchange)


def _read(
    stream: MessageStream,
    sender: int,
    receiver: int,
    captured: Mapping[int, frozenset[int]],
    counted: dict[Slot, _Exchange],
    messages: dict[tuple[int, int, int], list[_Exchange]],
) -> None:
    """Add what one direction of a connection carried."""
    leaving = HostTimes(stream.direction, captured[sender])
    coming = HostTimes(stream.direction, captured[receiver])
    for message in stream.messages:
        if message.slot is None or message.opcode is None:
            continue
        slot = Slot.decode(message.slot)
        carries = message.opcode is Opcode.SEND_UNBOUND_BUFFER
        if slot.prefix == Prefix.USER:
            back = message.opcode is Opcode.NOTIFY_RECV_READY
            key = (receiver, sender, slot.user_tag) if back else (sender, receiver, slot.user_tag)
            many = messages[key]
            many.extend(_Exchange() for _ in range(message.step + 1 - len(many)))
            exchange = many[message.step]
        else:
            exchange = counted[Slot(slot.prefix, slot.tag, 0)]
        first_ns = leaving.passed_ns(message.position)
        sent_ns, come_ns = leaving.whole_ns(message.end - 1), coming.whole_ns(message.end - 1)
        if first_ns is None or sent_ns is None or come_ns is None:
            continue
        exchange.sent(sender, first_ns, sent_ns if carries else first_ns)
        if carries:
            exchange.data.append((sender, receiver, message.nbytes - PREAMBLE_BYTES))
            exchange.came(receiver, come_ns)


def _collective(group: WireGroup, slot: Slot, exchange: _Exchange) -> WireCollective | None:
    ranks, kind = group.ranks, _KINDS[Prefix(slot.prefix)]
    if set(exchange.first_ns) != set(ranks):
        return None
    sizes = [size for _, _, size in exchange.data]
    total, others = sum(sizes), len(ranks) - 1
    sent, received = _by_rank(exchange, 0), _by_rank(exchange, 1)
    root = ranks[0]
    match kind:
        case Kind.ALL_REDUCE:
            size = total / (2 * others)
        case Kind.BROADCAST:
            size, root = total / others, min(ranks, key=lambda rank: received[rank])
        case Kind.REDUCE:
            size = total * len(ranks) / (others * (len(ranks) + 1))
            root = max(ranks, key=lambda rank: received[rank] - sent[rank])
        case Kind.GATHER:
            size, root = total * len(ranks) / others, max(ranks, key=lambda r: received[r])
        case Kind.SCATTER:
            size, root = total * len(ranks) / others, max(ranks, key=lambda r: sent[r])
        case _:
            size = total / others
    uneven = kind is Kind.ALL_TO_ALL and len(set(sizes)) > 1
    return WireCollective(
        f"{group.name}.{slot.tag}.{kind}",
        kind,
        group.name,
        slot.tag,
        round(size),
        _element_bytes(sizes),
        ranks,
        ranks.index(root),
        uneven,
        exchange.intervals_ns(kind),
    )


def _message(
    group: WireGroup, ends: tuple[int, int], tag: int, number: int, exchange: _Exchange
) -> WireCollective:
    sizes = [size for _, _, size in exchange.data]
    return WireCollective(
        f"{group.name}.{ends[0]}to{ends[1]}.{tag}.{number}",
        Kind.SEND_RECV,
        group.name,
        None,
        sum(sizes),
        _element_bytes(sizes),
        ends,
        0,
        False,
        exchange.intervals_ns(Kind.SEND_RECV),
    )


def _by_rank(exchange: _Exchange, end: int) -> dict[int, int]:
    """Bytes of data that each rank sent (end 0) or received (1)."""
    found: dict[int, int] = defaultdict(int)
    for message in exchange.data:
        found[message[end]] += message[2]
    return found


def _element_bytes(sizes: Sequence[int]) -> int:
    """The largest element that all messages can be made of."""
    return next(n for n in _ELEMENT_BYTES if all(size % n == 0 for size in sizes))
