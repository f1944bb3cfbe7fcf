"""CollNet: all-reduces of servers' sums by the switches of the network, as programs.

CollNetDirect cuts the data into parts, each with a head on every server: GPUs send a part to its
head, which adds up, gives the sum to the network (`network_sums`) and sends the result to the GPUs
of its server. NCCL's kernel has four sorts of warps for a channel, scatter, reduce, broadcast and
gather (src/device/all_reduce.h, 2.27); they are sequences here. CollNetChain has a chain in each
server, up which sums go to its head and down which results come: two sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collectives.algorithms.base import rotated
from collectives.algorithms.channel_flow import SORTS, ChannelFlow, Item
from collectives.algorithms.network_sums import HeadTree, NetworkSums
from collectives.builder import Builder
from collectives.in_network.node import Aggregator
from collectives.program import Blocks

_SCATTER, _GATHER, _REDUCE, _BROADCAST = range(SORTS)


@dataclass(frozen=True, slots=True)
class CollNet:
    """The servers of a group and the switches that add up for it. `servers` has the ranks on each,
    `nodes` all switches of the group, `trees` those of heads. `heads` has, for each part of
    CollNetDirect, the head on each server; with `chains` it is CollNetChain: for each channel the
    chain of each server, its head first. Chunks go to the network in pieces of `piece_bytes`."""

    servers: tuple[tuple[int, ...], ...]
    nodes: tuple[Aggregator, ...]
    trees: tuple[HeadTree, ...]
    piece_bytes: int
    heads: tuple[tuple[int, ...], ...] = ()
    chains: tuple[tuple[tuple[int, ...], ...], ...] = ()

    def parts(self, channel: int) -> tuple[tuple[int, ...], ...]:
        """The heads of each part of a channel's chunks."""
        if self.chains:
            return (tuple(chain[0] for chain in self.chains[channel]),)
        return self.heads


class CollNetFlow(ChannelFlow):
    """Writes a channel's chunks, one after the other."""

    def __init__(self, builder: Builder, collnet: CollNet, buffer: Blocks, ahead: int) -> None:
        super().__init__(builder, buffer, ahead, regions=3)
        self._of = collnet
        self._network = NetworkSums(self, collnet.trees, (0, 1, 2))

    def write(self, channel: int, items: Sequence[Item]) -> None:
        """Write all that GPUs and switches do in a channel."""
        sequences = SORTS * channel
        for server, ranks in enumerate(self._of.servers):
            if self._of.chains:
                chain = self._of.chains[channel][server]
                for place in range(len(chain)):
                    self._up(sequences, items, chain, place)
                    self._down(sequences, items, chain, place)
                continue
            for rank in ranks:
                self._scatter(sequences, items, server, rank)
                self._reduce(sequences, items, server, rank)
                self._broadcast(sequences, items, server, rank)
                self._gather(sequences, items, server, rank)
        self._network.write(channel, items)

    # ------------------------------------------------------------------ CollNetDirect

    def _scatter(self, sequences: int, items: Sequence[Item], server: int, rank: int) -> None:
        """A GPU's own data, to all heads but itself, beginning with another one on each GPU."""
        for item in self._from_own(items, server, rank):
            head = item.heads[server]
            if head != rank:
                ends = rank, head
                self.send(sequences + _SCATTER, "scatter", item, ends, item.block)

    def _gather(self, sequences: int, items: Sequence[Item], server: int, rank: int) -> None:
        """All results but its own, each to where what it is the sum of has been sent from."""
        for item in self._from_own(items, server, rank):
            head = item.heads[server]
            if head != rank:
                ends = head, rank
                self.receive(sequences + _GATHER, "gather", item, ends, item.block)

    def _reduce(self, sequences: int, items: Sequence[Item], server: int, rank: int) -> None:
        """A head's sums go to the network. It is no further ahead of results than the buffers
        reach."""
        mine = [item for item in items if item.heads[server] == rank]
        others = [other for other in self._of.servers[server] if other != rank]
        sequence = sequences + _REDUCE
        done: list[Item] = []
        for item, later in self.in_advance(mine):
            if later is not None:
                for other in others:
                    ends = other, rank
                    self.receive(sequence, "scatter", later, ends, later.block, reduce=True)
            if item is not None:
                self._exchange(sequence, item, rank, done)
        self._keep_last(sequence, rank, done)

    def _broadcast(self, sequences: int, items: Sequence[Item], server: int, rank: int) -> None:
        """A head's results, to all GPUs of its server."""
        ranks = self._of.servers[server]
        others = rotated(ranks, ranks.index(rank))[1:]
        for item in items:
            if item.heads[server] == rank:
                for other in others:
                    ends = rank, other
                    result = self.aside(0, item)
                    self.send(sequences + _BROADCAST, "gather", item, ends, result)

    def _from_own(self, items: Sequence[Item], server: int, rank: int) -> Iterator[Item]:
        """The chunks of each loop, from the GPU's own place on."""
        parts = len(self._of.heads)
        shift = self._of.servers[server].index(rank) % parts
        for first in range(0, len(items), parts):
            loop = items[first : first + parts]
            yield from (*loop[shift:], *loop[:shift])

    # ------------------------------------------------------------------ CollNetChain

    def _up(self, sequences: int, items: Sequence[Item], chain: Sequence[int], place: int) -> None:
        rank, before = chain[place], chain[place + 1 : place + 2]
        sequence = sequences + _REDUCE
        done: list[Item] = []
        for item, later in self.in_advance(items):
            if later is not None:
                for other in before:
                    ends = other, rank
                    self.receive(sequence, "up", later, ends, later.block, reduce=True)
            if item is None:
                continue
            if place:
                self.send(sequence, "up", item, (rank, chain[place - 1]), item.block)
            else:
                self._exchange(sequence, item, rank, done)
        self._keep_last(sequence, rank, done)

    def _down(
        self, sequences: int, items: Sequence[Item], chain: Sequence[int], place: int
    ) -> None:
        rank, after = chain[place], chain[place + 1 : place + 2]
        sequence = sequences + _BROADCAST
        for item, later in self.in_advance(items):
            if later is not None and place:
                ends = chain[place - 1], rank
                self.receive(sequence, "down", later, ends, self.aside(0, later))
            if item is not None:
                for other in after:
                    self.send(sequence, "down", item, (rank, other), self.aside(0, item))
                if place:
                    self.builder.copy(rank, self.aside(0, item), item.block, sequence)

    # ------------------------------------------------------------------ the network

    def _exchange(self, sequence: int, item: Item, head: int, done: list[Item]) -> None:
        """A head's chunk, to the network and back; `done` are those before it."""
        window = self.ahead + 1
        if len(done) >= window:
            self._keep(sequence, head, done[len(done) - window])
        self._network.exchange(sequence, item, head, item.block, self.aside(0, item))
        done.append(item)

    def _keep_last(self, sequence: int, head: int, done: Sequence[Item]) -> None:
        for item in done[-(self.ahead + 1) :]:
            self._keep(sequence, head, item)

    def _keep(self, sequence: int, head: int, item: Item) -> None:
        self.builder.copy(head, self.aside(0, item), item.block, sequence)
