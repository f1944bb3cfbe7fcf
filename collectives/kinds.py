"""The kinds of collectives, once: what the size of each means and what each must move.

Kinds are named as torch.distributed names them; sizes and bus factors are those of nccl-tests
(doc/PERFORMANCE.md there). `send_recv`, `incast` and `permutation` are patterns of messages that
are run, measured and reported like collectives. An `exchange` is only measured: messages that were
seen at one time between ranks, of no kind that is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from types import MappingProxyType


class Kind(StrEnum):
    """A kind of collective, by torch's name; it equals its name."""

    ALL_REDUCE = "all_reduce"
    ALL_TO_ALL = "all_to_all"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    BARRIER = "barrier"
    SEND_RECV = "send_recv"
    INCAST = "incast"
    PERMUTATION = "permutation"
    EXCHANGE = "exchange"

    @property
    def traits(self) -> Traits:
        """The row of this kind in the table."""
        return TABLE[self]


class SizeOf(StrEnum):
    """The bytes that the size of a collective counts."""

    WHOLE = "the whole array, of which each rank has or gets a shard"
    SENT = "what a rank sends in total, its own shard included"
    BUFFER = "the buffer of one rank"
    MESSAGE = "one message"
    LARGEST = "the largest message"
    NOTHING = "nothing: no payload"


@dataclass(frozen=True, slots=True)
class Traits:
    """A row of the table.

    - `label`: the name as papers write it;
    - `size_of`: what the size counts;
    - `splits`: the size is cut into one equal shard per rank;
    - `reduces`: ranks' contributions are summed;
    - `rooted`: one rank has or gets what the others do not;
    - `ends_together`: by definition no rank can be done much before the others;
    - `options`: the fields of a call that count for this kind, beside size and ranks.
    """

    kind: Kind
    label: str
    size_of: SizeOf
    splits: bool = False
    reduces: bool = False
    rooted: bool = False
    ends_together: bool = False
    options: frozenset[str] = frozenset()

    def contributions(self, ranks: int) -> int:
        """How many ranks' contributions the size counts: those of all where it is the whole array
        and nothing is reduced, as of an all-gather; else one."""
        return ranks if self.size_of is SizeOf.WHOLE and not self.reduces else 1


_ROOT = frozenset({"root"})

_ROWS = (
    Traits(Kind.ALL_REDUCE, "AllReduce", SizeOf.BUFFER, reduces=True, ends_together=True),
    Traits(Kind.ALL_TO_ALL, "AlltoAll", SizeOf.SENT, splits=True, ends_together=True),
    Traits(Kind.ALL_GATHER, "AllGather", SizeOf.WHOLE, splits=True, ends_together=True),
    Traits(
        Kind.REDUCE_SCATTER,
        "ReduceScatter",
        SizeOf.WHOLE,
        splits=True,
        reduces=True,
        ends_together=True,
    ),
    Traits(Kind.BROADCAST, "Broadcast", SizeOf.BUFFER, rooted=True, options=_ROOT),
    Traits(Kind.REDUCE, "Reduce", SizeOf.BUFFER, reduces=True, rooted=True, options=_ROOT),
    Traits(Kind.GATHER, "Gather", SizeOf.WHOLE, splits=True, rooted=True, options=_ROOT),
    Traits(Kind.SCATTER, "Scatter", SizeOf.WHOLE, splits=True, rooted=True, options=_ROOT),
    Traits(Kind.BARRIER, "Barrier", SizeOf.NOTHING, ends_together=True),
    Traits(Kind.SEND_RECV, "send/recv", SizeOf.MESSAGE, options=_ROOT | {"peer"}),
    Traits(Kind.INCAST, "incast", SizeOf.MESSAGE, rooted=True, options=_ROOT | {"degree"}),
    Traits(Kind.PERMUTATION, "permutation", SizeOf.MESSAGE, options=frozenset({"shift"})),
    Traits(Kind.EXCHANGE, "exchange", SizeOf.LARGEST, options=frozenset({"messages"})),
)

TABLE: Mapping[Kind, Traits] = MappingProxyType({row.kind: row for row in _ROWS})
"""Every kind's traits, in the order in which kinds are listed for users."""

KINDS: tuple[str, ...] = tuple(Kind)
"""All names, in that order; for text that may be none of them."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One collective without names and times: its kind and its numbers.

    `size_bytes` is what the kind's `size_of` says; `ranks` is how many take part. `root` and `peer`
    are members' positions, from 0: `send_recv` goes from root to peer. In an `incast` the `degree`
    members after the root (None: all others) send to it. In a `permutation` member r sends to
    r + `shift`; None: to another one that a seed draws.
    """

    kind: Kind
    size_bytes: int
    ranks: int
    element_bytes: int = 1
    root: int = 0
    degree: int | None = None
    peer: int | None = None
    shift: int | None = None

    @property
    def whole_bytes(self) -> int:
        """The size in whole elements."""
        return self.size_bytes // self.element_bytes * self.element_bytes

    @property
    def shard_bytes(self) -> int:
        """One rank's part of the size, in whole elements."""
        return self.size_bytes // self.element_bytes // self.ranks * self.element_bytes


def barrier_shape(ranks: int) -> Shape:
    """The shape of a barrier by a program: an all-reduce of an int64 that counts who came."""
    return Shape(Kind.ALL_REDUCE, 8, ranks, 8)


def step_bytes(kind: Kind, ranks: int, element_bytes: int) -> int:
    """The bytes of which the size of a collective must be a multiple."""
    return element_bytes * (ranks if TABLE[kind].splits else 1)


def rounded_elements(kind: Kind, size_bytes: int, ranks: int, element_bytes: int) -> int:
    """Elements of a collective of about this size: rounded down to what divides evenly, as
    nccl-tests does, but at least one each. 0 for a kind without payload."""
    if TABLE[kind].size_of is SizeOf.NOTHING:
        return 0
    shares = ranks if TABLE[kind].splits else 1
    return max(size_bytes // element_bytes // shares, 1) * shares


def bus_factor(kind: Kind, ranks: int) -> float:
    """busbw / algbw, as nccl-tests defines it; 1 for kinds that it leaves out."""
    if kind is Kind.ALL_REDUCE:
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if TABLE[kind].splits else 1.0


def least_received_bytes(shape: Shape, member: int) -> int:
    """Payload that a member must receive from the others, whatever the algorithm: what it has in
    the end and neither had nor can compute from what it had.

    A barrier's members must hear of each other, so that something arrives: a byte.
    """
    ranks, whole, shard = shape.ranks, shape.whole_bytes, shape.shard_bytes
    at_root = member == shape.root
    if ranks < 2:
        return 0
    match shape.kind:
        case Kind.ALL_REDUCE:
            return whole
        case Kind.ALL_GATHER | Kind.ALL_TO_ALL:
            return shard * (ranks - 1)
        case Kind.REDUCE_SCATTER:
            return shard
        case Kind.BROADCAST:
            return 0 if at_root else whole
        case Kind.REDUCE:
            return whole if at_root else 0
        case Kind.GATHER:
            return shard * (ranks - 1) if at_root else 0
        case Kind.SCATTER:
            return 0 if at_root else shard
        case Kind.SEND_RECV:
            return whole if member == shape.peer and not at_root else 0
        case Kind.INCAST:
            return whole * (shape.degree or ranks - 1) if at_root else 0
        case Kind.PERMUTATION:
            return 0 if _stays(shape) else whole
        case Kind.EXCHANGE:
            return 0  # who receives what the messages say
        case Kind.BARRIER:
            return 1


def least_sent_bytes(shape: Shape, member: int) -> int:
    """Payload that a member must send to the others, whatever the algorithm: what others have in
    the end and can only know from it. A barrier's members must be heard of: a byte."""
    ranks, whole, shard = shape.ranks, shape.whole_bytes, shape.shard_bytes
    at_root = member == shape.root
    if ranks < 2:
        return 0
    match shape.kind:
        case Kind.ALL_REDUCE:
            return whole
        case Kind.ALL_GATHER:
            return shard
        case Kind.ALL_TO_ALL | Kind.REDUCE_SCATTER:
            return shard * (ranks - 1)
        case Kind.BROADCAST:
            return whole if at_root else 0
        case Kind.REDUCE:
            return 0 if at_root else whole
        case Kind.GATHER:
            return 0 if at_root else shard
        case Kind.SCATTER:
            return shard * (ranks - 1) if at_root else 0
        case Kind.SEND_RECV:
            return whole if at_root and shape.peer not in (None, member) else 0
        case Kind.INCAST:
            position = (member - shape.root) % ranks
            return whole if 1 <= position <= (shape.degree or ranks - 1) else 0
        case Kind.PERMUTATION:
            return 0 if _stays(shape) else whole
        case Kind.EXCHANGE:
            return 0
        case Kind.BARRIER:
            return 1


def least_total_bytes(shape: Shape) -> int:
    """Payload that all members together must receive, whatever the algorithm.

    For an element that is reduced, ranks - 1 summands must reach somebody; when all get the sum,
    that must reach ranks - 1 more (Patarasuk and Yuan 2009, section 3).
    """
    others = shape.ranks - 1
    match shape.kind:
        case Kind.ALL_REDUCE:
            return 2 * others * shape.whole_bytes
        case Kind.REDUCE:
            return others * shape.whole_bytes
        case Kind.REDUCE_SCATTER:
            return others * shape.shard_bytes * shape.ranks
        case _:
            return sum(least_received_bytes(shape, member) for member in range(shape.ranks))


def least_crossing_share(kind: Kind, lower: int, ranks: int) -> Fraction:
    """Part of the size that must go from the first `lower` ranks to all others, whatever the
    algorithm. 0 for kinds where that depends on who the root or the peers are."""
    upper = ranks - lower
    if not 0 < lower < ranks:
        return Fraction(0)
    match kind:
        case Kind.ALL_REDUCE:
            return Fraction(1)
        case Kind.ALL_TO_ALL:
            return Fraction(lower * upper, ranks)
        case Kind.ALL_GATHER:
            return Fraction(lower, ranks)
        case Kind.REDUCE_SCATTER:
            return Fraction(upper, ranks)
        case _:
            return Fraction(0)


def _stays(shape: Shape) -> bool:
    """Whether a permutation's messages go from each member to itself."""
    return shape.shift is not None and shape.shift % shape.ranks == 0
