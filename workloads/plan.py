"""What a rank is told before it starts: all that it needs, decided outside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from topologies.compute_spec import ComputeSpec
from topologies.workload_spec import WorkloadSpec


@dataclass(frozen=True, slots=True)
class RankPlan:
    """One rank of a run. `hosts` and `addresses` are by rank; `interface` is the port that Gloo
    uses.
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

    @property
    def world_size(self) -> int:
        return len(self.hosts)
