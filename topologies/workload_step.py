"""A step and its process groups, whichever model a workload trains."""

from __future__ import annotations

from collections.abc import Iterator

from topologies.dlrm_model import DlrmModel
from topologies.dlrm_step import dlrm_step
from topologies.step import Action, GroupName
from topologies.training_model import Stage, training_groups
from topologies.training_step import training_step
from topologies.workload_spec import DlrmWorkload, ModelWorkload, TrainingWorkload


def step_of(workload: ModelWorkload, rank: int) -> Iterator[Action]:
    """One iteration of a rank."""
    if isinstance(workload, DlrmWorkload):
        return dlrm_step(DlrmModel(workload))
    return training_step(Stage(workload, rank))


def groups_of(workload: ModelWorkload) -> dict[GroupName, list[list[int]]]:
    """Who takes part in a step's collectives with whom; each kind of group covers all ranks."""
    groups: dict[GroupName, list[list[int]]] = {"world": [list(range(workload.ranks))]}
    if isinstance(workload, TrainingWorkload):
        groups |= training_groups(workload)
    return groups
