"""The collectives of a group from what its connections carried: Gloo's slots name the kind, and
torch's the number; the messages' sizes, ends and order tell the rest (docs/gloo-wire-format.md)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from analysis.decode.gloo.connection_groups import Share
from analysis.decode.gloo.groups_on_wire import WireGroup
from analysis.decode.gloo.repeated import ELEMENT_BYTES, cut_by_shape, element_bytes_of
from analysis.decode.gloo.rounds import exchanges_of
from analysis.decode.gloo.wire_format import Prefix, Slot
from analysis.decode.gloo.wire_messages import WireMessage, messages_of
from collectives.call import CollectiveCall
from collectives.kinds import Kind
from collectives.schedule import halving_doubling
from collectives.schedule.gloo import PREAMBLE_BYTES

_KINDS: Final = {
    Prefix.ALLREDUCE: Kind.ALL_REDUCE,
    Prefix.ALLGATHER: Kind.ALL_GATHER,
    Prefix.ALLTOALL: Kind.ALL_TO_ALL,
    Prefix.BROADCAST: Kind.BROADCAST,
    Prefix.REDUCE: Kind.REDUCE,
    Prefix.GATHER: Kind.GATHER,
    Prefix.SCATTER: Kind.SCATTER,
    Prefix.BARRIER: Kind.BARRIER,
}

_NOTHING: Final[Mapping[int, int]] = {}


@dataclass(frozen=True)
class WireCollective:
    """A collective as the wire tells it. `root` is a position in `ranks`. Each rank has two times,
    by the captures' clock: when its first message left its host, and when the last message that it
    sent had left or that it received had come. `exchanged` has the messages of an exchange by
    positions; `shares` what it has of each slot, `stream_bytes` how long its messages are in all,
    with those that announce them. The number of a message's tag and order is in `id`."""

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
    algorithm: str | None = None
    exchanged: tuple[tuple[int, int, int], ...] = ()
    shares: tuple[Share, ...] = ()
    stream_bytes: int = 0


def collectives_on_wire(
    group: WireGroup, captured: Mapping[int, frozenset[int]]
) -> Iterator[WireCollective]:
    """The collectives of the group, in order; `captured` has the capture files of each rank's host.
    Left out is what has a message that could not be read, or of which a rank's part was not
    captured."""
    messages, unread = messages_of(group, captured)
    numbered = any(Slot.decode(m.slot).prefix and Slot.decode(m.slot).tag for m in messages)
    slots: dict[tuple[Prefix, int, bool], list[WireMessage]] = defaultdict(list)
    for each in messages:
        slot = Slot.decode(each.slot)
        bound = each.bound and slot.prefix == Prefix.USER
        tag = slot.user_tag // halving_doubling.slots_of(len(group.ranks)) if bound else slot.tag
        slots[Prefix(slot.prefix), 0 if slot.prefix == Prefix.USER and not bound else tag, bound
              ].append(each)  # fmt: skip
    found: list[WireCollective] = []
    for (prefix, tag, bound), own in slots.items():
        if bound:
            found += _bound(group, own, unread)
        elif prefix is Prefix.USER:
            found += _singles(group, own)
        elif prefix in _KINDS:
            found += _counted(group, _KINDS[prefix], tag, own, numbered)
        else:
            found += _exchanges(group, own)
    yield from _named(found)


def _named(found: Sequence[WireCollective]) -> Iterator[WireCollective]:
    """With ids of their own: what has one already keeps it, others are numbered in order of time,
    by group and kind."""
    count: dict[tuple[str, Kind], int] = defaultdict(int)
    ordered = sorted(found, key=lambda one: (min(one.intervals_ns.values()), one.id))
    for each in ordered:
        if each.id:
            yield each
            continue
        key = each.group, each.kind
        yield replace(each, id=f"{each.group}.{count[key]}.{each.kind}")
        count[key] += 1


def _counted(
    group: WireGroup, kind: Kind, tag: int, messages: Sequence[WireMessage], numbered: bool
) -> Iterator[WireCollective]:
    """The collectives with one tag: one where tags are numbers, else as many as the messages of one
    kind are."""
    whole = [each for each in messages if each.is_whole]
    if not numbered and len(whole) == len(messages):
        cuts = cut_by_shape(kind, group.ranks, whole)
        if cuts is None:
            yield from _exchanges(group, whole)
            return
        if len(cuts) > 1:
            done_ns: dict[int, int] = {}
            for call, own in cuts:
                yield _of_call(group, call, own, done_ns)
                for each in own:
                    done_ns[each.destination] = max(
                        done_ns.get(each.destination, 0), each.come_ns or 0
                    )
            return
    found = _whole(group, kind, tag, messages)
    if found is not None:
        yield found


def _of_call(
    group: WireGroup,
    call: CollectiveCall,
    messages: Sequence[WireMessage],
    done_ns: Mapping[int, int],
) -> WireCollective:
    kind = Kind(call.kind)
    sizes = [each.size_bytes or 0 for each in messages]
    return WireCollective(
        "",
        kind,
        group.name,
        None,
        call.size_bytes,
        element_bytes_of(sizes),
        group.ranks,
        call.root,
        kind is Kind.ALL_TO_ALL and len(set(sizes)) > 1,
        _intervals_ns(messages, kind, done_ns),
        shares=_shares(messages),
        stream_bytes=_stream_bytes(messages),
    )


def _whole(
    group: WireGroup, kind: Kind, tag: int, messages: Sequence[WireMessage]
) -> WireCollective | None:
    """One collective that all these messages are; None where a rank has none of them."""
    ranks = group.ranks
    intervals_ns = _intervals_ns(messages, kind)
    if set(intervals_ns) != set(ranks):
        return None
    sizes = [each.size_bytes for each in messages if each.size_bytes is not None]
    total, others = sum(sizes), len(ranks) - 1
    sent, received = _by_rank(messages)
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
        f"{group.name}.{tag}.{kind}",
        kind,
        group.name,
        tag,
        round(size),
        element_bytes_of(sizes),
        ranks,
        ranks.index(root),
        uneven,
        intervals_ns,
        shares=_shares(messages),
        stream_bytes=_stream_bytes(messages),
    )


def _singles(group: WireGroup, messages: Sequence[WireMessage]) -> Iterator[WireCollective]:
    """Messages of send and recv, each by itself."""
    for each in messages:
        intervals_ns = _intervals_ns([each], Kind.SEND_RECV)
        ends = each.source, each.destination
        if each.size_bytes is None or set(ends) != set(intervals_ns):
            continue
        tag = Slot.decode(each.slot).user_tag
        yield WireCollective(
            f"{group.name}.{ends[0]}to{ends[1]}.{tag}.{each.number}",
            Kind.SEND_RECV,
            group.name,
            None,
            each.size_bytes,
            element_bytes_of([each.size_bytes]),
            ends,
            0,
            False,
            intervals_ns,
            shares=_shares([each]),
            stream_bytes=_stream_bytes([each]),
        )


def _bound(
    group: WireGroup, messages: Sequence[WireMessage], unread: Counter[tuple[int, int]]
) -> Iterator[WireCollective]:
    """A call of Gloo's older algorithms: XLA's reduce-scatter, or messages that are none. Those
    that it lacks lie in the bytes that could not be read (`unread`), as nothing announces them."""
    whole = [each for each in messages if each.is_whole]
    found = _halving(group.ranks, whole, unread) if whole else None
    if found is None:
        yield from _exchanges(group, whole)
        return
    yield WireCollective(
        "",
        Kind.REDUCE_SCATTER,
        group.name,
        None,
        found[0],
        found[1],
        group.ranks,
        0,
        False,
        _intervals_ns(whole, Kind.REDUCE_SCATTER),
        algorithm=halving_doubling.ALGORITHM,
        shares=_shares(whole),
        stream_bytes=_stream_bytes(whole),
    )


def _halving(
    ranks: tuple[int, ...], messages: Sequence[WireMessage], unread: Counter[tuple[int, int]]
) -> tuple[int, int] | None:
    """Size and element's size of the reduce-scatter that messages are, by the longest one, which is
    half of it; None where they are none. The messages that it takes are subtracted from
    `unread`."""
    seen: Counter[tuple[int, int, int]] = Counter(
        (each.source, each.destination, each.size_bytes or 0) for each in messages
    )
    longest = 2 * max(each.size_bytes or 0 for each in messages)
    for element in ELEMENT_BYTES:
        step = element * len(ranks)
        least = longest - 2 * element * len(ranks)
        for size in range(longest // step * step, max(least, 0), -step):
            told = halving_doubling.reduce_scatter(size, len(ranks), element)
            expected = Counter(
                (ranks[a], ranks[b], size_bytes) for a, b, size_bytes in told.messages
            )
            missing: Counter[tuple[int, int]] = Counter()
            for (source, destination, size_bytes), count in (expected - seen).items():
                missing[source, destination] += count * (PREAMBLE_BYTES + size_bytes)
            if not seen - expected and missing <= unread:
                unread -= missing
                return size, element
    return None


def _exchanges(group: WireGroup, messages: Sequence[WireMessage]) -> Iterator[WireCollective]:
    """Messages of no known kind, and XLA's permutations."""
    for own in exchanges_of([each for each in messages if each.is_whole]):
        ranks = tuple(r for r in group.ranks if any(r in (m.source, m.destination) for m in own))
        sizes = [each.size_bytes or 0 for each in own]
        ends = [(ranks.index(each.source), ranks.index(each.destination)) for each in own]
        yield WireCollective(
            "",
            Kind.EXCHANGE,
            group.name,
            None,
            max(sizes),
            element_bytes_of(sizes),
            ranks,
            0,
            False,
            _intervals_ns(own, Kind.EXCHANGE),
            exchanged=tuple((*pair, size) for pair, size in zip(ends, sizes, strict=True)),
            shares=_shares(own),
            stream_bytes=_stream_bytes(own),
        )


def _intervals_ns(
    messages: Sequence[WireMessage], kind: Kind, done_ns: Mapping[int, int] = _NOTHING
) -> dict[int, tuple[int, int]]:
    """Ranks that have sent something, or received something that nobody asked for.

    Where ranks send nothing that they had to receive first, or all end together, one has done its
    part when all that is for it has come: what it sends has left the rank before, if not its host.
    No rank begins before it had done (`done_ns`) what went before: an announcement that was not
    captured may be counted to the wrong one. It began then where its first announcement left in one
    segment with data that waited for the port.
    """
    first: dict[int, int] = {}
    leads_ns: dict[int, int] = {}
    sent: dict[int, int] = {}
    come: dict[int, int] = {}
    for each in messages:
        for rank in (each.source, each.destination):
            posted_ns = each.posted_ns(rank)
            if posted_ns is not None and posted_ns >= done_ns.get(rank, 0):
                first[rank] = min(first.get(rank, posted_ns), posted_ns)
                if not each.left_behind(rank):
                    leads_ns[rank] = min(leads_ns.get(rank, posted_ns), posted_ns)
                sent[rank] = max(sent.get(rank, posted_ns), posted_ns)
        if each.left_ns is not None:
            sent[each.source] = max(sent.get(each.source, 0), each.left_ns)
        if each.come_ns is not None:
            come[each.destination] = max(come.get(each.destination, 0), each.come_ns)
    if any(each.bound for each in messages):
        # For all that is known, a rank that has sent nothing was there before the first message.
        begun_ns = min(first.values(), default=0)
        first |= {rank: begun_ns for rank in come if rank not in first}
    found = {}
    for rank, first_ns in first.items():
        if first_ns < leads_ns.get(rank, first_ns + 1):
            first_ns = min(first_ns, done_ns.get(rank, first_ns))
        end_ns = come.get(rank)
        if end_ns is None or not (kind.traits.ends_together or kind is Kind.EXCHANGE):
            end_ns = max(end_ns or 0, sent.get(rank, first_ns))
        found[rank] = first_ns, end_ns
    return found


def _shares(messages: Sequence[WireMessage]) -> tuple[Share, ...]:
    numbers: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for each in messages:
        numbers[each.source, each.destination, each.slot].append(each.number)
    return tuple((*key, min(many), len(many)) for key, many in numbers.items())


def _stream_bytes(messages: Sequence[WireMessage]) -> int:
    """With the preambles of announcements, which bound buffers have not."""
    return sum(
        (each.size_bytes or 0) + PREAMBLE_BYTES * (1 if each.bound else 3) for each in messages
    )


def _by_rank(messages: Sequence[WireMessage]) -> tuple[dict[int, int], dict[int, int]]:
    """Bytes of data that each rank sent, and received."""
    sent: dict[int, int] = defaultdict(int)
    received: dict[int, int] = defaultdict(int)
    for each in messages:
        sent[each.source] += each.size_bytes or 0
        received[each.destination] += each.size_bytes or 0
    return sent, received
