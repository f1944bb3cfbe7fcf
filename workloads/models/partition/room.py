"""The parts of the workload `partitioned_inference` that `topologies.spec.workloads` names. Their
imports wait until they are used: numpy is a fifth of what a command imports before it boots a
guest."""

from __future__ import annotations

from collections.abc import Iterator

from topologies.spec.partition.section import PartitionedInferenceWorkload
from topologies.spec.spec import Spec
from workloads.models.step import Action


def actions(workload: PartitionedInferenceWorkload, rank: int) -> Iterator[Action]:
    """One iteration of a rank."""
    from workloads.models.partition.splitting import split_of
    from workloads.models.partition.step import inference_step

    return inference_step(workload, split_of(workload), rank)


def inputs(spec: Spec) -> dict[str, str]:
    """The network, which is trained and split here, and the inputs."""
    from workloads.models.partition.split_file import NETWORK_FILE, split_text
    from workloads.models.partition.splitting import batch_of, split_of

    workload = spec.workload
    assert isinstance(workload, PartitionedInferenceWorkload)
    return {NETWORK_FILE: split_text(split_of(workload), batch_of(workload))}
