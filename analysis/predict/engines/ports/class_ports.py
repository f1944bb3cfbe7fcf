"""Ports that serve several classes of traffic: what waits, and which class goes next.

As the port qdisc does (`emulator/kernel/gwport_queue.c`): a class of strict priority goes before
those of lower ones, and all of them before those that share by weight, which deficit round robin
serves (Shreedhar and Varghese, ToN 1996).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from analysis.predict.engines.wire import Ints
from analysis.predict.interface import Setting
from topologies.fabrics.fabric import L1_OVERHEAD_BYTES, Fabric, Link
from topologies.spec.queue_section import CLASSES, Classes, FqCodel, QueueSpec

Waiting = TypeVar("Waiting")


@dataclass(frozen=True, slots=True)
class ClassRules:
    """The class that serves each class selector at a port, and the quantum in bytes of those that
    share by weight."""

    served_by: tuple[int, ...]
    quantum_bytes: Mapping[int, float]

    @classmethod
    def of(cls, queue: QueueSpec, link: Link) -> ClassRules:
        """The rule at a port. Where the spec has no classes there, each class selector is one of
        its own, but with fq_codel."""
        if not isinstance(queue, Classes):
            single = isinstance(queue, FqCodel)
            return cls((0,) * CLASSES if single else tuple(range(CLASSES)), {})
        weights = {e.priority: e.weight for e in queue.classes.values() if e.weight is not None}
        frame = link.frame_bytes + L1_OVERHEAD_BYTES
        least = min(weights.values(), default=1)
        return cls(
            tuple(queue.of(priority).priority for priority in range(CLASSES)),
            {priority: frame * weight / least for priority, weight in weights.items()},
        )


def class_rules(fabric: Fabric) -> list[ClassRules]:
    """By directed link (`paths`)."""
    return [ClassRules.of(port.queue, link) for link in fabric.links for port in (link.a, link.b)]


def priorities_of(setting: Setting, ranks: Ints, carried: bool) -> list[int]:
    """The class selector of what each of these ends sends; switches that aggregate, numbered after
    the ranks, have that of the first rank."""
    known = setting.priorities[carried] or (0,)
    return [known[rank] if rank < len(known) else known[0] for rank in ranks.tolist()]


@dataclass(slots=True)
class _Port(Generic[Waiting]):
    queues: list[deque[tuple[Waiting, float, float]]]
    busy: bool = False
    turn: int = 0
    deficit_bytes: dict[int, float] = field(default_factory=dict)


class ClassPorts(Generic[Waiting]):
    """All ports, by directed link. A waiting item has a size on the wire, in bytes."""

    def __init__(self, rules: Sequence[ClassRules]) -> None:
        self._rules = rules
        self._ports: list[_Port[Waiting]] = [
            _Port([deque() for _ in range(CLASSES)]) for _ in rules
        ]

    def put(self, link: int, priority: int, what: Waiting, size_bytes: float, now: float) -> bool:
        """Comes to a port. Whether the port is idle, so that `next` is to be asked."""
        port = self._ports[link]
        port.queues[self._rules[link].served_by[priority]].append((what, size_bytes, now))
        return not port.busy

    def next(self, link: int) -> tuple[Waiting, float] | None:
        """The item that the port sends now, and when it came; None: the port becomes idle."""
        port, quantum = self._ports[link], self._rules[link].quantum_bytes
        port.busy = False
        for priority in reversed(range(CLASSES)):
            if port.queues[priority] and priority not in quantum:
                return self._take(port, priority)
        return self._by_weight(port, quantum)

    def _by_weight(
        self, port: _Port[Waiting], quantum: Mapping[int, float]
    ) -> tuple[Waiting, float] | None:
        if not any(port.queues[priority] for priority in quantum):
            return None
        while True:
            deficit = port.deficit_bytes.get(port.turn, 0.0)
            if port.queues[port.turn] and deficit > 0:
                port.deficit_bytes[port.turn] = deficit - port.queues[port.turn][0][1]
                return self._take(port, port.turn)
            if not port.queues[port.turn]:
                port.deficit_bytes[port.turn] = min(0.0, deficit)
            port.turn = (port.turn + 1) % CLASSES
            if port.queues[port.turn] and port.turn in quantum:
                before = port.deficit_bytes.get(port.turn, 0.0)
                port.deficit_bytes[port.turn] = before + quantum[port.turn]

    def _take(self, port: _Port[Waiting], priority: int) -> tuple[Waiting, float]:
        port.busy = True
        what, _, came_ns = port.queues[priority].popleft()
        return what, came_ns
