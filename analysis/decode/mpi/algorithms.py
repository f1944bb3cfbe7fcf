"""How many collectives a run of OpenMPI's messages of one kind is, and of what size.

That follows from the algorithms of OpenMPI 4.1's `coll/base` as `coll/tuned` chooses them by itself
(`coll_tuned_decision_fixed.c`): they do not cut messages into segments, so that of most algorithms
a pair of ranks has one message a collective.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.runs.mpi_messages import MpiMessage
from collectives.kinds import Kind

Pair = tuple[int, int]
Lists = Mapping[Pair, Sequence[MpiMessage]]
"""Messages by (source, destination), in order."""


@dataclass(frozen=True, slots=True)
class One:
    """A collective of a run of one kind: messages by pair, and what they say of it. `root` is a
    rank of the job."""

    messages: Lists
    size_bytes: int
    root: int = -1
    uneven: bool = False


class Unclear(Exception):
    """Messages that fit no algorithm, or several."""


def sent_ns(message: MpiMessage) -> int:
    assert message.sent_ns is not None
    return message.sent_ns


def come_ns(message: MpiMessage) -> int:
    assert message.come_ns is not None
    return message.come_ns


def _blocks(members: tuple[int, ...], run: Lists, each: int) -> Iterator[Lists]:
    """A run in parts of so many messages of every pair. Raises Unclear where it is none, or not
    all members are in it."""
    counts = {len(many) for many in run.values()}
    if len(counts) != 1 or {rank for pair in run for rank in pair} != set(members):
        raise Unclear
    (count,) = counts
    if count % each:
        raise Unclear
    for first in range(0, count, each):
        yield {pair: many[first : first + each] for pair, many in run.items()}


def _sizes(block: Lists) -> list[int]:
    return [each.size_bytes for many in block.values() for each in many]


def _is_ring(members: tuple[int, ...], run: Lists) -> bool:
    """Whether every rank sends to one other alone, which is no other's."""
    return len(members) > 2 and len(run) == len(members) == len({b for _, b in run})


def _barriers(members: tuple[int, ...], run: Lists) -> Iterator[One]:
    for block in _blocks(members, run, 1):
        if any(_sizes(block)):
            raise Unclear
        yield One(block, 0)


def _all_reduces(members: tuple[int, ...], run: Lists) -> Iterator[One]:
    """A ring's messages are 2 (n - 1) parts of n; recursive doubling's are whole; Rabenseifner's
    halves of halves there and back, beside those of ranks beyond the last power of two."""
    ranks = len(members)
    if _is_ring(members, run):
        for block in _blocks(members, run, 2 * (ranks - 1)):
            yield One(block, _whole(sum(_sizes(block)), 2 * (ranks - 1)))
        return
    blocks = list(_blocks(members, run, 1))
    power = 1 << (ranks.bit_length() - 1)
    place = 0
    while place < len(blocks):
        block = blocks[place]
        sizes = set(_sizes(block))
        following = blocks[place + 1] if place + 1 < len(blocks) else None
        whole = len(sizes) == 1
        if ranks == 2 and whole:
            (size,) = sizes
            halves = following is not None and set(_sizes(following)) == sizes
            whole = _is_whole_of_two(size)
            if whole == (halves and _is_cut_of_two(2 * size)):
                raise Unclear  # two of one size, or one of twice that
        if whole:
            yield One(block, _sizes(block)[0])
            place += 1
            continue
        if following is None:
            raise Unclear
        both = {pair: [*block[pair], *following[pair]] for pair in block}
        # There and back, half of what a rank has goes with each step; of ranks that step aside,
        # three halves, and the whole that comes back.
        parts = 2 * (power - 1) + 2.5 * (ranks - power)
        yield One(both, round(sum(_sizes(both)) / parts))
        place += 2


def _is_whole_of_two(size_bytes: int) -> bool:
    """Whether two ranks reduce so much by recursive doubling
    (`ompi_coll_tuned_allreduce_intra_dec_fixed`), as they do a single element."""
    return size_bytes in (1, 2, 4) or 8 <= size_bytes < 4096 or 8192 <= size_bytes < 16384


def _is_cut_of_two(size_bytes: int) -> bool:
    """Whether they may by a ring or by Rabenseifner's algorithm, of halves."""
    return size_bytes < 8 or 4096 <= size_bytes < 8192 or size_bytes >= 16384


def _whole(total: int, parts: int) -> int:
    if total % parts:
        raise Unclear
    return total // parts


def _all_gathers(members: tuple[int, ...], run: Lists) -> Iterator[One]:
    """The first message of every rank is its own part."""
    ranks = len(members)
    for block in _blocks(members, run, ranks - 1 if _is_ring(members, run) else 1):
        first: dict[int, MpiMessage] = {}
        received: dict[int, int] = defaultdict(int)
        for many in block.values():
            for each in many:
                if each.source not in first or sent_ns(each) < sent_ns(first[each.source]):
                    first[each.source] = each
                received[each.destination] += each.size_bytes
        part = first[members[0]].size_bytes
        if any(received[rank] != (ranks - 1) * part for rank in members):
            raise Unclear
        yield One(block, ranks * part)


def _all_to_alls(members: tuple[int, ...], run: Lists) -> Iterator[One]:
    """A message to each other, or Bruck's: the message to the next one has every second part."""
    ranks = len(members)
    direct = len(run) == ranks * (ranks - 1)
    for block in _blocks(members, run, 1):
        sizes = set(_sizes(block))
        if direct:
            received: dict[int, int] = defaultdict(int)
            for (_, rank), many in block.items():
                received[rank] += sum(each.size_bytes for each in many)
            size = max(received.values()) * ranks // (ranks - 1)
            yield One(block, size, uneven=len(sizes) > 1)
        else:
            near = {block.get((a, b), [None])[0] for a, b in _neighbours(members)}
            if len(near - {None}) != ranks:
                raise Unclear
            parts = {each.size_bytes for each in near if each is not None}
            if len(parts) > 1:
                raise Unclear
            yield One(block, _whole(parts.pop() * ranks, ranks // 2))


def _neighbours(members: tuple[int, ...]) -> Iterator[Pair]:
    return zip(members, (*members[1:], members[0]), strict=True)


def _broadcasts(members: tuple[int, ...], run: Lists) -> Iterator[One]:
    """Over a tree, from parents to children."""
    (root,) = _only(set(members) - {child for _, child in run})
    if len(run) != len(members) - 1:
        raise Unclear
    for block in _blocks(members, run, 1):
        (size,) = _only(set(_sizes(block)))
        yield One(block, size, root)


def _reduces(members: tuple[int, ...], run: Lists) -> Iterator[One]:
    """Over a tree, from children to parents."""
    for one in _broadcasts(members, _turned(run)):
        yield replace(one, messages=_turned(one.messages))


def _turned(run: Lists) -> Lists:
    return {(b, a): many for (a, b), many in run.items()}


def _only(found: set[int]) -> set[int]:
    if len(found) != 1:
        raise Unclear
    return found


def _gathers(members: tuple[int, ...], run: Lists) -> Iterator[One]:
    """Over a tree, whose messages have all parts from below. Where the root asks for them one by
    one, by empty messages, a part comes in two."""
    asking = {a for (a, _), many in run.items() if not any(each.size_bytes for each in many)}
    if asking:
        (root,) = _only(asking)
        asked = {pair: many for pair, many in run.items() if pair[0] == root}
        coming = {pair: many for pair, many in run.items() if pair[0] != root}
        parts = zip(_blocks(members, asked, 1), _blocks(members, coming, 2), strict=True)
        blocks: list[Lists] = [{**a, **b} for a, b in parts]
    else:
        (root,) = _only(set(members) - {child for child, _ in run})
        if len(run) != len(members) - 1:
            raise Unclear
        blocks = list(_blocks(members, run, 1))
    for block in blocks:
        at_root = sum(
            each.size_bytes for (_, b), many in block.items() if b == root for each in many
        )
        yield One(block, _whole(at_root * len(members), len(members) - 1), root)


def _scatters(members: tuple[int, ...], run: Lists) -> Iterator[One]:
    for one in _gathers(members, _turned(run)):
        yield replace(one, messages=_turned(one.messages))


def _scattered_sums(members: tuple[int, ...], run: Lists) -> Iterator[One]:
    """A ring, or halves of halves among a power of two of ranks: each rank sends all but its own
    part."""
    ranks = len(members)
    ring = _is_ring(members, run)
    if not ring and ranks & (ranks - 1):
        raise Unclear
    for block in _blocks(members, run, ranks - 1 if ring else 1):
        yield One(block, _whole(sum(_sizes(block)), ranks - 1))


RULES: dict[str, tuple[Kind, Callable[[tuple[int, ...], Lists], Iterator[One]]]] = {
    str(Kind.BARRIER): (Kind.BARRIER, _barriers),
    str(Kind.ALL_REDUCE): (Kind.ALL_REDUCE, _all_reduces),
    str(Kind.ALL_GATHER): (Kind.ALL_GATHER, _all_gathers),
    str(Kind.ALL_TO_ALL): (Kind.ALL_TO_ALL, _all_to_alls),
    f"{Kind.ALL_TO_ALL}v": (Kind.ALL_TO_ALL, _all_to_alls),
    str(Kind.BROADCAST): (Kind.BROADCAST, _broadcasts),
    str(Kind.REDUCE): (Kind.REDUCE, _reduces),
    str(Kind.GATHER): (Kind.GATHER, _gathers),
    str(Kind.SCATTER): (Kind.SCATTER, _scatters),
    str(Kind.REDUCE_SCATTER): (Kind.REDUCE_SCATTER, _scattered_sums),
    f"{Kind.REDUCE_SCATTER}_block": (Kind.REDUCE_SCATTER, _scattered_sums),
}
