"""The work of a rank: what a workload has it run once it is connected.

`topologies.spec.workloads` names the part of each workload. It is not how messages travel, which is
`transports/`. Three names to know: `RankWork` (what each declares), `Seat` (what it is given) and
`STEPS` (that of workloads which are actions).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from collectives.groups import groups_of
from topologies.spec.workload_types import GroupName
from workloads.execution.aggregation.client import Trees
from workloads.execution.communicator import Communicator, subgroups
from workloads.execution.compute_model import ComputeModel
from workloads.execution.copies.links import RankCopies
from workloads.execution.events import EventLog
from workloads.execution.process_groups import ProcessGroups
from workloads.execution.rank_plan import RankPlan
from workloads.execution.step_runner import run_steps
from workloads.execution.transports.interface import RankEnds
from workloads.models.build import step_of


@dataclass(frozen=True, slots=True)
class Seat:
    """A connected rank. `on_iteration` is told each iteration that begins."""

    plan: RankPlan
    process_groups: ProcessGroups
    world: Communicator
    compute: ComputeModel
    log: EventLog
    on_iteration: Callable[[int], None]
    ends: RankEnds | None
    trees: Trees
    copies: RankCopies | None = None

    @property
    def run_directory(self) -> Path:
        """The run directory, with what the workload's ranks read."""
        return self.plan.events.parent.parent

    def groups(self) -> dict[GroupName, Communicator]:
        """Communicators of the groups of the workload's actions. Every rank makes all of them."""
        found: dict[GroupName, Communicator] = {"world": self.world}
        for name, partition in groups_of(self.plan.workload).items():
            if name not in found and len(partition[0]) > 1:
                mine = subgroups(
                    self.process_groups,
                    self.log,
                    name,
                    partition,
                    self.world.rank,
                    self.world.size,
                    self.plan.collectives,
                    self.ends,
                    self.world.tensors,
                    self.trees,
                    self.plan.classes,
                    lazy=self.plan.lazy,
                    connections=self.plan.connections,
                    copies=self.copies,
                )
                assert mine is not None  # the parts cover all ranks
                found[name] = mine
        return found


class RankWork(ABC):
    """The part of a workload in the life of a rank."""

    @abstractmethod
    def run(self, seat: Seat) -> None:
        """Run all iterations. Raises numbers.WrongResult when wrong numbers arrived."""


class _Steps(RankWork):
    def run(self, seat: Seat) -> None:
        step = step_of(seat.plan.workload, seat.plan.rank)
        workload, groups = seat.plan.workload, seat.groups()
        run_steps(workload, step, groups, seat.compute, seat.log, seat.on_iteration)


class _Programs(RankWork):
    def run(self, seat: Seat) -> None:
        raise TypeError("programs are not ranks of ours")


STEPS = _Steps()
"""Actions of `workloads.models.build`."""
PROGRAMS = _Programs()
"""Programs of users, which `emulator/ranks/program_jobs.py` starts."""
