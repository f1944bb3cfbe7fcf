"""Deadlocks of lossless queues: egress ports that are paused because of each other, in a ring.

A paused port waits until its neighbour has sent on what came in by the link between them. When
enough of that waits for a port that is paused as well, and so on back to the first, no pause in the
ring will ever be taken back (Dally and Seitz 1987; with priority flow control: Hu et al., HotNets
2016).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import networkx as nx

from emulator.network import Network
from emulator.port_qdisc import Waiting, read_waiting
from emulator.ports import PortContext
from emulator.stock_switch import SwitchArrangement
from topologies.queue_spec import Lossless


@dataclass(frozen=True, slots=True)
class Deadlock:
    """Interfaces of the egress ports that wait for each other in this order, and their class."""

    ports: tuple[str, ...]
    priority: int

    def __str__(self) -> str:
        ring = " -> ".join((*self.ports, self.ports[0]))
        return f"deadlock of lossless queues, class {self.priority}: {ring}"


def find_deadlocks(network: Network) -> tuple[Deadlock, ...]:
    """The deadlocks in a live network. Raises OSError when nothing in this kernel knows who waits
    where."""
    contexts = {node.name: network.contexts(node.name) for node in network.fabric.nodes}
    arrangement = network.options.arrangement
    if isinstance(arrangement, SwitchArrangement):
        return deadlocks(contexts, arrangement.waiting(contexts))
    waiting = {}
    for node in network.fabric.nodes:
        if len(network.contexts(node.name)) > 1:
            with network.enter(node.name):
                waiting[node.name] = read_waiting()
    return deadlocks(contexts, waiting)


def deadlocks(
    contexts: Mapping[str, Iterable[PortContext]], waiting: Mapping[str, Iterable[Waiting]]
) -> tuple[Deadlock, ...]:
    """The deadlocks among ports, by node, when this waits at them. In order of interface names.

    What came in by a lossless port counts when it is not below XON: less than that does not keep
    the neighbour paused.
    """
    found = []
    graphs: dict[int, nx.DiGraph[str]] = {}
    for node, rows in waiting.items():
        by_index = {context.ifindex: context for context in contexts[node]}
        for row in rows:
            egress, ingress = by_index.get(row.egress), by_index.get(row.ingress)
            if egress is None or ingress is None or not row.paused:
                continue
            queue = ingress.port.queue
            if isinstance(queue, Lossless) and row.bytes >= queue.xon_bytes:
                upstream = ingress.link.other(node)
                graph = graphs.setdefault(row.priority, nx.DiGraph())
                graph.add_edge(upstream.interface, egress.port.interface)
    for priority, graph in sorted(graphs.items()):
        for cycle in nx.simple_cycles(graph):
            start = cycle.index(min(cycle))
            found.append(Deadlock(tuple(cycle[start:] + cycle[:start]), priority))
    return tuple(sorted(found, key=lambda deadlock: (deadlock.priority, deadlock.ports)))
