"""A step and its process groups, whichever model a workload trains or infers with."""

from __future__ import annotations

from collections.abc import Iterator

from topologies.spec.jobs.flows import FlowsWorkload
from topologies.spec.layers_section import LayersWorkload
from topologies.spec.partition.section import PartitionedInferenceWorkload
from topologies.spec.workload_section import DlrmWorkload, ModelWorkload, TrainingWorkload
from workloads.models.dlrm import DlrmModel, dlrm_step
from workloads.models.flow_sizes import flow_steps
from workloads.models.layer_table import layer_groups, layer_steps
from workloads.models.partition.splitting import split_of
from workloads.models.partition.step import inference_step
from workloads.models.step import Action, GroupName
from workloads.models.transformer import Stage, training_groups, training_step


def step_of(workload: ModelWorkload, rank: int) -> Iterator[Action]:
    """One iteration of a rank."""
    if isinstance(workload, DlrmWorkload):
        return dlrm_step(DlrmModel(workload))
    if isinstance(workload, LayersWorkload):
        return layer_steps(workload, rank)
    if isinstance(workload, PartitionedInferenceWorkload):
        return inference_step(workload, split_of(workload), rank)
    if isinstance(workload, FlowsWorkload):
        return flow_steps(workload, rank)
    return training_step(Stage(workload, rank))


def groups_of(workload: ModelWorkload) -> dict[GroupName, list[list[int]]]:
    """The groups of ranks of a step's collectives; each kind of group covers all ranks."""
    groups: dict[GroupName, list[list[int]]] = {"world": [list(range(workload.ranks))]}
    if isinstance(workload, TrainingWorkload):
        groups |= training_groups(workload)
    elif isinstance(workload, LayersWorkload):
        groups |= layer_groups(workload)
    return groups
