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

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collectives.call import CollectiveCall, CollectiveError
from collectives.derangement import derangement
from collectives.kinds import Kind

Ints = npt.NDArray[np.int64]

MAX_SEGMENT_BYTES = 1 << 20
"""gloo AllreduceOptionsImpl::kMaxSegmentSize."""


@dataclass(frozen=True)
class Post:
    """Messages posted without blocking: `source[i]` sends `size_bytes[i]` to `destination[i]`.

    With `sends_first` a member posts its send before its receive, so that the payload of a send
    that has its RECV_READY already goes into the port's queue before the member's own RECV_READY.
    """

    source: Ints
    destination: Ints
    size_bytes: Ints
    sends_first: bool = False


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


def gloo_schedule(call: CollectiveCall, seed: int = 1) -> Iterator[Step]:
    """Steps of `call`; nothing for a group of one or an empty array. `seed` draws permutations."""
    if call.plan is not None:
        name = call.plan.chunks[0].program.algorithm
        raise CollectiveError(f"{call.kind} runs as a program ({name}), not as Gloo's own")
    if call.exchange is not None:
        raise CollectiveError(f"{call.kind} runs as it was seen to, not as Gloo's own")
    if call.world == 1 or (call.size_bytes == 0 and call.kind != Kind.BARRIER):
        return
    match call.kind:
        case Kind.ALL_REDUCE | Kind.REDUCE_SCATTER:
            yield from _all_reduce(call)
        case Kind.ALL_GATHER:
            yield from _all_gather(call)
        case Kind.ALL_TO_ALL:
            yield from _all_to_all(call)
        case Kind.BROADCAST:
            yield from _broadcast(call)
        case Kind.REDUCE:
            yield from _reduce(call)
        case Kind.GATHER | Kind.SCATTER | Kind.INCAST:
            yield from _rooted(call)
        case Kind.BARRIER:
            yield from _barrier(call)
        case Kind.SEND_RECV:
            peer = (call.root + 1) % call.world if call.peer is None else call.peer
            yield Post(np.array([call.root]), np.array([peer]), np.array([call.size_bytes]))
            yield Wait(0)
        case Kind.PERMUTATION:
            yield from _permutation(call, seed)
        case _:
            raise CollectiveError(f"no Gloo schedule for {call.kind!r}")


def _shard_bytes(call: CollectiveCall) -> int:
    return call.size_bytes // call.world


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
    for i in range(rounds):
        lengths = cut.lengths((member + shift) * cut.per_rank + i)
        yield _nonzero(member, (member - 1) % cut.world, lengths)


def _all_reduce(call: CollectiveCall) -> Iterator[Step]:
    cut = all_reduce_segments(call.size_bytes, call.world, call.element_bytes)
    rounds = cut.count - cut.per_rank
    yield from _two_in_flight(_ring_rounds(cut, rounds, shift=1), first=0)
    yield from _two_in_flight(_ring_rounds(cut, rounds, shift=0), first=rounds)


def _all_gather(call: CollectiveCall) -> Iterator[Step]:
    shard = _shard_bytes(call)
    member = np.arange(call.world, dtype=np.int64)
    halves = (shard // 2, shard - shard // 2)

    def rounds() -> Iterator[Post]:
        for i in range(2 * (call.world - 1)):
            size = np.full(call.world, halves[i % 2], dtype=np.int64)
            yield Post(member, (member + 1) % call.world, size, sends_first=True)

    yield from _two_in_flight(rounds(), first=0)


def _all_to_all(call: CollectiveCall) -> Iterator[Step]:
    member = np.arange(call.world, dtype=np.int64)
    size = np.full(call.world, _shard_bytes(call), dtype=np.int64)
    for shift in range(1, call.world):
        yield Post(member, (member + shift) % call.world, size, sends_first=True)
    for post in range(call.world - 1):
        yield Wait(post)


def _broadcast(call: CollectiveCall) -> Iterator[Step]:
    """Binomial tree; a member waits for its receive only, and for all of its sends at the end."""
    world, root = call.world, call.root
    depth = (world - 1).bit_length()
    for level in range(depth):
        virtual = np.arange(1 << level, min(world, 1 << (level + 1)), dtype=np.int64)
        parent = virtual - (1 << level)
        size = np.full(len(virtual), call.size_bytes, dtype=np.int64)
        yield Post((parent + root) % world, (virtual + root) % world, size)
        yield Wait(level, sends=False)
    for level in range(depth):
        yield Wait(level, receives=False)


def _reduce(call: CollectiveCall) -> Iterator[Step]:
    """Ring reduce-scatter, then every member sends its chunk to the root."""
    cut = reduce_segments(call.size_bytes, call.world, call.element_bytes)
    rounds = cut.count - 2
    yield from _two_in_flight(_ring_rounds(cut, rounds, shift=1), first=0)
    member = np.delete(np.arange(call.world, dtype=np.int64), call.root)
    chunk = cut.per_rank * cut.size_bytes
    sizes = np.clip(call.size_bytes - member * chunk, 0, chunk)
    yield _nonzero(member, np.full_like(member, call.root), sizes)
    yield Wait(rounds)


def _rooted(call: CollectiveCall) -> Iterator[Step]:
    member = (call.root + np.arange(1, call.world, dtype=np.int64)) % call.world
    if call.kind == Kind.INCAST:
        member = member[: call.degree]
    root = np.full_like(member, call.root)
    each = call.size_bytes if call.kind == Kind.INCAST else _shard_bytes(call)
    size = np.full_like(member, each)
    yield Post(root, member, size) if call.kind == Kind.SCATTER else Post(member, root, size)
    yield Wait(0)


def _barrier(call: CollectiveCall) -> Iterator[Step]:
    """Dissemination (Hensgen, Finkel and Manber 1988): messages of a preamble alone."""
    member = np.arange(call.world, dtype=np.int64)
    empty = np.zeros(call.world, dtype=np.int64)
    for level in range((call.world - 1).bit_length()):
        yield Post(member, (member + (1 << level)) % call.world, empty)
        yield Wait(level)


def _permutation(call: CollectiveCall, seed: int) -> Iterator[Step]:
    member = np.arange(call.world, dtype=np.int64)
    if call.shift is None:
        target = np.array(derangement(call.world, seed), dtype=np.int64)
    else:
        target = (member + call.shift) % call.world
    moving = target != member
    size = np.full(call.world, call.size_bytes, dtype=np.int64)
    yield Post(member[moving], target[moving], size[moving])
    yield Wait(0)
