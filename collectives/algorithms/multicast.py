"""NVLS: collectives by NVLink switches that reduce and multicast, as programs.

The data is cut into parts, each with a head on every server. All GPUs of a server send their part
to the switch, which adds them up for the head; what the head gives back goes to all of them. The
heads of a part on several servers are joined by trees (NVLSTree). NCCL's kernel has four sorts of
warps for a channel (src/device/all_reduce.h, 2.27): scatter, gather, and at heads reduce and
broadcast. They are sequences here; an all-reduce's scatter and gather are one, which bounds how far
one is ahead of the other as NCCL's buffers do. A channel has two sequences at a switch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collectives.builder import Builder, Move
from collectives.in_network.node import Aggregator
from collectives.nccl.communicator import Tree
from collectives.program import Blocks, Buffer

_SCATTER, _GATHER, _REDUCE, _BROADCAST = range(4)
_SORTS = 4


@dataclass(frozen=True, slots=True)
class Multicast:
    """The switches of a group's servers. `servers` has the ranks on each, and `nodes` its switch;
    `heads` has, for each part, the head on each server. `trees` join heads over several servers;
    channels take them in turn."""

    servers: tuple[tuple[int, ...], ...]
    nodes: tuple[Aggregator, ...]
    heads: tuple[tuple[int, ...], ...]
    trees: tuple[Tree, ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """A chunk of a channel: its block, and the head on each server."""

    block: Blocks
    heads: tuple[int, ...]


class MulticastFlow:
    """Writes a channel's chunks, one after the other, with receives posted `ahead`.

    Each chunk goes through the unit of the switch once: where it is added up, or else where it is
    multicast.
    """

    def __init__(
        self,
        builder: Builder,
        multicast: Multicast,
        buffer: Blocks,
        ahead: int,
        reduces: bool,
        gathers: bool,
    ) -> None:
        """It reduces chunks to their heads, or multicasts what heads have, or both."""
        self._builder = builder
        self._of = multicast
        self._buffer = buffer
        self._ahead = ahead
        self._reduces = reduces
        self._gathers = gathers
        # At a GPU: results, sums of its part, and results from the head above. At a switch: what is
        # added up, and what is sent on.
        self._regions = [builder.scratch(buffer.count) for _ in range(3)]
        self._numbers: dict[tuple[int, ...], int] = {}
        self._place = {rank: s for s, ranks in enumerate(multicast.servers) for rank in ranks}

    def write(self, channel: int, items: Sequence[Item]) -> None:
        """Write all that GPUs and switches do in a channel."""
        for rank in self._place:
            if self._reduces:
                send = self._exchange if self._gathers else self._scatter
                send(channel, items, rank)
                self._reduce(channel, items, rank)
            if self._gathers:
                self._broadcast(channel, items, rank)
            if not self._reduces:
                self._gather(channel, items, rank)
        for server in range(len(self._of.servers)):
            if self._reduces:
                self._switch_reduces(channel, items, server)
            if self._gathers:
                self._switch_multicasts(channel, items, server)

    # ------------------------------------------------------------------ GPUs

    def _exchange(self, channel: int, items: Sequence[Item], rank: int) -> None:
        """Contributions and results. A GPU is no further ahead with what it has to add than the
        buffers of all heads reach: results would queue behind it."""
        switch = self._switch_of(rank)
        window = (self._ahead + 1) * len({item.heads for item in items})
        for number, item in enumerate(items):
            if number >= window:
                self._keep(channel, items[number - window], rank)
            self._receive(channel, _GATHER, item, (switch, rank), self._aside(0, item), at=_SCATTER)
            self._send(channel, _SCATTER, item, (rank, switch), item.block)
        for item in items[-window:]:
            self._keep(channel, item, rank)

    def _of_head(self, item: Item) -> Blocks:
        """A chunk at its head, where its contribution waits in its own place."""
        return self._aside(1, item) if self._reduces and self._gathers else item.block

    def _keep(self, channel: int, item: Item, rank: int) -> None:
        self._builder.copy(rank, self._aside(0, item), item.block, _SORTS * channel + _SCATTER)

    def _scatter(self, channel: int, items: Sequence[Item], rank: int) -> None:
        switch = self._switch_of(rank)
        for item in items:
            self._send(channel, _SCATTER, item, (rank, switch), item.block)

    def _gather(self, channel: int, items: Sequence[Item], rank: int) -> None:
        """All results. A head drops the copy of what it has, so that later ones need not wait for
        it."""
        switch = self._switch_of(rank)
        for item in items:
            target = self._aside(0, item) if rank in item.heads else item.block
            self._receive(channel, _GATHER, item, (switch, rank), target)

    def _reduce(self, channel: int, items: Sequence[Item], rank: int) -> None:
        """A head's sums: of its server, then of the heads below it; they go to the head above."""
        switch = self._switch_of(rank)
        above, below = self._neighbours(channel, rank)
        mine = [item for item in items if rank in item.heads]
        for item, later in self._in_advance(mine):
            if later is not None:
                target = self._of_head(later)
                self._receive(channel, _REDUCE, later, (switch, rank), target)
                for head in self._of_part(below, later):
                    self._receive(channel, _REDUCE, later, (head, rank), target, reduce=True)
            if item is not None:
                for head in self._of_part(above, item):
                    self._send(channel, _REDUCE, item, (rank, head), self._of_head(item))

    def _broadcast(self, channel: int, items: Sequence[Item], rank: int) -> None:
        """A head's results: from the head above to those below and to its switch."""
        switch = self._switch_of(rank)
        above, below = self._neighbours(channel, rank)
        mine = [item for item in items if rank in item.heads]
        for item, later in self._in_advance(mine):
            if later is not None:
                for head in self._of_part(above, later):
                    # No sum that still goes up is in its way.
                    self._receive(channel, _BROADCAST, later, (head, rank), self._aside(2, later))
            if item is not None:
                from_above = not {*above}.isdisjoint(item.heads)
                source = self._aside(2, item) if from_above else self._of_head(item)
                for head in self._of_part(below, item):
                    self._send(channel, _BROADCAST, item, (rank, head), source)
                self._send(channel, _BROADCAST, item, (rank, switch), source)

    def _neighbours(self, channel: int, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The heads above and below a rank in the tree of a channel."""
        if not self._of.trees:
            return (), ()
        tree = self._of.trees[channel % len(self._of.trees)]
        parent = tree.parents[rank]
        return () if parent < 0 else (parent,), tree.children[rank]

    @staticmethod
    def _of_part(heads: Sequence[int], item: Item) -> Iterator[int]:
        return (head for head in heads if head in item.heads)

    # ------------------------------------------------------------------ switches

    def _switch_reduces(self, channel: int, items: Sequence[Item], server: int) -> None:
        switch = self._builder.ranks + server
        for item, later in self._in_advance(items):
            if later is not None:
                into = self._aside(0, later)
                for place, rank in enumerate(self._of.servers[server]):
                    ends = rank, switch
                    self._receive(channel, _SCATTER, later, ends, into, reduce=place > 0)
            if item is not None:
                ready = self._aside(1, item)
                self._builder.copy(switch, self._aside(0, item), ready, _SORTS * channel)
                ends = switch, item.heads[server]
                self._send(channel, _REDUCE, item, ends, ready, at_switch=True)

    def _switch_multicasts(self, channel: int, items: Sequence[Item], server: int) -> None:
        switch = self._builder.ranks + server
        for item, later in self._in_advance(items):
            if later is not None:
                ends = later.heads[server], switch
                self._receive(channel, _BROADCAST, later, ends, self._aside(1, later))
            if item is not None:
                ready = self._aside(1, item)
                if not self._reduces:
                    ready, come = self._aside(0, item), ready
                    self._builder.copy(switch, come, ready, _SORTS * channel + 1)
                for rank in self._of.servers[server]:
                    self._send(channel, _GATHER, item, (switch, rank), ready, at_switch=True)

    # ------------------------------------------------------------------ messages

    def _in_advance(self, items: Sequence[Item]) -> Iterator[tuple[Item | None, Item | None]]:
        """The chunk whose turn it is, and the one whose receives are posted before."""
        for turn in range(len(items) + self._ahead):
            item = items[turn - self._ahead] if turn >= self._ahead else None
            yield item, items[turn] if turn < len(items) else None

    def _switch_of(self, rank: int) -> int:
        return self._builder.ranks + self._place[rank]

    def _aside(self, region: int, item: Item) -> Blocks:
        offset = item.block.start - self._buffer.start
        return Blocks(Buffer.SCRATCH, self._regions[region] + offset)

    def _send(
        self,
        channel: int,
        sort: int,
        item: Item,
        ends: tuple[int, int],
        source: Blocks,
        at_switch: bool = False,
    ) -> None:
        sequence = _SORTS * channel + (sort == _GATHER if at_switch else sort)
        move = Move(ends[0], source, ends[1], source)
        self._builder.send(self._number(sort, item, ends), move, sequence)

    def _receive(
        self,
        channel: int,
        sort: int,
        item: Item,
        ends: tuple[int, int],
        target: Blocks,
        reduce: bool = False,
        at: int | None = None,
    ) -> None:
        at_switch = ends[1] >= self._builder.ranks
        own = sort if at is None else at
        sequence = _SORTS * channel + (sort == _BROADCAST if at_switch else own)
        move = Move(ends[0], target, ends[1], target, reduce)
        self._builder.receive(self._number(sort, item, ends), move, sequence)

    def _number(self, sort: int, item: Item, ends: tuple[int, int]) -> int:
        key = sort, item.block.start, *ends
        if key not in self._numbers:
            self._numbers[key] = self._builder.number()
        return self._numbers[key]
