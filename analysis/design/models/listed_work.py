"""The work of workloads that list their collectives: operations, and tables of layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from analysis.design.models.demand import Demand, Traffic
from analysis.design.models.messages import bytes_by_dimension, split_degrees, steps_of
from analysis.design.network import Dimension
from analysis.design.point import Work
from collectives.kinds import Kind
from topologies.spec.layers_section import LayersWorkload
from topologies.spec.workload_section import CollectiveOperation, CollectivesWorkload


def traffic_of(
    name: str,
    kind: Kind,
    size_bytes: float,
    group: Sequence[int],
    dimensions: Sequence[Dimension],
    times: float = 1.0,
    window: int | None = None,
) -> Traffic | None:
    """A collective of a group as traffic; None for a group of one. Sizes are the spec's."""
    sent = bytes_by_dimension(kind, size_bytes, group)
    if not any(sent):
        return None
    slowed = tuple(one / dimension.used for one, dimension in zip(sent, dimensions, strict=True))
    latency_ns = sum(
        steps_of(kind, dimension.kind, ranks) * dimension.latency_ns
        for dimension, ranks in zip(dimensions, group, strict=True)
    )
    return Traffic(name, slowed, times, latency_ns, window)


def merged(traffic: Iterable[Traffic | None]) -> tuple[Traffic, ...]:
    """Traffic of the same shape as one, as far as its proportions are the same: a hundred layers
    are then as quick to solve as one."""
    found: dict[object, Traffic] = {}
    for one in traffic:
        if one is None:
            continue
        largest = max(one.bytes_by_dimension)
        shares = tuple(round(sent / largest, 12) for sent in one.bytes_by_dimension)
        key = (one.name, shares, one.window)
        before = found.get(key)
        if before is None:
            total = tuple(sent * one.times for sent in one.bytes_by_dimension)
            found[key] = Traffic(one.name, total, 1.0, one.latency_ns * one.times, one.window)
        else:
            sums = zip(before.bytes_by_dimension, one.bytes_by_dimension, strict=True)
            total = tuple(a + b * one.times for a, b in sums)
            latency_ns = before.latency_ns + one.latency_ns * one.times
            found[key] = Traffic(one.name, total, 1.0, latency_ns, one.window)
    return tuple(found.values())


def work_of_operations(workload: CollectivesWorkload, dimensions: Sequence[Dimension]) -> Work:
    """Operations one after the other, each over all ranks."""
    sizes = [dimension.size for dimension in dimensions]
    found = [
        traffic_of(operation.kind, Kind(operation.kind), operation.size_bytes, sizes, dimensions)
        for operation in workload.operations
        if isinstance(operation, CollectiveOperation)
    ]
    return Work(Demand(0.0, merged(found)))


def work_of_layers(workload: LayersWorkload, dimensions: Sequence[Dimension]) -> Work | None:
    """LIBRA's iteration (its no_overlap): all computing and all collectives of each layer, one
    after the other, in each pass. None when its groups do not divide the dimensions."""
    groups = layer_groups(workload, tuple(dimension.size for dimension in dimensions))
    if groups is None:
        return None
    compute_ns = 0.0
    found = []
    for layer in workload.layers:
        for phase in ("forward", "input_gradient", "weight_gradient"):
            part = getattr(layer, phase)
            compute_ns += part.compute_ns * workload.passes
            group = groups["data" if phase == "weight_gradient" else "model"]
            if part.collective is None or group is None:
                continue
            kind = Kind(part.collective)
            size_bytes = part.size_bytes * kind.traits.contributions(prod(group))
            found.append(
                traffic_of(kind.value, kind, size_bytes, group, dimensions, workload.passes)
            )
        compute_ns += layer.update_ns * workload.passes
    return Work(Demand(compute_ns, merged(found)))


def layer_groups(
    workload: LayersWorkload, sizes: tuple[int, ...]
) -> dict[str, tuple[int, ...] | None] | None:
    """The ranks that exchange activations (model) and that reduce gradients (data), by dimension;
    None for nobody, and where the groups do not divide the dimensions."""
    whole = sizes
    match workload.parallelism:
        case "data":
            return {"data": whole, "model": None}
        case "model":
            return {"data": None, "model": whole}
        case "hybrid-dlrm":
            return {"data": whole, "model": whole}
        case "weight-streaming":
            return None
    inner = workload.innermost or 1
    parts = split_degrees((inner, workload.ranks // inner), sizes)
    if parts is None:
        return None
    inside, across = parts
    if workload.parallelism == "hybrid-data-model":
        return {"model": inside, "data": across}
    return {"model": across, "data": inside}
