"""A step and its process groups, whichever model a workload trains or infers with."""

from __future__ import annotations

from collections.abc import Iterator

from topologies.spec.jobs.flows import FlowsWorkload
from topologies.spec.layers_section import LayersWorkload
from topologies.spec.partition.section import PartitionedInferenceWorkload
from topologies.spec.workload_section import DlrmWorkload, ModelWorkload
from workloads.models.dlrm import DlrmModel, dlrm_step
from workloads.models.flow_sizes import flow_steps
from workloads.models.layer_table import layer_steps
from workloads.models.step import Action
from workloads.models.transformer import Stage, training_step


def step_of(workload: ModelWorkload, rank: int) -> Iterator[Action]:
    """One iteration of a rank."""
    if isinstance(workload, DlrmWorkload):
        return dlrm_step(DlrmModel(workload))
    if isinstance(workload, LayersWorkload):
        return layer_steps(workload, rank)
    if isinstance(workload, PartitionedInferenceWorkload):
        # Numpy is a fifth of what a command imports before it boots a guest.
        from workloads.models.partition.splitting import split_of
        from workloads.models.partition.step import inference_step

        return inference_step(workload, split_of(workload), rank)
    if isinstance(workload, FlowsWorkload):
        return flow_steps(workload, rank)
    return training_step(Stage(workload, rank))
