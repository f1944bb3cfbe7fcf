"""NVLS: collectives by NVLink switches that reduce and multicast, as programs.

The data is cut into parts, each with a head on every server. All GPUs of a server send their part
to the switch, which adds them up for the head; what the head gives back goes to all of them. The
heads of a part on several servers are joined by trees (NVLSTree), or give their sums to the
network's switches (NVLS with CollNet). NCCL's kernel has four sorts of warps for a channel
(src/device/all_reduce.h, 2.27): scatter, gather, and at heads reduce and broadcast. They are
sequences here; an all-reduce's scatter and gather are one, which bounds how far one is ahead of the
other as NCCL's buffers do. A channel has two sequences at a switch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collectives.algorithms.channel_flow import SORTS, ChannelFlow, Item
from collectives.algorithms.network_sums import HeadTree, NetworkSums
from collectives.builder import Builder
from collectives.in_network.node import Aggregator
from collectives.nccl.communicator import Tree
from collectives.program import Blocks

_SCATTER, _GATHER, _REDUCE, _BROADCAST = range(SORTS)
_NAMES = ("scatter", "gather", "reduce", "broadcast")


@dataclass(frozen=True, slots=True)
class Multicast:
    """The switches of a group's servers. `servers` has the ranks on each, and `switches` the place
    of its switch among all `nodes` of the group; `heads` has, for each part, the head on each
    server. Over several servers `trees` join heads, which channels take in turn, or else switches
    of the network, by the trees `network`, in pieces of `piece_bytes`."""

    servers: tuple[tuple[int, ...], ...]
    nodes: tuple[Aggregator, ...]
    switches: tuple[int, ...]
    heads: tuple[tuple[int, ...], ...]
    trees: tuple[Tree, ...] = ()
    network: tuple[HeadTree, ...] = ()
    piece_bytes: int = 0


class MulticastFlow(ChannelFlow):
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
        # At a GPU: results, sums of its part, and results from the head above. At a switch: what is
        # added up, and what is sent on; one of the network has results from above as well.
        super().__init__(builder, buffer, ahead, regions=3)
        self._of = multicast
        self._reduces = reduces
        self._gathers = gathers
        self._network = NetworkSums(self, multicast.network, (0, 1, 2))
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
        if self._of.network:
            self._network.write(channel, items)

    # ------------------------------------------------------------------ GPUs

    def _exchange(self, channel: int, items: Sequence[Item], rank: int) -> None:
        """Contributions and results. A GPU is no further ahead with what it has to add than the
        buffers of all heads reach: results would queue behind it."""
        switch = self._switch_of(rank)
        window = (self.ahead + 1) * len({item.heads for item in items})
        for number, item in enumerate(items):
            if number >= window:
                self._keep(channel, items[number - window], rank)
            self._receive(channel, _GATHER, item, (switch, rank), self.aside(0, item), at=_SCATTER)
            self._send(channel, _SCATTER, item, (rank, switch), item.block)
        for item in items[-window:]:
            self._keep(channel, item, rank)

    def _of_head(self, item: Item) -> Blocks:
        """A chunk at its head, where its contribution waits in its own place."""
        return self.aside(1, item) if self._reduces and self._gathers else item.block

    def _keep(self, channel: int, item: Item, rank: int) -> None:
        self.builder.copy(rank, self.aside(0, item), item.block, SORTS * channel + _SCATTER)

    def _scatter(self, channel: int, items: Sequence[Item], rank: int) -> None:
        switch = self._switch_of(rank)
        for item in items:
            self._send(channel, _SCATTER, item, (rank, switch), item.block)

    def _gather(self, channel: int, items: Sequence[Item], rank: int) -> None:
        """All results. A head drops the copy of what it has, so that later ones need not wait for
        it."""
        switch = self._switch_of(rank)
        for item in items:
            target = self.aside(0, item) if rank in item.heads else item.block
            self._receive(channel, _GATHER, item, (switch, rank), target)

    def _reduce(self, channel: int, items: Sequence[Item], rank: int) -> None:
        """A head's sums: of its server, then of the heads below it; they go to the head above."""
        switch = self._switch_of(rank)
        above, below = self._neighbours(channel, rank)
        mine = [item for item in items if rank in item.heads]
        given: list[Item] = []
        for item, later in self.in_advance(mine):
            if later is not None:
                target = self._of_head(later)
                self._receive(channel, _REDUCE, later, (switch, rank), target)
                for head in self._of_part(below, later):
                    self._receive(channel, _REDUCE, later, (head, rank), target, reduce=True)
            if item is not None:
                for head in self._of_part(above, item):
                    self._send(channel, _REDUCE, item, (rank, head), self._of_head(item))
                if self._of.network:
                    self._give(channel, item, rank, given)

    def _give(self, channel: int, item: Item, rank: int, given: list[Item]) -> None:
        """A head's sum, to the network and back. It is no further ahead of results than the buffers
        reach; `given` are the chunks before."""
        sequence = SORTS * channel + _REDUCE
        if len(given) > self.ahead:
            earlier = given[-self.ahead - 1]
            self.builder.copy(rank, self.aside(2, earlier), self._of_head(earlier), sequence)
        self._network.exchange(sequence, item, rank, self._of_head(item), self.aside(2, item))
        given.append(item)

    def _broadcast(self, channel: int, items: Sequence[Item], rank: int) -> None:
        """A head's results: from the head above to those below and to its switch."""
        switch = self._switch_of(rank)
        above, below = self._neighbours(channel, rank)
        mine = [item for item in items if rank in item.heads]
        for item, later in self.in_advance(mine):
            if later is not None:
                for head in self._of_part(above, later):
                    # No sum that still goes up is in its way.
                    self._receive(channel, _BROADCAST, later, (head, rank), self.aside(2, later))
            if item is not None:
                from_above = bool(self._of.network) or not {*above}.isdisjoint(item.heads)
                source = self.aside(2, item) if from_above else self._of_head(item)
                for head in self._of_part(below, item):
                    self._send(channel, _BROADCAST, item, (rank, head), source)
                self._send(channel, _BROADCAST, item, (rank, switch), source)

    def _neighbours(self, channel: int, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The heads above and below a rank in the tree of a channel."""
        if not self._of.trees or self._of.network:
            return (), ()
        tree = self._of.trees[channel % len(self._of.trees)]
        parent = tree.parents[rank]
        return () if parent < 0 else (parent,), tree.children[rank]

    @staticmethod
    def _of_part(heads: Sequence[int], item: Item) -> Iterator[int]:
        return (head for head in heads if head in item.heads)

    # ------------------------------------------------------------------ switches

    def _switch_reduces(self, channel: int, items: Sequence[Item], server: int) -> None:
        switch = self._switch(server)
        for item, later in self.in_advance(items):
            if later is not None:
                into = self.aside(0, later)
                for place, rank in enumerate(self._of.servers[server]):
                    ends = rank, switch
                    self._receive(channel, _SCATTER, later, ends, into, reduce=place > 0)
            if item is not None:
                ready = self.aside(1, item)
                self.builder.copy(switch, self.aside(0, item), ready, SORTS * channel)
                ends = switch, item.heads[server]
                self._send(channel, _REDUCE, item, ends, ready, at_switch=True)

    def _switch_multicasts(self, channel: int, items: Sequence[Item], server: int) -> None:
        switch = self._switch(server)
        for item, later in self.in_advance(items):
            if later is not None:
                ends = later.heads[server], switch
                self._receive(channel, _BROADCAST, later, ends, self.aside(1, later))
            if item is not None:
                ready = self.aside(1, item)
                if not self._reduces:
                    ready, come = self.aside(0, item), ready
                    self.builder.copy(switch, come, ready, SORTS * channel + 1)
                for rank in self._of.servers[server]:
                    self._send(channel, _GATHER, item, (switch, rank), ready, at_switch=True)

    # ------------------------------------------------------------------ messages

    def _switch_of(self, rank: int) -> int:
        return self._switch(self._place[rank])

    def _switch(self, server: int) -> int:
        return self.builder.ranks + self._of.switches[server]

    def _send(
        self,
        channel: int,
        sort: int,
        item: Item,
        ends: tuple[int, int],
        source: Blocks,
        at_switch: bool = False,
    ) -> None:
        sequence = SORTS * channel + (sort == _GATHER if at_switch else sort)
        self.send(sequence, _NAMES[sort], item, ends, source)

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
        at_switch = ends[1] >= self.builder.ranks
        own = sort if at is None else at
        sequence = SORTS * channel + (sort == _BROADCAST if at_switch else own)
        self.receive(sequence, _NAMES[sort], item, ends, target, reduce)
