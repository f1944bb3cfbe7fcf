"""The collectives that a spec will run, before it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from analysis.predictors.interface import CollectiveCall, PredictorError, Setting, Transport
from topologies.build import build_fabric
from topologies.placement import place
from topologies.routing import compute_routes
from topologies.spec import Spec
from topologies.step import Collective
from topologies.workload_spec import (
    ITEM_BYTES,
    CollectivesWorkload,
    DlrmWorkload,
    Incast,
    Permutation,
    RootedCollective,
    SendRecv,
)
from topologies.workload_step import step_of

_SHARDED = frozenset({"all_to_all", "all_gather", "reduce_scatter", "gather", "scatter"})


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A collective of every iteration; `name` is its id in a run without the iteration."""

    name: str
    call: CollectiveCall


def setting_of_spec(spec: Spec) -> Setting:
    """Where the spec's collectives will run. Ports are not known yet: collisions are drawn."""
    fabric = build_fabric(spec.fabric)
    transport = spec.transport
    return Setting(
        fabric,
        compute_routes(fabric),
        place(spec.placement, fabric, spec.workload.ranks, spec.seed),
        Transport(transport.congestion_control, transport.rcvbuf_bytes, transport.sndbuf_bytes),
        spec.seed,
    )


def planned_calls(spec: Spec) -> tuple[PlannedCall, ...]:
    """The collectives of one iteration, in order of posting.

    Raises PredictorError for workloads whose collectives only a run shows.
    """
    workload = spec.workload
    if isinstance(workload, CollectivesWorkload):
        return tuple(_of_benchmark(workload))
    if isinstance(workload, DlrmWorkload):
        return tuple(_of_dlrm(workload))
    raise PredictorError(
        f"workload.kind: {workload.kind} is not predicted ahead; run it, then compare"
    )


def _of_benchmark(workload: CollectivesWorkload) -> Iterator[PlannedCall]:
    ranks = tuple(range(workload.ranks))
    item_bytes = ITEM_BYTES[workload.dtype]
    for index, operation in enumerate(workload.operations):
        # As the benchmark rounds: down to what divides evenly, at least one element each.
        count = max(operation.size_bytes // item_bytes, 1)
        if operation.kind in _SHARDED:
            count = max(count // len(ranks), 1) * len(ranks)
        size_bytes = 0 if operation.kind == "barrier" else count * item_bytes
        call = CollectiveCall(
            operation.kind,
            size_bytes,
            ranks,
            item_bytes,
            root=operation.root
            if isinstance(operation, RootedCollective | SendRecv | Incast)
            else 0,
            degree=operation.degree if isinstance(operation, Incast) else None,
            peer=operation.peer if isinstance(operation, SendRecv) else None,
            shift=operation.shift if isinstance(operation, Permutation) else None,
        )
        yield PlannedCall(f"{operation.kind}.{index}", call)


def _of_dlrm(workload: DlrmWorkload) -> Iterator[PlannedCall]:
    ranks = tuple(range(workload.ranks))
    item_bytes = ITEM_BYTES[workload.dtype]
    for action in step_of(workload, rank=0):
        if isinstance(action, Collective):
            size_bytes = action.elements * item_bytes
            call = CollectiveCall(action.kind, size_bytes, ranks, item_bytes)
            yield PlannedCall(action.name, call)
