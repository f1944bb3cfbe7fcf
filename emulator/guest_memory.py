"""How much memory a guest needs for a spec."""

from __future__ import annotations

from pathlib import Path

from topologies.spec import Spec
from topologies.workload_spec import ChakraWorkload, CollectivesWorkload, DlrmWorkload
from workloads.replay_program import DIRECTORY, at_once_bytes, read_program

_GATHERING = ("incast", "gather")


def guest_memory_bytes(spec: Spec, run_directory: Path) -> int:
    """Memory that a guest needs: the system and torch, then per rank its own pages, its tensors
    (input, output, expected and Gloo's scratch) and what its sockets may hold.

    What a trace exchanges is in the replay programs of the run directory. Raises OSError when they
    are not there, pydantic.ValidationError.
    """
    workload = spec.workload
    if isinstance(workload, ChakraWorkload):
        programs = (read_program(run_directory / DIRECTORY, n) for n in range(workload.ranks))
        payloads = [at_once_bytes(program) for program in programs]
        return 2**30 + sum(map(_rank_bytes, payloads))
    if isinstance(workload, CollectivesWorkload):
        payload = max(operation.size_bytes for operation in workload.operations)
        if any(o.kind in _GATHERING for o in workload.operations):
            payload *= 2
    elif isinstance(workload, DlrmWorkload):
        payload = 2 * workload.bucket_bytes + 8 * workload.batch_size * (
            workload.sparse_features * workload.embedding_dimension
        )
    else:
        payload = 64 * 2**20
    return 2**30 + workload.ranks * _rank_bytes(payload)


def _rank_bytes(payload_bytes: int) -> int:
    return 40 * 2**20 + 5 * payload_bytes
