"""How much memory a guest needs for a spec."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from topologies.dlrm_model import DlrmModel
from topologies.spec import Spec
from topologies.training_model import Stage
from topologies.workload_spec import (
    ITEM_BYTES,
    ChakraWorkload,
    CollectivesWorkload,
    DlrmWorkload,
    Incast,
    Operation,
    TrainingWorkload,
)
from workloads.replay_program import DIRECTORY, at_once_bytes, read_program

# The kernel, Python and torch took 440 MB and each rank 15 MB (docs/virtual-kernel.md, "How a guest
# ends"); other builds of torch may take more.
_SYSTEM_BYTES = 800 * 2**20
_RANK_BYTES = 24 * 2**20
# glibc's malloc gives freed memory of at most 32 MiB back only beyond twice as much, and from the
# end of its heap: mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD. The three is from measuring;
# it grows with the number of collectives (docs/virtual-kernel.md).
_LARGEST_KEPT_BYTES = 32 * 2**20
_KEPT = 3
# Between tensors lies unused what they hold, divided by:
_GAPS = 16
# Gloo's process groups run this many collectives at a time, each on a thread of its own; the
# others wait with their tensors filled.
_GLOO_THREADS = 2


@dataclass(frozen=True)
class _Tensors:
    """The most bytes that tensors of one or all ranks hold at a time, of these what is on its way
    at the same time, which sockets hold again, and what malloc keeps of those that are gone."""

    held_bytes: int
    moving_bytes: int
    kept_bytes: int

    @property
    def used_bytes(self) -> int:
        return self.held_bytes + self.held_bytes // _GAPS + self.moving_bytes


def guest_memory_bytes(spec: Spec, run_directory: Path) -> int:
    """Memory that a guest needs: the system and torch, then per rank its own pages, its tensors,
    what is on its way and what malloc keeps of tensors that are gone.

    What a trace exchanges is in the replay programs of the run directory. Raises OSError when they
    are not there, pydantic.ValidationError.
    """
    workload = spec.workload
    ranks = workload.ranks
    transport = spec.transport
    connection_bytes = transport.sndbuf_bytes + transport.rcvbuf_bytes
    if isinstance(workload, CollectivesWorkload):
        calls = [_of_call(workload, call, connection_bytes) for call in workload.operations]
        tensors_bytes = max(call.used_bytes for call in calls)
        if len(calls) > 1 or workload.iterations > 1:
            tensors_bytes += max(call.kept_bytes for call in calls)
    else:
        if isinstance(workload, ChakraWorkload):
            programs = (read_program(run_directory / DIRECTORY, n) for n in range(ranks))
            steps = [_of_trace(at_once_bytes(program)) for program in programs]
        elif isinstance(workload, TrainingWorkload):
            steps = [_of_training(Stage(workload, n), connection_bytes) for n in range(ranks)]
        else:
            steps = [_of_dlrm(workload)] * ranks
        tensors_bytes = sum(step.used_bytes + step.kept_bytes for step in steps)
    return _SYSTEM_BYTES + ranks * _RANK_BYTES + tensors_bytes


def _kept_bytes(*sizes_bytes: int) -> int:
    """What malloc keeps of a rank's tensors of these sizes."""
    return _KEPT * max((size for size in sizes_bytes if size <= _LARGEST_KEPT_BYTES), default=0)


def _of_call(
    workload: CollectivesWorkload, operation: Operation, connection_bytes: int
) -> _Tensors:
    """Inputs and outputs as `workloads.operations` makes them. At a time a rank has a block on its
    way in Gloo's rings and exchanges, and whole messages from each sender to a receiver."""
    size, ranks = operation.size_bytes, workload.ranks
    of_all, of_shards = ranks * _kept_bytes(size), ranks * _kept_bytes(size // ranks)
    match operation.kind:
        case "all_reduce" | "reduce":
            return _Tensors(ranks * size, size, of_all)
        case "all_to_all":
            return _Tensors(2 * ranks * size, size, of_all)
        case "all_gather" | "reduce_scatter":
            return _Tensors(ranks * size + size, size, max(of_all, of_shards))
        case "broadcast":
            return _Tensors(ranks * size, 0, of_all)
        case "gather":
            return _Tensors(2 * size, min(size, (ranks - 1) * connection_bytes), of_shards)
        case "scatter":
            return _Tensors(2 * size, size // ranks, _kept_bytes(size) + of_shards)
        case "incast":
            assert isinstance(operation, Incast)
            degree = operation.degree or ranks - 1
            moving_bytes = degree * min(size, connection_bytes)
            return _Tensors(2 * degree * size, moving_bytes, (degree + 1) * _kept_bytes(size))
        case "permutation":
            return _Tensors(2 * ranks * size, ranks * min(size, connection_bytes), of_all)
        case "send_recv":
            return _Tensors(2 * size, min(size, connection_bytes), 2 * _kept_bytes(size))
        case "barrier":
            return _Tensors(0, 0, 0)


def _of_trace(at_once_bytes: int) -> _Tensors:
    """What depends on nothing may run beside more than `at_once_bytes` counts."""
    return _Tensors(at_once_bytes, 4 * at_once_bytes, 0)


def _of_dlrm(workload: DlrmWorkload) -> _Tensors:
    """As if inputs and outputs of both all-to-alls lasted to the end of the step."""
    model = DlrmModel(workload)
    gradients = _of_buckets(
        model.gradient_buckets, model.item_bytes, workload.overlap, workload.ranks
    )
    exchange_bytes = model.exchanged * model.item_bytes
    return _Tensors(
        gradients.held_bytes + 4 * exchange_bytes,
        gradients.moving_bytes + 2 * exchange_bytes,
        max(gradients.kept_bytes, _kept_bytes(exchange_bytes)),
    )


def _of_training(stage: Stage, connection_bytes: int) -> _Tensors:
    """What a stage sends to its neighbours is kept until the end of the step, like the gradients;
    what it receives and what a layer all-reduces is gone before the next one.
    """
    workload = stage.spec
    item_bytes = ITEM_BYTES[workload.dtype]
    gradients = _of_buckets(
        stage.gradient_buckets, item_bytes, workload.overlap, workload.parallelism.data
    )
    activation_bytes = stage.activation * item_bytes
    neighbours = (not stage.first) + (not stage.last)
    sent_bytes = neighbours * workload.microbatches * activation_bytes
    passing_bytes = activation_bytes if neighbours or workload.parallelism.tensor > 1 else 0
    return _Tensors(
        gradients.held_bytes + sent_bytes + passing_bytes,
        gradients.moving_bytes + min(sent_bytes + passing_bytes, 2 * connection_bytes),
        max(gradients.kept_bytes, _kept_bytes(activation_bytes)),
    )


def _of_buckets(parameters: list[int], item_bytes: int, overlap: bool, ranks: int) -> _Tensors:
    """A rank's. With overlap, all buckets are filled before the first is waited for."""
    largest_first = sorted((count * item_bytes for count in parameters), reverse=True)
    if not overlap:
        largest_first = largest_first[:1]
    return _Tensors(
        sum(largest_first),
        sum(largest_first[:_GLOO_THREADS]) // ranks,
        _kept_bytes(*largest_first),
    )
