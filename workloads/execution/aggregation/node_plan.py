"""What an aggregation node knows before it starts: data alone, for the emulator to make."""

from __future__ import annotations

from dataclasses import dataclass

from collectives.in_network.node import Aggregator
from topologies.spec.collectives_section import CollectivesSection
from topologies.spec.workload_types import Payload
from workloads.execution.aggregation.place import TreePlace


@dataclass(frozen=True, slots=True)
class NodePlan:
    """All that an aggregation node needs to know before it starts; `ranks` are those of its
    collectives."""

    node: Aggregator
    ranks: int
    place: TreePlace
    collectives: CollectivesSection
    payload: Payload = "checked"
