"""The messages that Gloo really sends for each collective, in the order of every rank's program.

A schedule is a sequence of steps that all ranks go through together, each doing its own part:
`Post` posts the receives and sends of a set of messages without blocking; `Wait` blocks a rank
until its part of an earlier post is complete. A posted receive sends RECV_READY; the payload leaves
when the send is posted and RECV_READY has come (gloo/transport/tcp/pair.cc, Pair::send, Pair::recv
and handleRemotePendingRecv). Sources: gloo/allreduce.cc, allgather.cc, alltoall.cc, broadcast.cc,
reduce.cc, gather.cc, scatter.cc and barrier.cc as of torch 2.13; torch's ProcessGroupGloo
implements a reduce-scatter as an all-reduce of a clone. Members are positions in the call's
`ranks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from collectives.derangement import derangement
from collectives.kinds import Kind, Shape
from collectives.schedule.operations import Await, CompiledPrograms, Gates, Start
from collectives.schedule.packed_steps import KeptSteps, PackedSteps
from collectives.schedule.schedule import CollectiveError, Post

if TYPE_CHECKING:
    from collectives.schedule.schedule import Ints

MAX_SEGMENT_BYTES = 1 << 20
"""gloo AllreduceOptionsImpl::kMaxSegmentSize."""

_NUMBERS_AT_ONCE = 1 << 16
"""Lengths of so many messages are computed together: of all rounds of a ring over thousands of
ranks they would be gigabytes."""

_KEPT = KeptSteps()

_SKIP_EMPTY = frozenset({Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.REDUCE, Kind.ALL_GATHER})
"""Kinds of which Gloo sends nothing where the array is empty (torch's ProcessGroupGloo, and the
files of Gloo that are named above)."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Every member waits for its receives, its sends or both of post number `post` (from 0)."""

    post: int
    receives: bool = True
    sends: bool = True


Step = Post | Wait


@dataclass(frozen=True, slots=True)
class Segments:
    """How Gloo cuts an array of `total_bytes` for its segmented ring."""

    total_bytes: int
    world: int
    count: int
    size_bytes: int

    @property
    def per_rank(self) -> int:
        return self.count // self.world

    def lengths(self, index: Ints) -> Ints:
        """Bytes of segments `index` (modulo the count): short at the array's end, then zero."""
        offset = (index % self.count) * self.size_bytes
        found: Ints = np.clip(self.total_bytes - offset, 0, self.size_bytes)
        return found


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def all_reduce_segments(total_bytes: int, world: int, element_bytes: int) -> Segments:
    """Segments of gloo::allreduce's ring: at least two per rank, at most 1 MiB each."""
    largest = element_bytes * max(1, MAX_SEGMENT_BYTES // element_bytes)
    count = _round_up(max(-(-total_bytes // largest), 2 * world), world)
    size = _round_up(-(-total_bytes // count), element_bytes)
    return Segments(total_bytes, world, count, size)


def reduce_segments(total_bytes: int, world: int, element_bytes: int) -> Segments:
    """Segments of gloo::reduce's ring, which rounds in another order than all-reduce does."""
    largest = element_bytes * (MAX_SEGMENT_BYTES // element_bytes)
    size = _round_up(min(-(-total_bytes // (2 * world)), largest), element_bytes)
    count = _round_up(max(-(-total_bytes // size), 2 * world), world)
    return Segments(total_bytes, world, count, size)


def sends_nothing(shape: Shape) -> bool:
    """Whether a collective has no message: of one rank, or of an empty array of some kinds."""
    return shape.ranks == 1 or (shape.size_bytes == 0 and shape.kind in _SKIP_EMPTY)


def gloo_steps(shape: Shape, seed: int = 1) -> Iterator[Step]:
    """Steps of a collective; nothing for a group of one or an empty array. `seed` draws
    permutations. Raises CollectiveError for a kind that Gloo has not."""
    if sends_nothing(shape):
        return
    match shape.kind:
        case Kind.ALL_REDUCE | Kind.REDUCE_SCATTER:
            yield from _all_reduce(shape)
        case Kind.ALL_GATHER:
            yield from _all_gather(shape)
        case Kind.ALL_TO_ALL:
            yield from _all_to_all(shape)
        case Kind.BROADCAST:
            yield from _broadcast(shape)
        case Kind.REDUCE:
            yield from _reduce(shape)
        case Kind.GATHER | Kind.SCATTER | Kind.INCAST:
            yield from _rooted(shape)
        case Kind.BARRIER:
            yield from _barrier(shape)
        case Kind.SEND_RECV:
            peer = (shape.root + 1) % shape.ranks if shape.peer is None else shape.peer
            yield Post(np.array([shape.root]), np.array([peer]), np.array([shape.size_bytes]))
            yield Wait(0)
        case Kind.PERMUTATION:
            yield from _permutation(shape, seed)
        case _:
            raise CollectiveError(f"no Gloo schedule for {shape.kind!r}")


def _shard_bytes(shape: Shape) -> int:
    return shape.size_bytes // shape.ranks


def _two_in_flight(rounds: Iterator[Post], first: int) -> Iterator[Step]:
    """Posts with at most two outstanding; `first` numbers the first among all posts."""
    index = first
    for post in rounds:
        if index - first >= 2:
            yield Wait(index - 2)
        yield post
        index += 1
    for last in range(max(first, index - 2), index):
        yield Wait(last)


def _nonzero(source: Ints, destination: Ints, size_bytes: Ints) -> Post:
    keep = size_bytes > 0
    return Post(source[keep], destination[keep], size_bytes[keep])


def _ring_rounds(cut: Segments, rounds: int, shift: int) -> Iterator[Post]:
    """Round i: member r sends segment (r + shift) * per_rank + i to member r - 1."""
    member = np.arange(cut.world, dtype=np.int64)
    destination = (member - 1) % cut.world
    at_once = max(1, _NUMBERS_AT_ONCE // cut.world)
    for first in range(0, rounds, at_once):
        number = np.arange(first, min(first + at_once, rounds), dtype=np.int64)[:, None]
        lengths = cut.lengths((member + shift) * cut.per_rank + number)
        for is_whole, each in zip(np.all(lengths > 0, axis=1), lengths, strict=True):
            if is_whole:
                yield Post(member, destination, each)
            else:
                yield _nonzero(member, destination, each)


def _all_reduce(shape: Shape) -> Iterator[Step]:
    cut = all_reduce_segments(shape.size_bytes, shape.ranks, shape.element_bytes)
    rounds = cut.count - cut.per_rank
    yield from _two_in_flight(_ring_rounds(cut, rounds, shift=1), first=0)
    yield from _two_in_flight(_ring_rounds(cut, rounds, shift=0), first=rounds)


def _all_gather(shape: Shape) -> Iterator[Step]:
    shard = _shard_bytes(shape)
    member = np.arange(shape.ranks, dtype=np.int64)
    halves = (shard // 2, shard - shard // 2)

    def rounds() -> Iterator[Post]:
        for i in range(2 * (shape.ranks - 1)):
            size = np.full(shape.ranks, halves[i % 2], dtype=np.int64)
            yield Post(member, (member + 1) % shape.ranks, size, sends_first=True)

    yield from _two_in_flight(rounds(), first=0)


def _all_to_all(shape: Shape) -> Iterator[Step]:
    member = np.arange(shape.ranks, dtype=np.int64)
    size = np.full(shape.ranks, _shard_bytes(shape), dtype=np.int64)
    for shift in range(1, shape.ranks):
        yield Post(member, (member + shift) % shape.ranks, size, sends_first=True)
    for post in range(shape.ranks - 1):
        yield Wait(post)


def _broadcast(shape: Shape) -> Iterator[Step]:
    """Binomial tree; a member waits for its receive only, and for all of its sends at the end."""
    world, root = shape.ranks, shape.root
    depth = (world - 1).bit_length()
    for level in range(depth):
        virtual = np.arange(1 << level, min(world, 1 << (level + 1)), dtype=np.int64)
        parent = virtual - (1 << level)
        size = np.full(len(virtual), shape.size_bytes, dtype=np.int64)
        yield Post((parent + root) % world, (virtual + root) % world, size)
        yield Wait(level, sends=False)
    for level in range(depth):
        yield Wait(level, receives=False)


def _reduce(shape: Shape) -> Iterator[Step]:
    """Ring reduce-scatter, then every member sends its chunk to the root."""
    cut = reduce_segments(shape.size_bytes, shape.ranks, shape.element_bytes)
    rounds = cut.count - 2
    yield from _two_in_flight(_ring_rounds(cut, rounds, shift=1), first=0)
    member = np.delete(np.arange(shape.ranks, dtype=np.int64), shape.root)
    chunk = cut.per_rank * cut.size_bytes
    sizes = np.clip(shape.size_bytes - member * chunk, 0, chunk)
    yield _nonzero(member, np.full_like(member, shape.root), sizes)
    yield Wait(rounds)


def _rooted(shape: Shape) -> Iterator[Step]:
    member = (shape.root + np.arange(1, shape.ranks, dtype=np.int64)) % shape.ranks
    if shape.kind == Kind.INCAST:
        member = member[: shape.degree]
    root = np.full_like(member, shape.root)
    each = shape.size_bytes if shape.kind == Kind.INCAST else _shard_bytes(shape)
    size = np.full_like(member, each)
    yield Post(root, member, size) if shape.kind == Kind.SCATTER else Post(member, root, size)
    yield Wait(0)


def _barrier(shape: Shape) -> Iterator[Step]:
    """Dissemination (Hensgen, Finkel and Manber 1988): messages of a preamble alone."""
    member = np.arange(shape.ranks, dtype=np.int64)
    empty = np.zeros(shape.ranks, dtype=np.int64)
    for level in range((shape.ranks - 1).bit_length()):
        yield Post(member, (member + (1 << level)) % shape.ranks, empty)
        yield Wait(level)


def _permutation(shape: Shape, seed: int) -> Iterator[Step]:
    member = np.arange(shape.ranks, dtype=np.int64)
    if shape.shift is None:
        target = np.array(derangement(shape.ranks, seed), dtype=np.int64)
    else:
        target = (member + shape.shift) % shape.ranks
    moving = target != member
    size = np.full(shape.ranks, shape.size_bytes, dtype=np.int64)
    yield Post(member[moving], target[moving], size[moving])
    yield Wait(0)


def add_gloo_steps(
    shape: Shape,
    into: CompiledPrograms,
    ends: Sequence[int],
    gates: Gates | None = None,
    seed: int = 1,
) -> None:
    """Add the programs of members of a collective of this shape, one for each end."""
    if into.follows_steps:
        _KEPT.of(shape, seed, gloo_steps).add(into, ends, gates)
    else:
        add_steps(gloo_steps(shape, seed), into, ends, gates)


@lru_cache(maxsize=1024)
def count_of_messages(shape: Shape, seed: int) -> int:
    """The messages of a collective of this shape."""
    return sum(len(step.source) for step in gloo_steps(shape, seed) if isinstance(step, Post))


def add_steps(
    steps: Iterable[Step],
    into: CompiledPrograms,
    ends: Sequence[int],
    gates: Gates | None = None,
) -> None:
    """Add the programs of members, one for each end, that go through the same steps."""
    if into.follows_steps:
        return PackedSteps.of(steps).add(into, ends, gates)
    first = len(into.programs)
    for member, end in enumerate(ends):
        into.program(end, [gates.begin(0, member)] if gates else [])
    posts: list[range] = []
    known = list(steps)
    base = len(into.source)
    _add_messages([step for step in known if isinstance(step, Post)], into, ends, first)
    for step in known:
        if isinstance(step, Post):
            posts.append(range(base, base + len(step.source)))
            base = posts[-1].stop
            _start(into, posts[-1], step.sends_first)
        else:
            _await(into, posts[step.post], step)
    if gates:
        for member in range(len(ends)):
            into.programs[first + member].append(gates.end(0, member, 1))
    return None


def _add_messages(
    posts: Sequence[Post], into: CompiledPrograms, ends: Sequence[int], first: int
) -> None:
    if not posts:
        return
    end_of = np.array(ends, dtype=np.int32)
    source = np.concatenate([post.source for post in posts])
    destination = np.concatenate([post.destination for post in posts])
    size_bytes = np.concatenate([post.size_bytes for post in posts])
    into.source.frombytes(end_of[source].tobytes())
    into.destination.frombytes(end_of[destination].tobytes())
    into.sender.frombytes((source + first).astype(np.int32).tobytes())
    into.receiver.frombytes((destination + first).astype(np.int32).tobytes())
    into.size_bytes.frombytes(size_bytes.astype(np.int64).tobytes())


def _start(into: CompiledPrograms, messages: range, sends_first: bool) -> None:
    parts: dict[int, Start] = {}
    for message in messages:
        sender, receiver = into.sender[message], into.receiver[message]
        parts.setdefault(sender, Start([], [])).sends.append(message)
        parts.setdefault(receiver, Start([], [])).receives.append(message)
    senders = {into.sender[message] for message in messages}
    for program, part in parts.items():
        part.sends_first = sends_first and program in senders
        into.programs[program].append(part)


def _await(into: CompiledPrograms, messages: range, wait: Wait) -> None:
    parts: dict[int, Await] = {}
    for message in messages:
        if wait.sends:
            parts.setdefault(into.sender[message], Await([], [])).sends.append(message)
        if wait.receives:
            parts.setdefault(into.receiver[message], Await([], [])).receives.append(message)
    for program, part in parts.items():
        into.programs[program].append(part)
