"""Messages whose preambles were not captured, found by the rules of the rendezvous.

For every n bytes sent from A to B under one slot there are exactly three messages
(gloo/transport/tcp/pair.cc): NOTIFY_SEND_READY (A to B, 48 bytes), NOTIFY_RECV_READY (B to
A, 48 bytes) and the data itself (A to B, 48 + n bytes). One that was captured therefore
proves the other two, and the gaps left by `analysis.decode.gloo.stream` have to be filled by
exactly those. Messages that are filled in are marked `inferred`; a gap that cannot be filled stays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from analysis.decode.gloo.exchanges import Exchange, Expected, key_of, known_exchanges
from analysis.decode.gloo.gap_partition import NEVER_NS, Filling, Hidden, OpenGap, partition
from analysis.decode.gloo.gap_tiling import Key, tile
from analysis.decode.gloo.stream import Gap, MessageStream, StreamMessage
from analysis.decode.gloo.wire_format import Opcode
from collectives.schedule.gloo import PREAMBLE_BYTES

_TRIPLE: Final = (
    Opcode.NOTIFY_SEND_READY,
    Opcode.NOTIFY_RECV_READY,
    Opcode.SEND_UNBOUND_BUFFER,
)
_MOST_OVERLAPPING: Final = 16  # slots in use at one time between two ranks of one group


@dataclass(frozen=True)
class Resolution:
    """Outcome for one connection.

    `assumed_bytes` lie in messages whose slot no captured preamble proves: they were given
    to the slot in use around them. `unresolved_bytes` lie in gaps that could not be filled.
    """

    inferred_messages: int
    assumed_bytes: int
    unresolved_bytes: int


def resolve(
    forward: MessageStream,
    backward: MessageStream,
    expected: Mapping[Key, Expected] | None = None,
) -> Resolution:
    """Fill the gaps of both directions in place and number the steps of all messages.

    `expected` is what a log knows to be on this connection. It settles what captured
    preambles leave open; a slot for which it contradicts them is resolved without it.
    """
    streams = (forward, backward)
    exchanges = known_exchanges(streams, expected or {})
    assumed = 0
    for side, stream in enumerate(streams):
        assumed += _fill_gaps(side, stream, exchanges)
    for side, stream in enumerate(streams):
        assumed += _assign_slots(side, stream, exchanges)
    for stream in streams:
        _number_steps(stream.messages)
    inferred = [m for stream in streams for m in stream.messages if m.inferred]
    found = _count_all(streams)
    logged = {key: len(one.sizes) for key, one in (expected or {}).items()}
    if all(_agrees(counts, logged.get(key, -1)) for key, counts in found.items()):
        assumed = 0
    elif not all(_agrees(counts, logged.get(key)) for key, counts in found.items()):
        # Something was given to a wrong slot, or the capture ends in the middle: what was
        # inferred is no more than likely.
        assumed = sum(message.nbytes for message in inferred)
    return Resolution(
        inferred_messages=len(inferred),
        assumed_bytes=assumed,
        unresolved_bytes=sum(g.end - g.position for stream in streams for g in stream.gaps),
    )


def _count_all(
    streams: tuple[MessageStream, MessageStream],
) -> dict[Key, Counter[Opcode]]:
    """Messages of each slot and direction of its data."""
    counts: dict[Key, Counter[Opcode]] = defaultdict(Counter)
    for side, stream in enumerate(streams):
        for message in stream.messages:
            if message.slot is not None and message.opcode in _TRIPLE:
                counts[key_of(side, message)][message.opcode] += 1
    return counts


def _agrees(counts: Counter[Opcode], expected: int | None) -> bool:
    """Whether all three messages of a slot are there equally often, as often as expected."""
    often = {counts[opcode] for opcode in _TRIPLE}
    return len(often) == 1 and expected in (None, *often)


def _overlapping(exchanges: Mapping[Key, Exchange]) -> int:
    """How many slots can be in use at one time: a program has one for each message, and all of them
    from its start on as far as the log tells."""
    alike = Counter(exchange.first_ns for exchange in exchanges.values())
    return _MOST_OVERLAPPING + max(alike.values(), default=0)


def _fill_gaps(side: int, stream: MessageStream, exchanges: dict[Key, Exchange]) -> int:
    """Cut every gap into messages of known sizes, preferring data that is known to be due.

    Returns the bytes of exchanges without a captured trace that several slots could own.
    """
    parts: list[StreamMessage | Gap] = []
    assumed = 0
    starts = sorted((e.first_ns, key) for key, e in exchanges.items() if key[0] == side)
    overlapping = _overlapping(exchanges)
    logged = _logged_fillings(side, stream, exchanges)
    for number, part in enumerate(stream.parts):
        if isinstance(part, StreamMessage):
            parts.append(part)
            continue
        if number in logged:
            small, messages = logged[number]
            owned = [(one.key, one.size_bytes) for one in messages]
            for key, size in owned:
                exchanges[key].seen[Opcode.SEND_UNBOUND_BUFFER] += 1
                exchanges[key].sent[size] += 1
            owned.sort(key=lambda one: exchanges[one[0]].received_ns or NEVER_NS)
            parts.extend(_place_messages(part.position, small, owned))
            continue
        if not stream.direction.is_whole(part.position, part.end):
            # Packets are missing, and with them any bound on what was in the gap.
            parts.append(part)
            continue
        near = _candidate_slots(side, stream, number, exchanges, starts, overlapping)
        due = {
            (key, size): exchanges[key].sizes[size] - exchanges[key].sent[size]
            for key in near
            for size in exchanges[key].sizes
            if size > 0
        }
        tiling = tile(part.end - part.position, due)
        if tiling is None:
            parts.append(part)
            continue
        small, data = tiling
        owned = []
        enclosing = _enclosing(side, stream.parts, number)
        last_ns = stream.direction.time_ns(part.end - 1)
        for size in data:
            key, sure = _choose_slot(size, near, exchanges, enclosing, last_ns)
            exchanges[key].seen[Opcode.SEND_UNBOUND_BUFFER] += 1
            exchanges[key].sent[size] += 1
            owned.append((key, size))
            assumed += 0 if sure else 3 * PREAMBLE_BYTES + size
        # The message that was received first was sent first: the stream keeps the order.
        owned.sort(key=lambda one: exchanges[one[0]].received_ns or NEVER_NS)
        parts.extend(_place_messages(part.position, small, owned))
    stream.parts[:] = parts
    return assumed


def _logged_fillings(
    side: int, stream: MessageStream, exchanges: Mapping[Key, Exchange]
) -> dict[int, Filling]:
    """The contents of each gap, by its place among the parts, where the log tells all messages of
    the connection and no packet is missing; else nothing."""
    gaps = {
        number: OpenGap(
            part.end - part.position,
            stream.direction.time_ns(part.position),
            stream.direction.time_ns(part.end - 1),
        )
        for number, part in enumerate(stream.parts)
        if isinstance(part, Gap)
    }
    whole = all(
        stream.direction.is_whole(part.position, part.end)
        for part in stream.parts
        if isinstance(part, Gap)
    )
    used = [e for e in exchanges.values() if e.seen.total() or e.sizes.total()]
    if not gaps or not whole or any(e.expected is None for e in used):
        return {}
    hidden: list[Hidden] = []
    notifications = 0
    for key, one in exchanges.items():
        if key[0] != side:
            notifications += one.missing(Opcode.NOTIFY_RECV_READY)
            continue
        notifications += one.missing(Opcode.NOTIFY_SEND_READY)
        for size, count in (one.sizes - one.sent).items():
            if size:
                hidden += [Hidden(key, size, one.first_ns, one.last_ns)] * count
            else:
                notifications += count
    found = partition(list(gaps.values()), hidden, notifications)
    return {} if found is None else dict(zip(gaps, found, strict=True))


def _choose_slot(
    size: int,
    near: list[Key],
    exchanges: dict[Key, Exchange],
    enclosing: Key | None,
    last_ns: int,
) -> tuple[Key, bool]:
    """The slot of a data message in a gap, and whether there is no doubt about it.

    Data that is due goes first, and data amid messages of a slot is that slot's; but none of
    a slot that came into use only after `last_ns`, when the gap ended. Otherwise the slot
    that is furthest behind the other direction takes it (two ranks that both send do so in
    equal parts), then that with the fewest messages.
    """
    owners = [key for key in near if size in exchanges[key].sizes]
    for key in owners:
        exchange = exchanges[key]
        if exchange.first_ns <= last_ns and exchange.sizes[size] > exchange.sent[size]:
            return key, True
    if owners == [enclosing]:
        return owners[0], True

    def urgency(key: Key) -> tuple[bool, int, int]:
        back = exchanges.get((1 - key[0], key[1]))
        behind = back.count - exchanges[key].count if back is not None and back.count else 0
        return exchanges[key].first_ns > last_ns, -behind, exchanges[key].sent[size]

    return min(owners, key=urgency), False


def _candidate_slots(
    side: int,
    stream: MessageStream,
    number: int,
    exchanges: dict[Key, Exchange],
    starts: list[tuple[int, Key]],
    overlapping: int,
) -> list[Key]:
    """Slots with data in this direction that are in use around part `number`.

    Those of the neighbouring messages come first, then those whose messages in either
    direction lie around the same time, then those with data due. `starts` has when each slot
    was first used, ascending.
    """
    part = stream.parts[number]
    begin = stream.direction.time_ns(part.position)
    end = stream.direction.time_ns(part.end)
    near: dict[Key, None] = dict.fromkeys(_neighbours(side, stream.parts, number))
    recent = [key for _, key in starts[: bisect_right(starts, (end, (side + 1, 0)))][-overlapping:]]
    near |= dict.fromkeys(key for key in recent if exchanges[key].last_ns >= begin)
    near |= dict.fromkeys(
        key for key in recent if exchanges[key].missing(Opcode.SEND_UNBOUND_BUFFER)
    )
    return [key for key in near if key in exchanges]


def _neighbours(side: int, parts: list[StreamMessage | Gap], number: int) -> list[Key]:
    """Slots of the messages next to part `number`, before it and behind it."""
    found = []
    for step in (-1, 1):
        at = number + step
        while 0 <= at < len(parts):
            neighbour = parts[at]
            if isinstance(neighbour, StreamMessage) and neighbour.slot is not None:
                found.append((side, neighbour.slot))
                break
            at += step
    return found


def _enclosing(side: int, parts: list[StreamMessage | Gap], number: int) -> Key | None:
    """The slot that a gap lies within, where the messages on either side of it have one."""
    around = _neighbours(side, parts, number)
    return around[0] if len(around) == 2 and around[0] == around[1] else None


def _place_messages(
    position: int, small: int, messages: list[tuple[Key, int]]
) -> Iterator[StreamMessage]:
    """The messages of a gap in order: each data message behind its share of notifications.

    A message is announced before it is sent; where between them, no capture tells.
    """
    shares = max(len(messages), 1)
    for number in range(shares):
        for _ in range(small * (number + 1) // shares - small * number // shares):
            yield StreamMessage(position, PREAMBLE_BYTES, inferred=True)
            position += PREAMBLE_BYTES
        if number < len(messages):
            (_, slot), size = messages[number]
            yield StreamMessage(
                position,
                PREAMBLE_BYTES + size,
                Opcode.SEND_UNBOUND_BUFFER,
                slot,
                size,
                inferred=True,
            )
            position += PREAMBLE_BYTES + size


@dataclass
class _MissingNotifications:
    """Notifications that must be in the gaps of one direction: `count` alike."""

    first_ns: int
    last_ns: int
    slot: int
    opcode: Opcode
    count: int

    def give(self, message: StreamMessage) -> None:
        message.slot, message.opcode = self.slot, self.opcode
        self.count -= 1


def _assign_slots(side: int, stream: MessageStream, exchanges: dict[Key, Exchange]) -> int:
    """Give every 48-byte message of a gap the slot and opcode that are missing there.

    Returns the bytes that no missing message explains; they take the slot next to them.
    """
    missing = []
    for (data_side, slot), exchange in exchanges.items():
        mine = data_side == side
        opcodes = [Opcode.NOTIFY_SEND_READY] if mine else [Opcode.NOTIFY_RECV_READY]
        if mine and set(exchange.sizes) <= {0}:
            opcodes.append(Opcode.SEND_UNBOUND_BUFFER)
        missing += [
            _MissingNotifications(
                exchange.first_ns, exchange.last_ns, slot, opcode, exchange.missing(opcode)
            )
            for opcode in opcodes
            if exchange.missing(opcode)
        ]
    missing.sort(key=lambda one: (one.first_ns, one.slot, one.opcode))
    starts = [one.first_ns for one in missing]
    overlapping = _overlapping(exchanges)
    late = []
    announced: Counter[int] = Counter()
    sent: Counter[int] = Counter()
    for number, part in enumerate(stream.parts):
        if isinstance(part, Gap):
            continue
        if part.slot is not None:
            announced[part.slot] += part.opcode is Opcode.NOTIFY_SEND_READY
            sent[part.slot] += part.opcode is Opcode.SEND_UNBOUND_BUFFER
            continue
        time_ns = stream.direction.time_ns(part.position)
        last = bisect_right(starts, time_ns)
        timely = [
            one
            for one in missing[max(0, last - 2 * overlapping) : last]
            if one.count and one.last_ns >= time_ns
        ]
        # The one whose slot ends first: if any order fits into all slots' times, this one does. An
        # announcement goes first within a slot where the data that follows lacks one.
        chosen = min(
            timely,
            key=lambda one: (
                one.last_ns,
                (one.opcode is Opcode.NOTIFY_SEND_READY) == (announced[one.slot] > sent[one.slot]),
            ),
            default=None,
        )
        if chosen is None:
            late.append((number, part))
        else:
            chosen.give(part)
            announced[chosen.slot] += chosen.opcode is Opcode.NOTIFY_SEND_READY
    assumed = 0
    left = (one for one in missing for _ in range(one.count))
    for number, message in late:
        chosen = next(left, None)
        if chosen is not None:
            chosen.give(message)
            continue
        neighbour = _neighbour(stream.parts, number)
        message.slot = None if neighbour is None else neighbour.slot
        message.opcode = Opcode.NOTIFY_SEND_READY
        assumed += message.nbytes
    return assumed


def _neighbour(parts: list[StreamMessage | Gap], number: int) -> StreamMessage | None:
    for distance in range(1, len(parts)):
        for at in (number - distance, number + distance):
            if 0 <= at < len(parts):
                part = parts[at]
                if isinstance(part, StreamMessage) and part.slot is not None:
                    return part
    return None


def _number_steps(messages: Iterable[StreamMessage]) -> None:
    """Number the messages of each opcode and slot from 0, in the order they were written."""
    steps: Counter[tuple[Opcode | None, int | None]] = Counter()
    for message in messages:
        kind = (message.opcode, message.slot)
        message.step = steps[kind]
        steps[kind] += 1
