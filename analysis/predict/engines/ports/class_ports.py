"""Ports that serve several classes of traffic: the rules by which classes go.

As the port qdisc does (`emulator/kernel/gwport_queue.c`): a class of strict priority goes before
those of lower ones, and all of them before those that share by weight, which deficit round robin
serves (Shreedhar and Varghese, ToN 1996).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analysis.predict.engines.wire import Ints
from analysis.predict.interface import Setting
from topologies.fabrics.fabric import L1_OVERHEAD_BYTES, Fabric, Link
from topologies.spec.queue_section import CLASSES, Classes, FqCodel, QueueSpec


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
