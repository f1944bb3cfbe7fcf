"""The groups of ranks in which a workload's collectives run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from topologies.spec.layers_section import LayersWorkload
from topologies.spec.workload_section import TrainingWorkload, WorkloadSpec

GroupName: TypeAlias = Literal["world", "tensor", "data", "model"]


def groups_of(workload: WorkloadSpec) -> dict[GroupName, list[list[int]]]:
    """The groups of ranks of a step's collectives; each kind of group covers all ranks."""
    groups: dict[GroupName, list[list[int]]] = {"world": [list(range(workload.ranks))]}
    if isinstance(workload, TrainingWorkload):
        groups |= training_groups(workload)
    elif isinstance(workload, LayersWorkload):
        groups |= layer_groups(workload)
    return groups


def used_groups(workload: WorkloadSpec) -> tuple[tuple[int, ...], ...]:
    """The groups of two ranks and more that have collectives, each once, in the order in which
    ranks make them: all ranks where these are not divided."""
    groups = groups_of(workload)
    if len(groups) > 1:
        del groups["world"]
    found = [tuple(part) for parts in groups.values() for part in parts if len(part) > 1]
    return tuple(dict.fromkeys(found))


def sort_of(members: Sequence[int]) -> tuple[int, int]:
    """What groups that run the same collectives, at once, have in common: size and stride."""
    return len(members), members[1] - members[0]


def layer_groups(workload: LayersWorkload) -> dict[GroupName, list[list[int]]]:
    """The groups of ranks that exchange activations and those that reduce gradients, where these
    are not all ranks. Neighbours are in the innermost dimension."""
    ranks, inner = workload.ranks, workload.innermost
    if inner is None:
        return {}
    each = ranks // workload.stages
    inside = [list(range(first, first + inner)) for first in range(0, ranks, inner)]
    across = [
        list(range(stage + first, stage + each, inner))
        for stage in range(0, ranks, each)
        for first in range(inner)
    ]
    if workload.parallelism == "hybrid-data-model":
        return {"model": inside, "data": across}
    return {"model": across, "data": inside}


def training_groups(spec: TrainingWorkload) -> dict[GroupName, list[list[int]]]:
    """The groups of ranks that reduce together: activations among the ranks that share a layer,
    gradients among those that hold the same parameters. Each kind of group covers all ranks.
    """
    data, tensor = spec.parallelism.data, spec.parallelism.tensor
    return {
        "tensor": [list(range(first, first + tensor)) for first in range(0, spec.ranks, tensor)],
        "data": [
            [stage * data * tensor + replica * tensor + shard for replica in range(data)]
            for stage in range(spec.parallelism.pipeline)
            for shard in range(tensor)
        ],
    }
