"""A communicator: the rings and trees of its channels over all its servers.

Follows initTransportsRank of src/init.cc, ncclTopoPreset and ncclTopoPostset of
src/graph/connect.cc and ncclTopoComputeP2pChannels of src/graph/paths.cc (2.27).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from collectives.algorithms.trees import binary_tree
from collectives.nccl.environment import MAX_CHANNELS, Environment
from collectives.nccl.graph import Graph, Pattern, joined
from collectives.nccl.graph_file import graphs_on
from collectives.nccl.search import search
from collectives.nccl.server import Server

_NVLS_CHANNELS = {90: 16, 100: 32}
"""NVLS_NCHANNELS_SM90, NVLS_NCHANNELS_SM100 of src/transport/nvls.cc; one server of 100 has 24."""


@dataclass(frozen=True)
class Tree:
    """A tree over ranks: the parent of each (-1 at the root), and its children in NCCL's order."""

    parents: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Graphs:
    """The graphs of one server."""

    ring: Graph
    tree: Graph
    nvls: Graph
    chain: Graph
    direct: Graph


Asked = tuple[Server, bool, int, bool, bool]
"""The arguments of `graphs_of`."""

_KNOWN: dict[Asked, Graphs] = {}


def know(asked: Asked, graphs: Graphs) -> None:
    """Take what was found elsewhere for the arguments of `graphs_of`."""
    _KNOWN.setdefault(asked, graphs)


def graphs_of(
    server: Server, several: bool, cross_nic: int, nvls: bool, collnet: bool = False
) -> Graphs:
    """The search of one server, with its NICs where there are `several` servers."""
    asked = server, several, cross_nic, nvls, collnet
    if asked not in _KNOWN:
        _KNOWN[asked] = _searched(*asked)
    return _KNOWN[asked]


def _searched(server: Server, several: bool, cross_nic: int, nvls: bool, collnet: bool) -> Graphs:
    ring = Graph(Pattern.RING, max_channels=MAX_CHANNELS // 2)
    search(server, several, ring, cross_nic)
    tree = Graph(Pattern.BALANCED_TREE, ring.channels, ring.channels)
    search(server, several, tree, cross_nic)
    heads = Graph(Pattern.NVLS, 1, MAX_CHANNELS)
    if nvls:
        search(server, several, heads, cross_nic)
    chain = Graph(Pattern.TREE, ring.channels, ring.channels, collnet=True)
    direct = Graph(Pattern.COLLNET_DIRECT, 1, MAX_CHANNELS, collnet=True)
    if collnet and several:
        search(server, several, chain, cross_nic)
        search(server, several, direct, cross_nic)
    return Graphs(ring, tree, heads, chain, direct)


@dataclass(frozen=True)
class Communicator:
    """Servers with the ranks on them: `ranks[i]` are those of `servers[i]`, in the order of its
    GPUs. `nvls` says whether the NVLink switches multicast and reduce, `sharp` whether those of
    the network reduce, and `no_sharp` why not."""

    servers: tuple[Server, ...]
    ranks: tuple[tuple[int, ...], ...]
    environment: Environment = field(default_factory=Environment)
    nvls: bool = False
    sharp: bool = False
    no_sharp: str = ""

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return sum(len(one) for one in self.ranks)

    @property
    def nodes(self) -> int:
        """How many servers there are."""
        return len(self.servers)

    @property
    def compute_capability(self) -> int:
        """The least of its GPUs."""
        return min(server.model.compute_capability for server in self.servers)

    @cached_property
    def of_servers(self) -> tuple[Graphs, ...]:
        """The graphs of each server."""
        cross = self.environment.number("NCCL_CROSS_NIC", 2)
        several = self.nodes > 1
        found = [graphs_of(one, several, cross, self.nvls, self.sharp) for one in self.servers]
        path = self.environment.given.get("NCCL_GRAPH_FILE")
        if path is not None:
            ends = zip(found, self.servers, strict=True)
            found = [replace(graphs, **graphs_on(one, path)) for graphs, one in ends]
        return tuple(found)

    @cached_property
    def ring_graph(self) -> Graph:
        """The rings that all servers agree on."""
        return self._joined("ring")

    @cached_property
    def tree_graph(self) -> Graph:
        """The trees that all servers agree on."""
        return self._joined("tree")

    @cached_property
    def nvls_graph(self) -> Graph:
        """The heads of NVLS that all servers agree on; without channels where there is none."""
        return self._joined("nvls")

    @cached_property
    def chain_graph(self) -> Graph:
        """The chains of CollNet that all servers agree on."""
        return self._joined("chain")

    @cached_property
    def direct_graph(self) -> Graph:
        """The heads of CollNetDirect that all servers agree on."""
        return self._joined("direct")

    @property
    def collnet(self) -> bool:
        """Whether the network's switches take part in collectives: they reduce, there are chains,
        and servers enough (NCCL_COLLNET_NODE_THRESHOLD, initTransportsRank)."""
        enough = self.nodes >= max(2, self.environment.number("NCCL_COLLNET_NODE_THRESHOLD", 2))
        return self.sharp and enough and bool(self.chain_graph.channels)

    @cached_property
    def collnet_heads(self) -> tuple[tuple[int, ...], ...]:
        """The heads of CollNetDirect: for each part of the data the rank of each server that gives
        its sum to the network (connectCollNet of src/graph/connect.cc)."""
        return self._heads("direct", self.direct_graph) if self.collnet else ()

    @cached_property
    def chains(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """CollNetChain: the chain of each channel on each server, the head first."""
        base = self.chain_graph.channels if self.collnet else 0
        found = []
        for channel in range(base):
            graphs = zip(self.of_servers, self.ranks, strict=True)
            chains = (tuple(ranks[g] for g in one.chain.intra[channel]) for one, ranks in graphs)
            found.append(tuple(chains))
        return tuple(found[channel % base] for channel in range(self.channels if base else 0))

    @cached_property
    def max_tree_pattern(self) -> Pattern:
        """The pattern of the server whose is the simplest."""
        return max(one.tree.pattern for one in self.of_servers)

    @cached_property
    def searched(self) -> int:
        """Channels that the search has, before they are doubled."""
        return min(self.ring_graph.channels, self.tree_graph.channels)

    @cached_property
    def channels(self) -> int:
        """Channels of rings and trees."""
        found = min(MAX_CHANNELS, self.searched * 2)
        if (
            self.collnet
            and self.size > self.nodes
            and self.chain_graph.bw_intra > self.chain_graph.bw_inter
        ):
            found = min(MAX_CHANNELS, found + found // 2)
        if (
            self.compute_capability >= 90
            and self.nodes > 1
            and self.ring_graph.bw_intra > 45.0
            and found < 16
        ):
            found *= 2
        found = min(self.environment.number("NCCL_MAX_NCHANNELS", MAX_CHANNELS), found)
        found = max(self.environment.number("NCCL_MIN_NCHANNELS", 0), found)
        return max(found, self.nvls_channels)

    @cached_property
    def nvls_channels(self) -> int:
        """Channels of NVLS; 0 where there is none."""
        if not self.nvls or not self.nvls_graph.channels:
            return 0
        if self.compute_capability >= 100 and self.nodes == 1:
            return 24
        return _NVLS_CHANNELS[100 if self.compute_capability >= 100 else 90]

    @cached_property
    def nvls_heads(self) -> tuple[tuple[int, ...], ...]:
        """The heads of NVLS: for each part of the data the rank of each server that adds it up and
        passes it on (ncclTopoPreset, connectNvls of src/graph/connect.cc)."""
        return self._heads("nvls", self.nvls_graph) if self.nvls_channels else ()

    def nvls_trees(self, rank: int) -> tuple[tuple[tuple[int, ...], int], ...]:
        """The two trees of NVLSTree at a rank: its children there (numbers beyond those of ranks
        are the NVLink switch's parts), and its parent; -1: none. Empty on one server."""
        node = self.place[rank][0]
        if self.nodes == 1 or not self.nvls_heads:
            return ()
        mine = [number for number, head in enumerate(self.nvls_heads) if head[node] == rank]
        down = self.size + 1 + (mine[0] if mine else -1)
        found = []
        for up, below, _ in _double_tree(self.nodes, node):
            others = self.nvls_heads[mine[0]] if mine else ()
            ranks = [others[one] for one in below if one >= 0] if mine else []
            children = tuple([down, *ranks, -1, -1][:3])
            found.append((children, others[up] if mine and up >= 0 else -1))
        return tuple(found)

    @cached_property
    def p2p_channels(self) -> int:
        """Channels of point-to-point messages, a power of two."""
        found = min(self.channels, self.environment.number("NCCL_MAX_P2P_NCHANNELS", MAX_CHANNELS))
        return _power_of_two(max(found, self.environment.number("NCCL_MIN_P2P_NCHANNELS", 1)))

    @cached_property
    def p2p_channels_per_peer(self) -> int:
        """Channels that the messages of a pair are cut over at most (ncclTopoGetNchannels)."""
        least = self.p2p_channels
        for server in self.servers:
            if len(server.gpus) > 1:
                least = min(
                    least, 2 * max(1, int(server.nvlink_gbytes / server.model.nvlink_gbytes))
                )
        if self.nodes > 1:
            beyond = self.environment.number("NCCL_NCHANNELS_PER_NET_PEER", -1)
            if beyond == -1:
                beyond = 2
                while beyond * self.size > self.p2p_channels * 4 and beyond > 1:
                    beyond //= 2
            least = min(least, beyond)
        return min(_power_of_two(least), self.p2p_channels)

    @cached_property
    def rings(self) -> tuple[tuple[int, ...], ...]:
        """The ring of each channel, from rank 0 on."""
        base = [self._ring(channel) for channel in range(self.searched)]
        return tuple(base[channel % len(base)] for channel in range(self.channels))

    @cached_property
    def trees(self) -> tuple[Tree, ...]:
        """The tree of each channel: those of the first half and of the second half of the searched
        channels are the two of a double binary tree."""
        base = [self._tree(channel, half) for half in (0, 1) for channel in range(self.searched)]
        return tuple(base[channel % len(base)] for channel in range(self.channels))

    @cached_property
    def place(self) -> Mapping[int, tuple[int, int]]:
        """Rank -> its server, and which of its ranks it is there."""
        return {
            rank: (node, index)
            for node, ranks in enumerate(self.ranks)
            for index, rank in enumerate(ranks)
        }

    def _heads(self, name: str, agreed: Graph) -> tuple[tuple[int, ...], ...]:
        """The first GPU of each channel on each server; those of the first server once each."""
        found = []
        for channel in range(agreed.channels):
            graphs = zip(self.of_servers, self.ranks, strict=True)
            heads = (ranks[getattr(one, name).intra[channel][0]] for one, ranks in graphs)
            found.append(tuple(heads))
        return tuple({head[0]: head for head in reversed(found)}[first] for first in _firsts(found))

    def _joined(self, name: str) -> Graph:
        return joined([getattr(one, name) for one in self.of_servers])

    def _ring(self, channel: int) -> tuple[int, ...]:
        order: list[int] = []
        swapped = self.ring_graph.cross_nic == 2 and self.searched % 2 == 0
        for node, ranks in enumerate(self.ranks):
            own = channel ^ 1 if swapped and node % 2 else channel
            order += [ranks[g] for g in self.of_servers[node].ring.intra[own]]
        first = order.index(min(order))
        return (*order[first:], *order[:first])

    def _tree(self, channel: int, half: int) -> Tree:
        parents = [-1] * self.size
        children: list[list[int]] = [[] for _ in range(self.size)]
        chains = []
        for node, ranks in enumerate(self.ranks):
            chain = [ranks[g] for g in self.of_servers[node].tree.intra[channel]]
            chains.append(chain)
            for upper, lower in itertools.pairwise(chain):
                parents[lower] = upper
                children[upper].append(lower)
        for node in range(self.nodes):
            up, down, kind = _double_tree(self.nodes, node)[half]
            if up >= 0:
                parents[chains[node][0]] = self._joint(chains, up, kind)
            for which, below in enumerate(down):
                if below >= 0:
                    children[self._joint(chains, node, which)].append(chains[below][0])
        return Tree(tuple(parents), tuple(tuple(one) for one in children))

    def _joint(self, chains: Sequence[Sequence[int]], node: int, which: int) -> int:
        """The rank of a server to which the first or second server below it is connected."""
        pattern = self.of_servers[node].tree.pattern
        index = 0 if pattern is Pattern.TREE else 1
        if which == 1:
            index = 1 if pattern is Pattern.SPLIT_TREE else 0
        return chains[node][index]


def _firsts(heads: Sequence[tuple[int, ...]]) -> list[int]:
    """The first server's heads, each once."""
    return list(dict.fromkeys(head[0] for head in heads))


Place = tuple[int, tuple[int, int], int]
"""The parent, the two children, and which child of its parent a node is; -1: none."""


def _double_tree(nodes: int, node: int) -> tuple[Place, Place]:
    """A node's places in NCCL's double binary tree (ncclGetDtree of src/graph/trees.cc): in the
    first tree, and in its mirror, or for an odd number the first one shifted by one."""
    first = _place(nodes, node)
    shifted = nodes % 2 == 1
    up, down, kind = _place(nodes, (node - 1) % nodes if shifted else nodes - 1 - node)

    def back(number: int) -> int:
        if number < 0:
            return -1
        return (number + 1) % nodes if shifted else nodes - 1 - number

    return first, (back(up), (back(down[0]), back(down[1])), kind)


def _place(nodes: int, node: int) -> Place:
    """A node's place in the first tree; a child that has a lower number than its parent is its
    first."""
    up, kind, down = -1, 0, [-1, -1]
    for child, parent in binary_tree(nodes):
        which = 0 if child < parent else 1
        if child == node:
            up, kind = parent, which
        if parent == node:
            down[which] = child
    return up, (down[0], down[1]), kind


def _power_of_two(number: int) -> int:
    """The next power of two."""
    return 1 << max(0, number - 1).bit_length()
