"""The plan of an aggregation node, made before it starts: data alone, for the emulator to make."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from collectives.in_network.node import Aggregator
from topologies.spec.collectives_section import CollectivesSection
from topologies.spec.workload_types import Payload
from workloads.execution.aggregation.place import TreePlace


@dataclass(frozen=True, slots=True)
class NodePlan:
    """All that an aggregation node needs to know before it starts: the trees that it is in, by the
    ranks of their groups, where the locks of streams lie, and where it says who held its slots.

    A switch that several jobs share has a process of each, and one unit: `shared_unit` is a file
    that has its state. Where a program makes groups as it runs, the node is told of its trees in
    the pipe of `directory` (`given`), and `places` are none."""

    node: Aggregator
    places: tuple[tuple[tuple[int, ...], TreePlace], ...]
    locks: Path
    log: Path
    collectives: CollectivesSection
    payload: Payload = "checked"
    shared_unit: Path | None = None
    directory: Path | None = None
