"""The knowledge of the messages under each slot of a connection, from preambles and the log."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from analysis.decode.gloo.gap_tiling import Key
from analysis.decode.gloo.stream import MessageStream, StreamMessage
from analysis.decode.gloo.wire_format import Opcode

_ANNOUNCED = (
    Opcode.NOTIFY_SEND_READY,
    Opcode.NOTIFY_RECV_READY,
    Opcode.SEND_UNBOUND_BUFFER,
)
"""The messages of a rendezvous."""


@dataclass(frozen=True)
class Expected:
    """The log's knowledge of one slot and direction: its data messages' sizes, the time in which
    the slot is in use (0, 0: not known), and when the receiver had everything (0: not known)."""

    sizes: tuple[int, ...]
    first_ns: int = 0
    last_ns: int = 0
    received_ns: int = 0


@dataclass
class Exchange:
    """The knowledge of all messages under one slot, data flowing one way."""

    expected: int | None = None
    """How many, where the log tells."""
    seen: Counter[Opcode] = field(default_factory=Counter)
    sizes: Counter[int] = field(default_factory=Counter)
    """Data sizes, with how often each was announced or sent (whichever is more)."""
    sent: Counter[int] = field(default_factory=Counter)
    first_ns: int = 0
    last_ns: int = 0
    received_ns: int | None = None
    """When the receiver had all of the data, where the log tells."""

    def note(self, time_ns: int) -> None:
        fresh = not self.first_ns
        self.first_ns = time_ns if fresh else min(self.first_ns, time_ns)
        self.last_ns = max(self.last_ns, time_ns)

    @property
    def count(self) -> int:
        """Messages of data under this slot: at least as many as any of their traces."""
        seen = max(self.seen.values(), default=0)
        return seen if self.expected is None else max(seen, self.expected)

    def missing(self, opcode: Opcode) -> int:
        return self.count - self.seen[opcode]


def known_exchanges(
    streams: tuple[MessageStream, MessageStream], expected: Mapping[Key, Expected]
) -> dict[Key, Exchange]:
    """The knowledge from captured preambles, and from the log where it does not contradict them."""
    exchanges: dict[Key, Exchange] = defaultdict(Exchange)
    for side, stream in enumerate(streams):
        for message in stream.messages:
            _count(exchanges, side, message, stream)
    _count_sizes(exchanges, streams)
    for key, known in expected.items():
        _expect(exchanges[key], known)
    return exchanges


def key_of(side: int, message: StreamMessage) -> Key:
    assert message.slot is not None
    back = message.opcode is Opcode.NOTIFY_RECV_READY
    return (1 - side if back else side, message.slot)


def _count(
    exchanges: dict[Key, Exchange], side: int, message: StreamMessage, stream: MessageStream
) -> None:
    assert message.opcode is not None
    if message.opcode is Opcode.SEND_BUFFER:
        return  # announced by nobody
    exchange = exchanges[key_of(side, message)]
    exchange.seen[message.opcode] += 1
    exchange.note(stream.direction.time_ns(message.position))


def _count_sizes(
    exchanges: dict[Key, Exchange], streams: tuple[MessageStream, MessageStream]
) -> None:
    """Sizes from the sender's announcements and data; the receiver's only where none is."""
    by_opcode: dict[Opcode, dict[Key, Counter[int]]] = {
        opcode: defaultdict(Counter) for opcode in Opcode
    }
    for side, stream in enumerate(streams):
        for message in stream.messages:
            if message.length is not None and message.opcode in _ANNOUNCED:
                by_opcode[message.opcode][key_of(side, message)][message.length] += 1
    for key, exchange in list(exchanges.items()):
        exchange.sent = by_opcode[Opcode.SEND_UNBOUND_BUFFER][key]
        announced = by_opcode[Opcode.NOTIFY_SEND_READY][key]
        exchange.sizes = exchange.sent | announced
        expected = by_opcode[Opcode.NOTIFY_RECV_READY][key]
        if not exchange.sizes or expected.total() > exchange.sizes.total():
            # A receiver may post a larger buffer than is sent, so its word counts last.
            exchange.sizes = exchange.sizes | expected
        if len(exchange.sizes) == 1:
            # Announcements whose length was cut off are of that size as well.
            exchange.sizes = Counter(dict.fromkeys(exchange.sizes, exchange.count))
    for (side, slot), exchange in list(exchanges.items()):
        # Nothing of a slot was captured in one direction: if data flowed there, then most
        # likely in the sizes of the other.
        if (1 - side, slot) not in exchanges:
            silent = exchanges[(1 - side, slot)]
            silent.sizes = Counter(dict.fromkeys(exchange.sizes, 0))
            silent.first_ns, silent.last_ns = exchange.first_ns, exchange.last_ns


def _expect(exchange: Exchange, known: Expected) -> None:
    """Take the log's word about a slot, unless what was captured contradicts it."""
    sizes = Counter(known.sizes)
    if max(exchange.seen.values(), default=0) > len(known.sizes) or exchange.sent - sizes:
        return
    exchange.expected = len(known.sizes)
    exchange.sizes = sizes
    if known.first_ns:
        exchange.note(known.first_ns)
        exchange.note(known.last_ns)
    exchange.received_ns = known.received_ns or None
