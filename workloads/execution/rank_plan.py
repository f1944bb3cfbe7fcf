"""All that a rank needs to know before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from topologies.spec.collectives_section import CollectivesSection
from topologies.spec.compute_section import ComputeSpec
from topologies.spec.transports.connections import ONE, Connections
from topologies.spec.workload_section import WorkloadSpec
from topologies.spec.workload_types import Payload
from workloads.execution.aggregation.place import TreePlace
from workloads.execution.copies.place import CopiesPlace
from workloads.execution.traffic_class import TrafficClass
from workloads.execution.transports.interface import Place


@dataclass(frozen=True, slots=True)
class RankPlan:
    """One rank of a run. `hosts` and `addresses` are by rank; `interface` is the port that Gloo
    uses.

    With `aligned` all ranks begin an iteration at a common, round time. Ranks of one of several
    jobs begin an iteration when the one before is over, as training does. With `real_time` what
    ranks compute on the way to that takes time.

    With `lazy` two ranks connect when they first communicate.

    `classes` are the classes of groups' packets, by the ranks of the groups that have one of their
    own. Two ranks of a group have so many `connections` by sockets.

    `trees` are the rank's places among switches that aggregate, by the ranks of its groups, where
    there are some. `place` is where it finds its ends of a transport that has some for programs,
    `copies` where it finds those of copies, where messages to others of its server are such.
    """

    rank: int
    hosts: tuple[str, ...]
    addresses: tuple[str, ...]
    interface: str
    store_port: int
    workload: WorkloadSpec
    compute: ComputeSpec
    seed: int
    events: Path
    collectives: CollectivesSection = field(default_factory=CollectivesSection)
    aligned: bool = True
    real_time: bool = False
    payload: Payload = "checked"
    lazy: bool = False
    classes: Mapping[tuple[int, ...], TrafficClass] = field(default_factory=dict)
    trees: Mapping[tuple[int, ...], tuple[TreePlace, ...]] = field(default_factory=dict)
    place: Place | None = None
    copies: CopiesPlace | None = None
    connections: Connections = ONE

    @property
    def world_size(self) -> int:
        return len(self.hosts)
