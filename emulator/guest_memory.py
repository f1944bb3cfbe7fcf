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
    TrainingWorkload,
)
from workloads.replay_program import DIRECTORY, at_once_bytes, read_program

_GATHERING = ("incast", "gather")
# Gloo's process groups run this many collectives at a time, each on a thread of its own; the
# others wait with their tensors filled.
_GLOO_THREADS = 2


@dataclass(frozen=True)
class _Tensors:
    """The most bytes that a rank's tensors hold at a time, and of these what is being exchanged,
    which sockets, queues and Gloo's scratch hold again."""

    held_bytes: int
    exchanged_bytes: int


def guest_memory_bytes(spec: Spec, run_directory: Path) -> int:
    """Memory that a guest needs: the system and torch, then per rank its own pages, its tensors
    and what is on its way.

    What a trace exchanges is in the replay programs of the run directory. Raises OSError when they
    are not there, pydantic.ValidationError.
    """
    workload = spec.workload
    if isinstance(workload, ChakraWorkload):
        programs = (read_program(run_directory / DIRECTORY, n) for n in range(workload.ranks))
        payloads = [at_once_bytes(program) for program in programs]
        return _guest_bytes([_Tensors(payload, payload) for payload in payloads])
    if isinstance(workload, TrainingWorkload):
        return _guest_bytes([_of_training(Stage(workload, n)) for n in range(workload.ranks)])
    tensors = _of_dlrm(workload) if isinstance(workload, DlrmWorkload) else _of_calls(workload)
    return _guest_bytes([tensors] * workload.ranks)


def _guest_bytes(ranks: list[_Tensors]) -> int:
    own_bytes = 40 * 2**20
    return 2**30 + sum(own_bytes + rank.held_bytes + 4 * rank.exchanged_bytes for rank in ranks)


def _of_calls(workload: CollectivesWorkload) -> _Tensors:
    payload = max(operation.size_bytes for operation in workload.operations)
    if any(o.kind in _GATHERING for o in workload.operations):
        payload *= 2
    return _Tensors(payload, payload)


def _of_dlrm(workload: DlrmWorkload) -> _Tensors:
    """Both all-to-alls' inputs and outputs last until the end of the step."""
    model = DlrmModel(workload)
    gradients = _of_buckets(model.gradient_buckets, model.item_bytes, workload.overlap)
    exchange_bytes = 2 * model.exchanged * model.item_bytes
    return _Tensors(
        gradients.held_bytes + 2 * exchange_bytes, gradients.exchanged_bytes + exchange_bytes
    )


def _of_training(stage: Stage) -> _Tensors:
    """What a stage sends to its neighbours is kept until the end of the step, like the gradients;
    what it receives and what a layer all-reduces is gone before the next one.
    """
    workload = stage.spec
    item_bytes = ITEM_BYTES[workload.dtype]
    gradients = _of_buckets(stage.gradient_buckets, item_bytes, workload.overlap)
    activation_bytes = stage.activation * item_bytes
    neighbours = (not stage.first) + (not stage.last)
    sent_bytes = neighbours * workload.microbatches * activation_bytes
    passing_bytes = activation_bytes if neighbours or workload.parallelism.tensor > 1 else 0
    return _Tensors(
        gradients.held_bytes + sent_bytes + passing_bytes,
        gradients.exchanged_bytes + passing_bytes,
    )


def _of_buckets(parameters: list[int], item_bytes: int, overlap: bool) -> _Tensors:
    """With overlap, all buckets are filled before the first is waited for."""
    largest_first = sorted((count * item_bytes for count in parameters), reverse=True)
    if not overlap:
        largest_first = largest_first[:1]
    return _Tensors(sum(largest_first), sum(largest_first[:_GLOO_THREADS]))
