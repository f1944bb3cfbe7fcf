"""In-network aggregation as in SHARP (Graham et al., Scalable Hierarchical Aggregation Protocol,
COM-HPC 2016): switches reduce what comes from below and send one contribution up; the root's result
comes down, a copy for each port.

A chunk holds a slot of every node of its tree while it is under way. In low-latency mode a chunk is
one payload. In streaming mode the whole message is one chunk, cut into pieces that flow through the
tree, `window` of them at a time behind the first one. That goes alone: its way up and down is the
taking of the tree, as SHARP's streaming trees are locked before they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from collectives.algorithms.base import Algorithm, DoesNotFit, Refused, Team, at_least
from collectives.builder import Builder, Move
from collectives.in_network.node import Aggregator, Hold
from collectives.kinds import Kind, Shape
from collectives.program import Blocks, Buffer
from topologies.aggregation_tree import OUTSIDE, children, way_up

LOW_LATENCY, STREAMING = "low-latency", "streaming"
MOST_PIECES = 512
"""A stream has larger pieces rather than more of them: each is a few messages at every node."""

_UP, _DOWN = 0, 1


def _given() -> dict[str, bool]:
    """A mark of fields that follow from the fabric, and that nobody asks for in a spec."""
    return {"asked": False}


@dataclass(frozen=True, kw_only=True)
class Aggregation(Algorithm):
    """All-reduce, reduce and broadcast by switches.

    `mode` is low-latency or streaming; "" takes the section's. `slots` is how many slots of each
    node it asks for; 0: all that there are. The rest comes from the fabric
    (`collectives.in_network`): `parents` by participant, the `nodes`, the payload of their slots,
    the pieces of streams, and what a stream has `held`. `turns` are the parents and the hold of
    each tree, which chunks take in turn.
    """

    name = "aggregation"
    parts = frozenset({Kind.ALL_REDUCE, Kind.BROADCAST, Kind.REDUCE})

    mode: str = ""
    slots: int = 0
    parents: tuple[int, ...] = field(default=(), metadata=_given())
    nodes: tuple[Aggregator, ...] = field(default=(), metadata=_given())
    payload_bytes: int = field(default=1024, metadata=_given())
    piece_bytes: int = field(default=32_768, metadata=_given())
    stream_window: int = field(default=16, metadata=_given())
    stream_pieces: int = field(default=1, metadata=_given())
    held: Hold | None = field(default=None, metadata=_given())
    turns: tuple[tuple[tuple[int, ...], Hold | None], ...] = field(default=(), metadata=_given())

    def __post_init__(self) -> None:
        if self.mode not in ("", LOW_LATENCY, STREAMING):
            raise DoesNotFit("mode", repr(self.mode), f"{LOW_LATENCY}, {STREAMING}")
        at_least("slots", self.slots, 0)

    @property
    def aggregators(self) -> tuple[Aggregator, ...]:
        return self.nodes

    @property
    def hold(self) -> Hold | None:
        return self.held

    @property
    def largest_chunk_bytes(self) -> int | None:
        return self.payload_bytes if self.mode == LOW_LATENCY else None

    @property
    def most_in_flight(self) -> int | None:
        # Streams go one after the other on each tree of a group.
        return self.least_chunks * (max(1, self.slots) if self.mode == LOW_LATENCY else 1)

    @property
    def least_chunks(self) -> int:
        return max(1, len(self.turns))

    def of_chunk(self, index: int) -> Algorithm:
        if not self.turns:
            return self
        parents, held = self.turns[index % len(self.turns)]
        return replace(self, parents=parents, held=held)

    def check(self, ranks: int) -> None:
        found = len(self.parents) - len(self.nodes)
        if found != ranks:
            allowed = f"the group of all {found} ranks, whose tree it is"
            raise Refused("", f"aggregation for a group of {ranks} ranks", allowed)

    def sized(self, shape: Shape) -> Algorithm:
        if self.mode != STREAMING:
            return self
        elements = max(1, shape.size_bytes // shape.element_bytes)
        pieces = min(-(-shape.size_bytes // self.piece_bytes), MOST_PIECES, elements)
        return replace(self, stream_pieces=max(1, pieces))

    def grain(self, members: int) -> int:
        return self.stream_pieces

    def all_reduce(self, team: Team, blocks: Blocks) -> None:
        everybody = frozenset(range(len(self.parents)))
        _Flow(self, team.builder, blocks).write(contribute=everybody, get=everybody)

    def reduce(self, team: Team, blocks: Blocks, root: int) -> None:
        everybody = frozenset(range(len(self.parents)))
        path = frozenset(way_up(self.parents, root))
        _Flow(self, team.builder, blocks).write(contribute=everybody, get=path)

    def broadcast(self, team: Team, blocks: Blocks, root: int) -> None:
        everybody = frozenset(range(len(self.parents)))
        path = frozenset(way_up(self.parents, root))
        _Flow(self, team.builder, blocks).write(contribute=path, get=everybody - path | {root})

    @cached_property
    def children(self) -> dict[int, tuple[int, ...]]:
        """Those below each switch, in order: the order in which contributions are added."""
        above = {parent for parent in self.parents if parent >= 0}
        return {switch: children(self.parents, switch) for switch in above}


class _Flow:
    """Contributions up the tree and results down, piece by piece.

    Everybody posts receives before what they wait for, `window` pieces ahead, into blocks of their
    own: no message waits for its receiver to get ready.
    """

    def __init__(self, algorithm: Aggregation, builder: Builder, blocks: Blocks) -> None:
        self._of = algorithm
        self._builder = builder
        self._data = blocks
        self._pieces = blocks.count
        # Regions of blocks that arrive, that have been reduced, and that have come from above.
        self._regions = [builder.scratch(blocks.count) for _ in range(3)]
        self._numbers: dict[tuple[int, int, int], int] = {}
        self._ranks = builder.ranks

    def write(self, contribute: frozenset[int], get: frozenset[int]) -> None:
        """Those in `contribute` send up, those in `get` are sent the result. A broadcast's root
        contributes and is sent nothing, so nobody reduces."""
        self._contribute = contribute
        self._get = get
        self._sums = self._builder.kind is not Kind.BROADCAST
        for participant, parent in enumerate(self._of.parents):
            if participant < self._ranks:
                self._rank(participant)
            elif parent != OUTSIDE:
                self._switch(participant)

    # -- messages and their ends -------------------------------------------------------------------

    def _gets_from_above(self, participant: int) -> bool:
        parent = self._of.parents[participant]
        if parent < 0 or participant not in self._get:
            return False
        return self._sums or participant not in self._contribute

    def _feeds(self, switch: int) -> list[int]:
        """The children that send up to a switch."""
        return [child for child in self._of.children[switch] if child in self._contribute]

    def _fed(self, switch: int) -> list[int]:
        """The children that a switch sends results to."""
        return [child for child in self._of.children[switch] if self._gets_from_above(child)]

    def _block(self, region: int, piece: int) -> Blocks:
        return Blocks(Buffer.SCRATCH, self._regions[region] + piece)

    def _own(self, piece: int) -> Blocks:
        return Blocks(self._data.buffer, self._data.start + piece)

    def _number(self, child: int, way: int, piece: int) -> int:
        """The message between a child and its parent."""
        key = child, way, piece
        if key not in self._numbers:
            self._numbers[key] = self._builder.number()
        return self._numbers[key]

    def _phase(self, way: int) -> None:
        if way == _UP:
            self._builder.phase("reduce" if self._sums else "to the tree", Kind.REDUCE)
        else:
            self._builder.phase("multicast", Kind.BROADCAST)

    def _move(self, child: int, way: int, source: Blocks, target: Blocks, reduce: bool) -> Move:
        parent = self._of.parents[child]
        if way == _UP:
            return Move(child, source, parent, target, reduce)
        return Move(parent, source, child, target, reduce)

    def _send(self, child: int, way: int, piece: int, source: Blocks, channel: int) -> None:
        self._phase(way)
        move = self._move(child, way, source, source, False)
        self._builder.send(self._number(child, way, piece), move, channel)

    def _receive(
        self, child: int, way: int, piece: int, target: Blocks, channel: int, reduce: bool = False
    ) -> None:
        self._phase(way)
        move = self._move(child, way, target, target, reduce)
        self._builder.receive(self._number(child, way, piece), move, channel)

    # -- ranks -------------------------------------------------------------------------------------

    def _rank(self, rank: int) -> None:
        sends, gets = rank in self._contribute, self._gets_from_above(rank)
        for piece in range(self._pieces):
            # The first piece goes alone; then a window of them.
            before = 0 if piece == 1 else piece - self._of.stream_window
            if gets and before >= 0 and (before or piece == 1):
                self._keep(rank, before)
            if gets:
                self._receive(rank, _DOWN, piece, self._block(0, piece), 0)
            if sends:
                self._send(rank, _UP, piece, self._own(piece), 0)
        if gets:
            first = max(1, self._pieces - self._of.stream_window) if self._pieces > 1 else 0
            for piece in range(first, self._pieces):
                self._keep(rank, piece)

    def _keep(self, rank: int, piece: int) -> None:
        self._phase(_DOWN)
        self._builder.copy(rank, self._block(0, piece), self._own(piece))

    # -- switches ----------------------------------------------------------------------------------

    def _switch(self, switch: int) -> None:
        feeds, fed = self._feeds(switch), self._fed(switch)
        up = bool(feeds) and self._of.parents[switch] >= 0 and switch in self._contribute
        above = bool(fed) and self._gets_from_above(switch)
        down = _DOWN if self._pieces > 1 else _UP
        ready = 1 if self._sums else 0
        if self._pieces == 1 and above:
            # A sequence has its receives before its waits.
            self._arrive(switch, feeds, 0)
            self._receive(switch, _DOWN, 0, self._block(2, 0), down)
            self._forward(switch, up, 0)
            self._deliver(fed, 0, 2, down)
            return
        if feeds:
            for piece in self._ahead(lambda p: self._arrive(switch, feeds, p)):
                self._forward(switch, up, piece)
        if above:
            for piece in self._ahead(
                lambda p: self._receive(switch, _DOWN, p, self._block(2, p), down)
            ):
                self._deliver(fed, piece, 2, down)
        elif fed:
            for piece in range(self._pieces):
                self._deliver(fed, piece, ready, down)

    def _ahead(self, receive: Callable[[int], None]) -> Iterator[int]:
        """Pieces in order, each after its receives have been posted, and those of a window."""
        posted = 0
        for piece in range(self._pieces):
            until = 1 if piece == 0 else min(self._pieces, piece + self._of.stream_window)
            for other in range(posted, until):
                receive(other)
            posted = max(posted, until)
            yield piece

    def _arrive(self, switch: int, feeds: list[int], piece: int) -> None:
        for place, child in enumerate(feeds):
            self._receive(child, _UP, piece, self._block(0, piece), 0, reduce=place > 0)

    def _forward(self, switch: int, up: bool, piece: int) -> None:
        ready = 0
        if self._sums:
            self._phase(_UP)
            self._builder.copy(switch, self._block(0, piece), self._block(1, piece))
            ready = 1
        if up:
            self._send(switch, _UP, piece, self._block(ready, piece), 0)

    def _deliver(self, fed: list[int], piece: int, region: int, channel: int) -> None:
        for child in fed:
            self._send(child, _DOWN, piece, self._block(region, piece), channel)
