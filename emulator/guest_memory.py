"""How much memory a guest needs for a spec."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from topologies.spec import Spec
from topologies.step import Action, Collective, GroupName, Kernel, Message, Wait
from topologies.workload_spec import ITEM_BYTES, ChakraWorkload, CollectivesWorkload, Incast
from topologies.workload_step import groups_of, step_of
from workloads.replay_program import DIRECTORY, at_once_bytes, read_program

# The kernel, Python and torch's CPU build took 440 MB and each rank 15 MB (docs/guest-memory.md).
_SYSTEM_BYTES = 800 * 2**20
# Of builds for accelerators the process from which ranks are forked has 309 MB of its own for 152,
# and 216 MB of files for 80.
_ACCELERATORS_BYTES = 400 * 2**20
_RANK_BYTES = 24 * 2**20
# glibc's malloc gives freed memory of at most 32 MiB back only beyond twice as much, and from the
# end of its heap: mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD. The three is from measuring;
# it grows with the number of collectives (docs/guest-memory.md).
_LARGEST_KEPT_BYTES = 32 * 2**20
_KEPT = 3
# Between tensors lies unused what they hold, divided by:
_GAPS = 16
# What depends on nothing in a trace may run beside more than `at_once_bytes` counts.
_TRACE = 5


@dataclass(frozen=True)
class _Call:
    """What a call takes on all its ranks together, from when it is posted until it is waited for,
    and what malloc keeps of that from then on."""

    used_bytes: int
    kept_bytes: int


def guest_memory_bytes(spec: Spec, run_directory: Path) -> int:
    """Memory that a guest needs: the system and torch, then per rank its own pages, its tensors,
    what is on its way and what malloc keeps of tensors that are gone.

    What a trace exchanges is in the replay programs of the run directory. Raises OSError when they
    are not there, pydantic.ValidationError.
    """
    workload = spec.workload
    ranks = range(workload.ranks)
    connection_bytes = spec.transport.sndbuf_bytes + spec.transport.rcvbuf_bytes
    if isinstance(workload, CollectivesWorkload):
        calls = [
            _call(
                operation.kind,
                operation.size_bytes,
                len(ranks),
                connection_bytes,
                operation.degree if isinstance(operation, Incast) else None,
            )
            for operation in workload.operations
        ]
        tensors_bytes = max(call.used_bytes for call in calls)
        if len(calls) > 1 or workload.iterations > 1:
            tensors_bytes += max(call.kept_bytes for call in calls)
    elif isinstance(workload, ChakraWorkload):
        programs = (read_program(run_directory / DIRECTORY, rank) for rank in ranks)
        at_once = sum(at_once_bytes(program) for program in programs)
        tensors_bytes = _TRACE * at_once + at_once // _GAPS
    else:
        item_bytes = ITEM_BYTES[workload.dtype]
        sizes = {name: len(parts[0]) for name, parts in groups_of(workload).items()}
        tensors_bytes = sum(
            _step_bytes(step_of(workload, rank), item_bytes, sizes, connection_bytes)
            for rank in ranks
        )
    system_bytes = _SYSTEM_BYTES
    if not version("torch").endswith("+cpu"):
        system_bytes += _ACCELERATORS_BYTES
    return system_bytes + len(ranks) * _RANK_BYTES + tensors_bytes


def _step_bytes(
    step: Iterable[Action], item_bytes: int, sizes: Mapping[GroupName, int], connection_bytes: int
) -> int:
    """The most that a rank's shares of calls under way take at a time, and what malloc keeps of
    them; `sizes` are those of its groups."""
    under_way: dict[str, int] = {}
    used = most = kept = 0
    for action in step:
        kind: str
        match action:
            case Kernel():
                continue
            case Wait(name):
                used -= under_way.pop(name)
                continue
            case Collective():
                kind, ranks = action.kind, sizes[action.group]
            case Message():
                kind, ranks = "send_recv", 2
        call = _call(kind, action.elements * item_bytes, ranks, connection_bytes)
        under_way[action.name] = call.used_bytes // ranks
        used += under_way[action.name]
        most = max(most, used)
        kept = max(kept, call.kept_bytes // ranks)
    return most + kept


def _call(
    kind: str, size: int, ranks: int, connection_bytes: int, degree: int | None = None
) -> _Call:
    """Inputs and outputs as `workloads.operations` makes them. At a time a rank has a block on its
    way in Gloo's rings and exchanges, and whole messages from each sender to a receiver, all of
    which sockets hold again."""
    of_all, of_shards = ranks * _kept_bytes(size), ranks * _kept_bytes(size // ranks)
    match kind:
        case "all_to_all":
            tensors, moving, kept = 2 * ranks * size, size, of_all
        case "all_gather" | "reduce_scatter":
            tensors, moving, kept = ranks * size + size, size, max(of_all, of_shards)
        case "broadcast":
            tensors, moving, kept = ranks * size, 0, of_all
        case "gather":
            tensors, moving, kept = 2 * size, min(size, (ranks - 1) * connection_bytes), of_shards
        case "scatter":
            tensors, moving, kept = 2 * size, size // ranks, _kept_bytes(size) + of_shards
        case "incast":
            senders = degree or ranks - 1
            tensors, moving = 2 * senders * size, senders * min(size, connection_bytes)
            kept = (senders + 1) * _kept_bytes(size)
        case "permutation":
            tensors, moving, kept = 2 * ranks * size, ranks * min(size, connection_bytes), of_all
        case "send_recv":
            tensors, moving, kept = 2 * size, min(size, connection_bytes), 2 * _kept_bytes(size)
        case _:  # all-reduce, reduce; a barrier's size is 0
            tensors, moving, kept = ranks * size, size, of_all
    return _Call(tensors + tensors // _GAPS + moving, kept)


def _kept_bytes(size: int) -> int:
    """What malloc keeps of a rank's tensors of this size."""
    return _KEPT * size if size <= _LARGEST_KEPT_BYTES else 0
