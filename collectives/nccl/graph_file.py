"""Graphs as a file of NCCL_GRAPH_FILE or NCCL_GRAPH_DUMP_FILE has them: results of NCCL's search,
or what is to stand in for them.

Follows ncclTopoGetGraphFromXmlSub and ncclTopoGetChannelFromXml of src/graph/search.cc (2.27).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from collectives.nccl.environment import MAX_CHANNELS
from collectives.nccl.graph import Graph, Pattern
from collectives.nccl.server import PathType, Server
from collectives.nccl.topology_file import XmlNode

_NAMES = {0: "ring", 1: "tree", 2: "chain", 3: "nvls", 4: "direct"}
"""The graphs by `id` (initTransportsRank of src/init.cc); 2 and 4 are those of CollNet."""

_TYPES = {one.name: one for one in PathType}

_MOST_GBYTES = 1e5
_DEVICE = 0xFFFF_FFFF
"""Devices have the number of their system in the upper half (NCCL_TOPO_ID)."""


@lru_cache(maxsize=8)
def read_graphs(path: str) -> Mapping[str, Graph]:
    """The graphs of a file by name (ring, tree, chain, nvls, direct), those without channels left
    out, which NCCL searches; GPUs and NICs are as the file numbers them. Raises DoesNotFit."""
    root = _root(path)
    root.whole("version", 1, 1)
    found = {}
    for node in root.below("graph"):
        number = node.whole("id", 0, 7)
        graph = _graph(node)
        if number in _NAMES and graph.channels:
            found[_NAMES[number]] = graph
    return found


def _root(path: str) -> XmlNode:
    return XmlNode.read(path, "NCCL_GRAPH_FILE", "graphs")


def graphs_on(server: Server, path: str) -> dict[str, Graph]:
    """The graphs of a file on a server's GPUs, by name. Raises DoesNotFit for a file that has other
    GPUs or NICs than the server."""
    return {name: _on(server, name, graph, path) for name, graph in read_graphs(path).items()}


def _on(server: Server, name: str, graph: Graph, path: str) -> Graph:
    """A graph with positions of GPUs in place of their numbers."""
    gpus = {gpu: place for place, gpu in enumerate(server.gpus)}
    nics = {nic.number for nic in server.nics}
    found = graph.copy()
    for channel, (intra, inter) in enumerate(zip(graph.intra, graph.inter, strict=True)):
        wrong = len(intra) != len(gpus) and graph.pattern is not Pattern.NVLS
        if wrong or set(intra) - set(gpus):
            allowed = f"those that the ranks of a group have on a server: {_shown(list(gpus))}"
            raise _root(path).refused(f"{name}, channel {channel}: GPUs {_shown(intra)}", allowed)
        if set(inter) - nics:
            raise _root(path).refused(
                f"{name}, channel {channel}: NICs {_shown(inter)}", _shown(sorted(nics))
            )
        found.intra[channel] = [gpus[gpu] for gpu in intra]
    return found


def _graph(node: XmlNode) -> Graph:
    pattern = Pattern(node.whole("pattern", 1, 6))
    channels = list(node.below("channel"))
    if node.whole("nchannels", 0, MAX_CHANNELS) != len(channels):
        allowed = f"{len(channels)}, as many as it has nodes channel"
        raise node.wrong("nchannels", node.text("nchannels"), allowed)
    found = Graph(
        pattern,
        cross_nic=node.whole("crossnic", 0, 2),
        bw_intra=node.number("speedintra", _MOST_GBYTES),
        bw_inter=node.number("speedinter", _MOST_GBYTES),
        type_intra=_TYPES[node.named("typeintra", _TYPES)],
        type_inter=_TYPES[node.named("typeinter", _TYPES)],
        same_channels=bool(node.whole("samechannels", 0, 1)),
    )
    for channel in channels:
        intra, inter = [], []
        for below in channel.below():
            device = below.whole("dev", 0, (1 << 63) - 1) & _DEVICE
            if below.element.tag == "gpu":
                intra.append(device)
            elif below.element.tag == "net":
                inter.append(device)
            else:
                raise below.refused(below.element.tag, "gpu, net")
        if not intra or len(set(intra)) < len(intra):
            raise channel.refused(f"GPUs {_shown(intra)}", "each once")
        if len(inter) not in (0, 2):
            raise channel.refused(f"{len(inter)} nodes net", "none, or 2")
        found.intra.append(intra)
        found.inter.append(inter)
    return found


def _shown(numbers: list[int]) -> str:
    return " ".join(map(str, numbers)) or "none"
