"""NCCL's algorithms as programs: rings, trees, NVLS, CollNet, PAT and grouped sends, by channels.

`collectives.nccl` chooses which of them runs, with how many channels and chunks; its schedule fills
in the options here. Each channel is a sequence of its own (two for a tree: up and down). A rank
handles a channel's chunks one after the other, as NCCL's kernels do (src/device/all_reduce.h and
its neighbours, 2.27), and receives ahead as far as the buffer of a connection reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from collectives.algorithms.base import Algorithm, DoesNotFit, Team, rotated
from collectives.algorithms.channel_flow import Item
from collectives.algorithms.collnet import CollNet, CollNetFlow
from collectives.algorithms.multicast import Multicast, MulticastFlow
from collectives.builder import Builder, Move
from collectives.in_network.node import Aggregator
from collectives.kinds import Kind
from collectives.nccl.communicator import Tree
from collectives.program import PROGRAM_KINDS, Blocks, Buffer


def _given() -> dict[str, bool]:
    return {"asked": False}


@dataclass(frozen=True, kw_only=True)
class Nccl(Algorithm):
    """NCCL's own choice on the servers of the fabric; it has no options of its own.

    `way` is ring, tree, nvls, collnet, pat or p2p; `multicast` are the switches of nvls, `collnet`
    those of collnet. A channel's part of the data is cut into `loops` chunks, of each member (a
    ring) or head (nvls, collnet) or in all, and each of them into `slices`. A rank posts `ahead`
    receives of a channel before it needs them.
    """

    name = "nccl"
    parts = frozenset(PROGRAM_KINDS)

    way: str = field(default="", metadata=_given())
    rings: tuple[tuple[int, ...], ...] = field(default=(), metadata=_given())
    trees: tuple[Tree, ...] = field(default=(), metadata=_given())
    loops: int = field(default=1, metadata=_given())
    slices: int = field(default=1, metadata=_given())
    ahead: int = field(default=8, metadata=_given())
    p2p_channels: int = field(default=1, metadata=_given())
    multicast: Multicast | None = field(default=None, metadata=_given())
    collnet: CollNet | None = field(default=None, metadata=_given())
    channels_of_switches: int = field(default=0, metadata=_given())

    @property
    def window(self) -> int | None:  # type: ignore[override]
        return None if self.way in ("p2p", "nvls", "collnet") else max(1, self.ahead)

    @property
    def channels(self) -> int:
        """Channels that carry data."""
        if self.channels_of_switches:
            return self.channels_of_switches
        return len(self.trees) if self.way == "tree" else len(self.rings)

    @property
    def aggregators(self) -> tuple[Aggregator, ...]:
        of_switches = self.multicast or self.collnet
        return () if of_switches is None else of_switches.nodes

    def check(self, ranks: int) -> None:
        if not self.way:
            found = "nccl with another backend"
            raise DoesNotFit("algorithm", found, "collectives.backend: nccl beside it")

    def pieces(self, kind: Kind, ranks: int) -> int:
        if self.way == "p2p":
            return self.channels
        each = self.channels * self.loops * self.slices
        if kind is not Kind.ALL_REDUCE:
            return each
        if self.multicast is not None:
            return each * len(self.multicast.heads)
        if self.collnet is not None:
            return each * len(self.collnet.parts(0))
        return each * (ranks if self.way == "ring" else 1)

    def reduce_blocks(self, team: Team, blocks: Blocks) -> None:
        if self.way == "pat":
            _pat(team, blocks, self.channels, reduce=True)
            return
        team.builder.phase("reduce-scatter", Kind.REDUCE_SCATTER)
        if self.multicast is not None:
            self._by_switches(team, blocks, self.multicast, reduces=True, gathers=False)
            return
        self._round_rings(team, blocks, reduces=True, gathers=False)

    def gather_blocks(self, team: Team, blocks: Blocks) -> None:
        if self.way == "pat":
            _pat(team, blocks, self.channels, reduce=False)
            return
        team.builder.phase("all-gather", Kind.ALL_GATHER)
        if self.multicast is not None:
            self._by_switches(team, blocks, self.multicast, reduces=False, gathers=True)
            return
        self._round_rings(team, blocks, reduces=False, gathers=True)

    def all_reduce(self, team: Team, blocks: Blocks) -> None:
        team.builder.phase("all-reduce", Kind.ALL_REDUCE)
        if self.way == "tree":
            self._along_trees(team, blocks)
        elif self.multicast is not None:
            self._by_switches(team, blocks, self.multicast, reduces=True, gathers=True)
        elif self.collnet is not None:
            self._by_the_network(team, blocks, self.collnet)
        else:
            self._round_rings(team, blocks, reduces=True, gathers=True)

    def broadcast(self, team: Team, blocks: Blocks, root: int) -> None:
        team.builder.phase("broadcast", Kind.BROADCAST)
        for channel, ring in enumerate(self.rings):
            self._chain(team, blocks, channel, rotated(ring, ring.index(root)), reduce=False)

    def reduce(self, team: Team, blocks: Blocks, root: int) -> None:
        team.builder.phase("reduce", Kind.REDUCE)
        for channel, ring in enumerate(self.rings):
            line = rotated(ring, ring.index(root))
            self._chain(team, blocks, channel, (*line[1:], line[0]), reduce=True)

    def all_to_all(self, team: Team, shard: int) -> None:
        """Grouped sends and receives, in NCCL's order of peers; a message is cut over the channels
        of its pair, which begin at another channel for each peer."""
        builder, ranks = team.builder, team.size
        builder.phase("all-to-all", Kind.ALL_TO_ALL)
        for member in team.members:
            own = Blocks(Buffer.INPUT, member * shard, shard)
            builder.copy(member, own, Blocks(Buffer.OUTPUT, member * shard, shard))
        for distance in range(1, ranks):
            for part in range(shard):
                channel = (distance + part * max(1, self.p2p_channels // shard)) % self.p2p_channels
                moves = []
                for member in team.members:
                    to = (member + distance) % ranks
                    source = Blocks(Buffer.INPUT, to * shard + part)
                    moves.append(
                        Move(member, source, to, Blocks(Buffer.OUTPUT, member * shard + part))
                    )
                builder.round(moves, channel)

    def _round_rings(self, team: Team, blocks: Blocks, reduces: bool, gathers: bool) -> None:
        """Round each channel's ring: every member in turn sends the part of another one."""
        builder, ranks = team.builder, team.size
        each = self.loops * self.slices
        whole = builder.kind is Kind.ALL_REDUCE

        def block(channel: int, loop: int, owner: int, piece: int) -> Blocks:
            if whole:
                at = ((channel * self.loops + loop) * ranks + owner) * self.slices + piece
            else:
                at = (owner * self.channels + channel) * each + loop * self.slices + piece
            return Blocks(blocks.buffer, blocks.start + at)

        for channel, ring in enumerate(self.rings):
            rounds: list[list[Move]] = []
            for loop in range(self.loops):
                steps = [(step + 1, True) for step in range(ranks - 1)] if reduces else []
                steps += [(step, False) for step in range(ranks - 1)] if gathers else []
                for back, reduce in steps:
                    for piece in range(self.slices):
                        moves = []
                        for place, member in enumerate(ring):
                            to = ring[(place + 1) % ranks]
                            owner = ring[(place - back) % ranks]
                            part = block(channel, loop, owner, piece)
                            moves.append(Move(member, part, to, part, reduce))
                        rounds.append(moves)
            # No further ahead than what is received does not overwrite what is still to be sent.
            ahead = min(self.ahead, (ranks - 1) * self.slices) - 1
            _post_ahead(builder, rounds, max(0, ahead), channel)

    def _chain(
        self, team: Team, blocks: Blocks, channel: int, line: Sequence[int], reduce: bool
    ) -> None:
        """From member to member of a line, chunk after chunk."""
        relay = self._relay(team, blocks, channel)
        for place, member in enumerate(line):
            before, after = line[max(0, place - 1) : place], line[place + 1 : place + 2]
            relay.add(member, before, after, channel, reduce)

    def _along_trees(self, team: Team, blocks: Blocks) -> None:
        """Up each channel's tree and down again, in two sequences."""
        for channel, tree in enumerate(self.trees):
            relay = self._relay(team, blocks, channel)
            for rank in team.members:
                above = () if tree.parents[rank] < 0 else (tree.parents[rank],)
                below = tree.children[rank]
                relay.add(rank, below, above, 2 * channel, reduce=True)
                relay.add(rank, above, below, 2 * channel + 1, reduce=False)

    def _by_switches(
        self, team: Team, blocks: Blocks, multicast: Multicast, reduces: bool, gathers: bool
    ) -> None:
        """By NVLink switches: an all-reduce's parts are those of the heads, of other kinds each
        rank is the head of its own."""
        ahead = max(0, self.ahead - 1)
        flow = MulticastFlow(team.builder, multicast, blocks, ahead, reduces, gathers)
        whole = reduces and gathers
        heads = multicast.heads if whole else tuple((rank,) for rank in team.members)
        for channel in range(self.channels):
            if whole:
                flow.write(channel, self._parts(blocks, channel, heads))
                continue
            items = []
            for loop in range(self.loops):
                for part, of_part in enumerate(heads):
                    at = (part * self.channels + channel) * self.loops + loop
                    items.append(Item(Blocks(blocks.buffer, blocks.start + at), of_part))
            flow.write(channel, items)

    def _by_the_network(self, team: Team, blocks: Blocks, collnet: CollNet) -> None:
        """By the network's switches, which add up what the heads of servers have."""
        flow = CollNetFlow(team.builder, collnet, blocks, max(0, self.ahead - 1))
        for channel in range(self.channels):
            flow.write(channel, self._parts(blocks, channel, collnet.parts(channel)))

    def _parts(self, blocks: Blocks, channel: int, heads: Sequence[tuple[int, ...]]) -> list[Item]:
        """The chunks of a channel: in each loop one for the heads of each part, in slices."""
        found = []
        for loop in range(self.loops):
            for piece in range(self.slices):
                for part, of_part in enumerate(heads):
                    at = (channel * self.loops + loop) * len(heads) + part
                    one = Blocks(blocks.buffer, blocks.start + at * self.slices + piece)
                    found.append(Item(one, of_part))
        return found

    def _relay(self, team: Team, blocks: Blocks, channel: int) -> _Relay:
        pieces = self.loops * self.slices
        first = Blocks(blocks.buffer, blocks.start + channel * pieces, pieces)
        return _Relay(team.builder, first, max(0, self.ahead - 1))


class _Relay:
    """Chunks that members pass on, one after the other, in a channel."""

    def __init__(self, builder: Builder, chunks: Blocks, ahead: int) -> None:
        self._builder = builder
        self._chunks = chunks
        self._ahead = ahead
        self._numbers: dict[tuple[int, int, bool, int], int] = {}

    def add(
        self,
        member: int,
        before: Sequence[int],
        after: Sequence[int],
        sequence: int,
        reduce: bool,
    ) -> None:
        """One member's part: it receives each chunk from those before it and sends it to those
        after it; receives are posted ahead of sends."""
        builder, count = self._builder, self._chunks.count
        for turn in range(count + self._ahead):
            if turn < count:
                for peer in before:
                    builder.receive(*self._message(peer, member, turn, reduce), sequence)
            if turn >= self._ahead:
                for peer in after:
                    message = self._message(member, peer, turn - self._ahead, reduce)
                    builder.send(*message, sequence)

    def _message(self, sender: int, receiver: int, turn: int, reduce: bool) -> tuple[int, Move]:
        key = sender, receiver, reduce, turn
        if key not in self._numbers:
            self._numbers[key] = self._builder.number()
        part = Blocks(self._chunks.buffer, self._chunks.start + turn)
        return self._numbers[key], Move(sender, part, receiver, part, reduce)


def _pat(team: Team, blocks: Blocks, channels: int, reduce: bool) -> None:
    """Parallel aggregated trees: along binomial trees, of which each member is the root of one.

    An all-gather goes to the farthest first: with distance d a member sends on what it has from
    those at multiples of 2d. A reduce-scatter goes the same ways back (PatAGAlgorithm and
    PatRSAlgorithm of src/include/collectives.h).
    """
    builder, ranks = team.builder, team.size
    builder.phase(*_PAT_PHASES[reduce])
    each = blocks.count // ranks // channels
    distances = [1 << power for power in range((ranks - 1).bit_length())]
    for distance in distances if reduce else reversed(distances):
        for beyond in range(0, ranks - distance, 2 * distance):
            for channel in range(channels):
                moves = []
                for member in team.members:
                    owner = (member - beyond) % ranks
                    peer = (member + distance) % ranks
                    first = blocks.start + (owner * channels + channel) * each
                    part = Blocks(blocks.buffer, first, each)
                    ends = (peer, member) if reduce else (member, peer)
                    moves.append(Move(ends[0], part, ends[1], part, reduce))
                builder.round(moves, channel)


_PAT_PHASES = {
    True: ("reduce-scatter", Kind.REDUCE_SCATTER),
    False: ("all-gather", Kind.ALL_GATHER),
}


def _post_ahead(
    builder: Builder, rounds: Sequence[Sequence[Move]], ahead: int, channel: int
) -> None:
    """Rounds whose receives are posted so many rounds before their sends."""
    numbers: list[list[int]] = []

    def receive(index: int) -> None:
        numbers.append([builder.number() for _ in rounds[index]])
        for number, move in zip(numbers[index], rounds[index], strict=True):
            builder.receive(number, move, channel)

    for index in range(min(ahead, len(rounds))):
        receive(index)
    for index, moves in enumerate(rounds):
        if index + ahead < len(rounds):
            receive(index + ahead)
        for number, move in zip(numbers[index], moves, strict=True):
            builder.send(number, move, channel)
