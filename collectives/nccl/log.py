"""NCCL's choices as NCCL logs them with NCCL_DEBUG=INFO, and read back from such a log.

The lines are those of src/init.cc, src/graph/search.cc, src/graph/rings.cc, src/enqueue.cc and
src/transport/net_socket.cc of 2.27, each behind `HOST:PID:TID [DEVICE] NCCL INFO`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from collectives.kinds import Kind
from collectives.nccl.communicator import Communicator
from collectives.nccl.graph import Graph, Pattern
from collectives.nccl.tuner import FUNCTION_OF, Tuner
from topologies.spec.collectives_section import socket_threads


def log_lines(tuner: Tuner, asked: Sequence[tuple[Kind, int]]) -> Iterator[str]:
    """The lines of all ranks, rank by rank; `asked` are collectives with their sizes in bytes."""
    comm = tuner.communicator
    for rank in range(comm.size):
        node, index = comm.place[rank]
        for line in _lines_of_rank(tuner, rank, asked):
            yield f"server{node}:{rank}:{rank} [{index}] NCCL INFO {line}"


def _lines_of_rank(tuner: Tuner, rank: int, asked: Sequence[tuple[Kind, int]]) -> Iterator[str]:
    comm = tuner.communicator
    node, index = comm.place[rank]
    threads, each = socket_threads(comm.environment.given)
    if threads * each:
        yield f"NET/Socket: Using {threads} threads and {each} sockets per thread"
    graphs = comm.of_servers[node]
    for graph in (graphs.ring, graphs.tree, graphs.chain, graphs.direct, graphs.nvls):
        if graph.channels:
            yield from _graph_lines(graph)
    yield (
        f"comm 0x0 rank {rank} nRanks {comm.size} nNodes {comm.nodes} "
        f"localRanks {len(comm.ranks[node])} localRank {index} MNNVL 0"
    )
    if rank == 0:
        for channel, ring in enumerate(comm.rings):
            members = "".join(f" {member:3d}" for member in ring)
            yield f"Channel {channel:02d}/{comm.channels:02d} : {members}"
    parts = []
    for channel, tree in enumerate(comm.trees):
        below = [*tree.children[rank], -1, -1, -1][:3]
        parts.append(f"[{channel}] {below[0]}/{below[1]}/{below[2]}->{rank}->{tree.parents[rank]}")
    yield "Trees " + " ".join(parts)
    if comm.collnet:
        yield from _collnet_lines(comm, rank)
    if rank in comm.ranks[0] and comm.nodes > 1:
        for number, head in enumerate(comm.nvls_heads):
            yield f"NVLS Head {number:2d}:" + "".join(f" {one:2d}" for one in head[:20])
    if trees := comm.nvls_trees(rank):
        shown = [f"{'/'.join(map(str, below))}->{rank}->{above}" for below, above in trees]
        yield "NVLS Trees : " + " ".join(shown)
    yield f"threadThresholds 8/8/64 | {8 * comm.size}/8/64 | 512 | 512"
    yield (
        f"{comm.channels} coll channels, {comm.channels} collnet channels, "
        f"{comm.nvls_channels} nvls channels, {comm.p2p_channels} p2p channels, "
        f"{comm.p2p_channels_per_peer} p2p channels per peer"
    )
    if rank == 0:
        for kind, size_bytes in asked:
            one = tuner.choose(kind, size_bytes)
            algorithm = _TOLD.get(one.algorithm, one.algorithm.upper())
            yield (
                f"{one.function}: {size_bytes} Bytes -> Algo {algorithm} "
                f"proto {one.protocol.upper()} channel{{Lo..Hi}}={{0..{one.channels - 1}}}"
            )


def _collnet_lines(comm: Communicator, rank: int) -> Iterator[str]:
    """A rank's heads in each channel (connectCollNet of src/graph/connect.cc)."""
    node, index = comm.place[rank]
    heads = [head[node] for head in comm.collnet_heads]
    at = heads.index(rank) if rank in heads else -1
    below = [one for one in comm.ranks[node] if one != rank] if at >= 0 else []
    above = [one for one in heads if one != rank]
    ordered = [heads[(max(0, at) + place) % len(heads)] for place in range(len(heads))]
    shown = ["".join(f" {one} " for one in ranks) for ranks in (below, above, ordered)]
    told = f"down {shown[0]}nDown {len(below)} " if at >= 0 else ""
    for channel in range(comm.channels):
        yield (
            f"CollNetDirect channel {channel} rank {rank} {told}up {shown[1]}"
            f"heads {shown[2]}nUp {len(above)} nHeads {len(heads)} headRank {at} "
            f"out {comm.size if at >= 0 else -1} shift {index % len(heads)}"
        )


def _graph_lines(graph: Graph) -> Iterator[str]:
    yield (
        f"Pattern {graph.pattern.value}, crossNic {graph.cross_nic}, nChannels {graph.channels}, "
        f"bw {graph.bw_intra:f}/{graph.bw_inter:f}, "
        f"type {graph.type_intra.name}/{graph.type_inter.name}, "
        f"sameChannels {int(graph.same_channels)}"
    )
    for channel, gpus in enumerate(graph.intra):
        shown = gpus[:1] if graph.pattern is Pattern.NVLS else gpus
        ends = [f"NET/0-{n}" for n in graph.inter[channel]]
        between = [f"GPU/0-{g}" for g in shown]
        yield f"{channel:2d} : " + " ".join([*ends[:1], *between, *ends[1:]])


_TOLD = {
    "NVLSTree": "NVLS_TREE",
    "CollNetDirect": "COLLNET_DIRECT",
    "CollNetChain": "COLLNET_CHAIN",
}
"""ncclAlgoToString of src/enqueue.cc; others are in capitals."""


@dataclass
class LoggedChoices:
    """The choices that a log tells. `rings` and `trees` (rank -> parent) are by channel, `counts`
    by name, `choices` by function and size; `graphs` are the patterns' lines of the first rank,
    `heads` those of NVLS by part."""

    rings: dict[int, tuple[int, ...]] = field(default_factory=dict)
    trees: dict[tuple[int, int], tuple[int, frozenset[int]]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    choices: dict[tuple[str, int], tuple[str, str, int]] = field(default_factory=dict)
    graphs: dict[int, str] = field(default_factory=dict)
    heads: dict[int, tuple[int, ...]] = field(default_factory=dict)


_RING = re.compile(r"Channel (\d+)/(\d+) :((?:\s+\d+)+)\s*$")
_TREE = re.compile(r"\[(\d+)\] (-?\d+)/(-?\d+)/(-?\d+)->(\d+)->(-?\d+)")
_COUNT = re.compile(r"(\d+) (coll channels|nvls channels|p2p channels per peer|p2p channels)")
_CHOICE = re.compile(
    r"(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+)"
    r"(?: time [\d.]+)?(?: channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\})?"
)
_HEAD = re.compile(r"NVLS Head +(\d+):((?: +\d+)+)\s*$")
_PATTERN = re.compile(
    r"Pattern (\d+), (crossNic \d+, nChannels \d+, bw [\d.]+/[\d.]+, type \w+/\w+)"
)


def read_log(text: str) -> LoggedChoices:
    """The choices that a log has; lines of other kinds are passed over. The one of several
    communicators with the most ranks in a ring counts."""
    found = LoggedChoices()
    for line in text.splitlines():
        if (ring := _RING.search(line)) is not None:
            members = tuple(int(one) for one in ring[3].split())
            known = found.rings.get(0, ())
            if int(ring[1]) == 0 and len(members) > len(known):
                found.rings.clear()
            if not found.rings or len(members) == len(next(iter(found.rings.values()))):
                found.rings[int(ring[1])] = members
        elif "Trees [" in line:
            for channel, *below, rank, above in _TREE.findall(line):
                children = frozenset(int(one) for one in below if one != "-1")
                found.trees[int(channel), int(rank)] = int(above), children
        elif "coll channels" in line:
            found.counts |= {name: int(count) for count, name in _COUNT.findall(line)}
        elif (choice := _CHOICE.search(line)) is not None:
            channels = 0 if choice[6] is None else int(choice[6]) - int(choice[5]) + 1
            key = choice[1], int(choice[2])
            found.choices[key] = choice[3].upper(), choice[4].upper(), channels
        elif (head := _HEAD.search(line)) is not None:
            found.heads[int(head[1])] = tuple(int(one) for one in head[2].split())
        elif (pattern := _PATTERN.search(line)) is not None:
            found.graphs.setdefault(int(pattern[1]), pattern[2])
    return found


def differences(ours: LoggedChoices, theirs: LoggedChoices) -> Iterator[str]:
    """Differences of a log from ours, a line each. A choice that only one tells does not count."""
    for name, wanted in sorted(theirs.counts.items()):
        if name in ours.counts and ours.counts[name] != wanted:
            yield f"{name}: log {wanted}, here {ours.counts[name]}"
    for number, text in sorted(theirs.graphs.items()):
        if number in ours.graphs and ours.graphs[number] != text:
            yield f"pattern {number}: log {text}; here {ours.graphs[number]}"
    for number, head in sorted(theirs.heads.items()):
        if number in ours.heads and ours.heads[number] != head:
            yield f"NVLS head {number}: log {_shown(head)}; here {_shown(ours.heads[number])}"
    for channel, ring in sorted(theirs.rings.items()):
        if channel in ours.rings and ours.rings[channel] != ring:
            yield f"ring {channel}: log {_shown(ring)}; here {_shown(ours.rings[channel])}"
    for (channel, rank), (above, below) in sorted(theirs.trees.items()):
        mine = ours.trees.get((channel, rank))
        if mine is not None and mine != (above, below):
            yield (
                f"tree {channel}, rank {rank}: log {sorted(below)} -> {rank} -> {above}; "
                f"here {sorted(mine[1])} -> {rank} -> {mine[0]}"
            )
    for (function, size), choice in sorted(theirs.choices.items()):
        own = ours.choices.get((function, size))
        if own is not None and own[: 3 if choice[2] else 2] != choice[: 3 if choice[2] else 2]:
            yield f"{function} of {size} bytes: log {choice}, here {own}"


def _shown(ring: Sequence[int]) -> str:
    return " ".join(map(str, ring))


def compared(tuner: Tuner, text: str) -> tuple[LoggedChoices, list[str]]:
    """The choices of a log, and where it differs from what is chosen here for the same sizes."""
    theirs = read_log(text)
    kinds = {name: kind for kind, name in FUNCTION_OF.items()}
    asked = [(kinds[function], size) for function, size in theirs.choices if function in kinds]
    ours = read_log("\n".join(log_lines(tuner, asked)))
    return theirs, list(differences(ours, theirs))
