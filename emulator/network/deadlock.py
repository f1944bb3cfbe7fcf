"""Deadlocks of lossless queues: egress ports that are paused because of each other, in a ring.

A paused port, or one without credits, waits until its neighbour has sent on what came in by the
link between them. When
enough of that waits for a port that is paused as well, and so on back to the first, no pause in the
ring will ever be taken back (Dally and Seitz 1987; with priority flow control: Hu et al., HotNets
2016).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import networkx as nx

from emulator.network.network import Network
from emulator.ports.arrangement import PortContext
from emulator.ports.port_qdisc import Waiting, read_waiting
from emulator.switches.stock_switch import SwitchArrangement
from topologies.fabrics.fabric import Fabric, Link, headroom_bytes
from topologies.spec.queue_section import ClassQueue, Credits, Lossless, queue_of, queues_in

_SHORTEST_INTERVAL_S = 0.05
_DRAINS = 4
"""Two checks are further apart than any pause that resolves itself: this many times what a port
needs to send all that may have come in by it."""


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

    Bytes that came in by a lossless port count when they are not below XON, and those with credits
    when they leave no place for a frame: less than that does not keep the neighbour paused.
    """
    found = []
    graphs: dict[int, nx.DiGraph[str]] = {}
    for node, rows in waiting.items():
        by_index = {context.ifindex: context for context in contexts[node]}
        for row in rows:
            egress, ingress = by_index.get(row.egress), by_index.get(row.ingress)
            if egress is None or ingress is None or not row.paused:
                continue
            queue = queue_of(ingress.port.queue, row.priority)
            if _keeps_paused(queue, ingress.link, row.bytes):
                upstream = ingress.link.other(node)
                graph = graphs.setdefault(row.priority, nx.DiGraph())
                graph.add_edge(upstream.interface, egress.port.interface)
    for priority, graph in sorted(graphs.items()):
        for cycle in nx.simple_cycles(graph):
            start = cycle.index(min(cycle))
            found.append(Deadlock(tuple(cycle[start:] + cycle[:start]), priority))
    return tuple(sorted(found, key=lambda deadlock: (deadlock.priority, deadlock.ports)))


def _keeps_paused(queue: ClassQueue, link: Link, held_bytes: int) -> bool:
    match queue:
        case Lossless(xon_bytes=xon_bytes):
            return held_bytes >= xon_bytes
        case Credits(buffer_bytes=buffer_bytes):
            return held_bytes + link.frame_bytes > buffer_bytes
        case _:
            return False


class DeadlockWatch:
    """Looks for deadlocks at intervals of the run's own time; two checks in a row must agree. A
    context manager."""

    def __init__(self, network: Network, on_deadlock: Callable[[Deadlock], None]) -> None:
        self._network = network
        self._on_deadlock = on_deadlock
        self._interval_s = _interval_s(network.fabric)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="deadlock-watch", daemon=True)

    def __enter__(self) -> DeadlockWatch:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        before: frozenset[Deadlock] = frozenset()
        while not self._done.wait(self._interval_s):
            now = frozenset(find_deadlocks(self._network))
            lasting = before & now
            if lasting:
                self._on_deadlock(min(lasting, key=str))
                return
            before = now


def _interval_s(fabric: Fabric) -> float:
    longest = _SHORTEST_INTERVAL_S
    for link in fabric.links:
        for queue in (*queues_in(link.a.queue), *queues_in(link.b.queue)):
            if isinstance(queue, Lossless):
                held = queue.xoff_bytes + (queue.headroom_bytes or headroom_bytes(link))
            elif isinstance(queue, Credits):
                held = queue.buffer_bytes
            else:
                continue
            longest = max(longest, _DRAINS * held * 8 / link.rate_bps)
    return longest
