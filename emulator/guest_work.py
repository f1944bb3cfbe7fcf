"""The needs of a workload's ranks in a guest, beside those of any rank: memory, what is sent,
and how long they compute.

`topologies.spec.workloads` names the part of each workload. The whole of a guest's memory is
`guest_memory.py`. Three names to know: `GuestWork` (what each declares,
`workloads/models/guest_work.py`), `guest_work` (that of a spec) and `STEPS` (that of
workloads which are actions).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectives.groups import groups_of
from collectives.kinds import Kind, Shape, rounded_elements
from collectives.program import PROGRAM_KINDS
from collectives.schedule.program import ProgramSchedule
from collectives.settings import schedule_of, settings_of
from emulator.ranks.packing import ranks_per_process
from topologies.spec.spec import Spec
from topologies.spec.workload_section import Incast
from topologies.spec.workload_types import GroupName, Payload
from topologies.spec.workloads import named_parts
from workloads.models.build import step_of
from workloads.models.guest_work import GuestWork
from workloads.models.replay import DIRECTORY, ReplayCompute, at_once_bytes, read_program
from workloads.models.step import (
    Action,
    ComputeKernel,
    Pause,
    StartCollective,
    StartMessage,
    WaitFor,
)

# glibc's malloc gives freed memory of at most 32 MiB back only beyond twice as much, and from the
# end of its heap: mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD. The three is from measuring;
# it grows with the number of collectives (docs/guest-memory.md).
_LARGEST_KEPT_BYTES = 32 * 2**20
_KEPT = 3
# Ranks that are threads free into heaps that they share, where others' tensors lie between: 64 of
# them kept up to five.
_KEPT_BY_THREADS = 5
# Between tensors lies unused what they hold, divided by:
_GAPS = 16
# Python's, torch's and Gloo's memory for a message that is under way, and a rank's log of a call,
# which stays to the end: 5.4 KB for each of a rank's 50,000 flows.
_MESSAGE_BYTES = 6 * 2**10
_EVENT_BYTES = 2**10
# Nodes of a trace that depend on nothing may run beside more than `at_once_bytes` counts.
_TRACE = 5
# A ring's all-reduce sends nearly twice its size from each rank, no other collective sends more.
_SENT_PER_SIZE = 2
# A thread's stack as far as Python touches it, and the kernel's share.
_THREAD_BYTES = 96 * 2**10


class _Listed(GuestWork):
    def tensors_bytes(self, spec: Spec, run_directory: Path) -> int:
        workload = spec.workload.listed
        assert workload is not None
        programs = _ProgramBytes(spec)
        calls = [
            programs.with_them(
                _call(
                    operation.kind,
                    operation.size_bytes,
                    workload.ranks,
                    _connection_bytes(spec),
                    operation.degree if isinstance(operation, Incast) else None,
                    spec.payload,
                ),
                operation.kind,
                operation.size_bytes,
                range(workload.ranks),
                workload.item_bytes,
                getattr(operation, "program", None),
            )
            for operation in workload.operations
        ]
        found = max(call.used_bytes for call in calls)
        if len(calls) > 1 or workload.iterations > 1:
            found += _kept_times(spec) * max(call.kept_bytes for call in calls) // _KEPT
        return found

    def sent_bytes(self, spec: Spec) -> int | None:
        workload = spec.workload.listed
        assert workload is not None
        size_bytes = sum(operation.size_bytes for operation in workload.operations)
        return _SENT_PER_SIZE * size_bytes * workload.ranks * workload.iterations

    def computations_ns(self, spec: Spec, run_directory: Path) -> Iterator[int]:
        yield from ()

    def connected(self, spec: Spec) -> int:
        workload = spec.workload.listed
        assert workload is not None
        others = workload.ranks - 1
        to_all = any(operation.kind == "all_to_all" for operation in workload.operations)
        if spec.collectives.backend != "gloo" or to_all:
            return others
        # Rings know two, trees and barriers powers of two in both directions, a root all others.
        return min(others, 2 * others.bit_length() + 2 * len(workload.operations) + 2)


class _Steps(GuestWork):
    def tensors_bytes(self, spec: Spec, run_directory: Path) -> int:
        workload = spec.workload
        groups = {name: parts[0] for name, parts in groups_of(workload).items()}
        return sum(
            _step_bytes(
                step_of(workload, rank),
                workload.item_bytes,
                groups,
                _connection_bytes(spec),
                _ProgramBytes(spec),
                spec.payload,
                _kept_times(spec),
                workload.iterations,
            )
            for rank in range(workload.ranks)
        )

    def sent_bytes(self, spec: Spec) -> int | None:
        workload = spec.workload
        elements = sum(
            action.elements
            for rank in range(workload.ranks)
            for action in step_of(workload, rank)
            if isinstance(action, StartCollective | StartMessage)
        )
        return _SENT_PER_SIZE * elements * workload.item_bytes * workload.iterations

    def computations_ns(self, spec: Spec, run_directory: Path) -> Iterator[int]:
        workload, compute = spec.workload, spec.compute
        for rank in range(workload.ranks):
            for action in step_of(workload, rank):
                if isinstance(action, Pause):
                    yield action.duration_ns * compute.slowdown
                elif isinstance(action, ComputeKernel) and compute.device != "real":
                    yield compute.time_ns(action.flops, action.moved_bytes, workload.item_bytes)


class _Replayed(GuestWork):
    """The acts of ranks are in the replay programs of the run directory."""

    def tensors_bytes(self, spec: Spec, run_directory: Path) -> int:
        ranks = range(spec.workload.ranks)
        replayed = (read_program(run_directory / DIRECTORY, rank) for rank in ranks)
        at_once = sum(at_once_bytes(program) for program in replayed)
        return at_once if spec.payload == "timing" else _TRACE * at_once + at_once // _GAPS

    def sent_bytes(self, spec: Spec) -> int | None:
        return None

    def computations_ns(self, spec: Spec, run_directory: Path) -> Iterator[int]:
        for rank in range(spec.workload.ranks):
            for node in read_program(run_directory / DIRECTORY, rank):
                if isinstance(node, ReplayCompute):
                    yield node.duration_ns * spec.compute.slowdown


class _Programs(GuestWork):
    """Nothing is known of programs of users; `guest_memory.py` counts their processes."""

    def tensors_bytes(self, spec: Spec, run_directory: Path) -> int:
        return 0

    def sent_bytes(self, spec: Spec) -> int | None:
        return None

    def computations_ns(self, spec: Spec, run_directory: Path) -> Iterator[int]:
        yield from ()


def guest_work(spec: Spec) -> GuestWork:
    """The part of a spec's workload."""
    return _GUEST_WORKS[spec.workload.kind]


def _connection_bytes(spec: Spec) -> int:
    return spec.tcp.sndbuf_bytes + spec.tcp.rcvbuf_bytes


def _kept_times(spec: Spec) -> int:
    return _KEPT if ranks_per_process(spec) == 1 else _KEPT_BY_THREADS


@dataclass(frozen=True)
class _Call:
    """The memory of a call on all its ranks together, from when it is posted until it is waited
    for, and what malloc keeps of that from then on. `threads` is how many its program has at a
    rank, `most_threads` how many a rank has for all calls together, where a run bounds them."""

    used_bytes: int
    kept_bytes: int
    threads: int = 0
    most_threads: int | None = None


_RESCUE_COPIES = 2
"""Copies of a collective's data where ranks may have to do it again: its inputs, and the buffers
that trees work on (`workloads.execution.aggregation.rescue`)."""


class _ProgramBytes:
    """The memory of collectives that run as programs, beyond Gloo's own."""

    def __init__(self, spec: Spec) -> None:
        self._settings = settings_of(spec)
        self._payload = spec.payload
        self._losable = spec.aggregation is not None and spec.aggregation.when_lost != "fail"

    def with_them(
        self,
        call: _Call,
        kind: str,
        size_bytes: int,
        members: Sequence[int],
        item_bytes: int,
        entry: Mapping[str, Any] | None,
    ) -> _Call:
        """The call with its program's buffers, threads and messages, if it has one."""
        if kind not in PROGRAM_KINDS:
            return call
        ranks = len(members)
        elements = rounded_elements(Kind(kind), size_bytes, ranks, item_bytes)
        shape = Shape(Kind(kind), elements * item_bytes, ranks, item_bytes)
        plan = schedule_of(self._settings, shape, entry, members)
        if not isinstance(plan, ProgramSchedule):
            return call
        participants = len(plan.participants(range(ranks)))
        buffers = plan.working_bytes if self._payload == "checked" else 0
        if plan.aggregators and self._losable:
            buffers += _RESCUE_COPIES * shape.size_bytes
        threads = plan.threads
        more = participants * (buffers + threads * _THREAD_BYTES)
        most = None
        if plan.in_flight:
            most = threads * -(-plan.in_flight // min(plan.in_flight, len(plan.chunks)))
        return _Call(call.used_bytes + 2 * more, call.kept_bytes + more, threads, most)


def _step_bytes(
    step: Iterable[Action],
    item_bytes: int,
    groups: Mapping[GroupName, Sequence[int]],
    connection_bytes: int,
    programs: _ProgramBytes,
    payload: Payload,
    kept_times: int,
    iterations: int,
) -> int:
    """The most that a rank's shares of calls under way take at a time, what malloc keeps of them,
    and what the log of all iterations takes; `groups` has the ranks of one group of each kind."""
    under_way: dict[str, tuple[int, int]] = {}
    used = most = kept = threads = logged = 0
    bounds: list[int | None] = []
    for action in step:
        kind: str
        match action:
            case ComputeKernel() | Pause():
                continue
            case WaitFor(name):
                size_bytes, ended = under_way.pop(name)
                used -= size_bytes
                threads -= ended
                continue
            case StartCollective():
                kind, members = action.kind, groups[action.group]
            case StartMessage():
                kind, members = Kind.SEND_RECV, (action.source, action.destination)
        ranks = len(members)
        size_bytes = action.elements * item_bytes
        call = _call(kind, size_bytes, ranks, connection_bytes, None, payload)
        call = programs.with_them(call, kind, size_bytes, members, item_bytes, None)
        own_bytes = call.used_bytes // ranks + _MESSAGE_BYTES
        under_way[action.name] = own_bytes, call.threads
        used += own_bytes
        logged += _EVENT_BYTES
        threads += call.threads
        bounds += [call.most_threads] if call.threads else []
        # `used` counts each thread twice.
        bound = max((threads if n is None else n for n in bounds), default=0)
        most = max(most, used - 2 * _THREAD_BYTES * max(0, threads - bound))
        kept = max(kept, call.kept_bytes // ranks)
    return most + kept_times * kept // _KEPT + logged * iterations


def _call(
    kind: str,
    size: int,
    ranks: int,
    connection_bytes: int,
    degree: int | None,
    payload: Payload,
) -> _Call:
    """Inputs and outputs as `workloads.execution.operations` makes them. At a time a rank has a
    block on its way in Gloo's rings and exchanges, and whole messages from each sender to a
    receiver, all of which sockets hold again."""
    of_all, of_shards = ranks * _kept_bytes(size), ranks * _kept_bytes(size // ranks)
    match kind:
        case Kind.ALL_TO_ALL:
            tensors, moving, kept = 2 * ranks * size, size, of_all
        case Kind.ALL_GATHER | Kind.REDUCE_SCATTER:
            tensors, moving, kept = ranks * size + size, size, max(of_all, of_shards)
        case Kind.BROADCAST:
            tensors, moving, kept = ranks * size, 0, of_all
        case Kind.GATHER:
            tensors, moving, kept = 2 * size, min(size, (ranks - 1) * connection_bytes), of_shards
        case Kind.SCATTER:
            tensors, moving, kept = 2 * size, size // ranks, _kept_bytes(size) + of_shards
        case Kind.INCAST:
            senders = degree or ranks - 1
            tensors, moving = 2 * senders * size, senders * min(size, connection_bytes)
            kept = (senders + 1) * _kept_bytes(size)
        case Kind.PERMUTATION:
            tensors, moving, kept = 2 * ranks * size, ranks * min(size, connection_bytes), of_all
        case Kind.SEND_RECV:
            tensors, moving, kept = 2 * size, min(size, connection_bytes), 2 * _kept_bytes(size)
        case _:  # all-reduce, reduce; a barrier's size is 0
            tensors, moving, kept = ranks * size, size, of_all
    if payload == "timing":
        return _shared(kind, size, ranks, connection_bytes, moving)
    return _Call(tensors + tensors // _GAPS + moving, kept)


def _shared(kind: str, size: int, ranks: int, connection_bytes: int, moving: int) -> _Call:
    """The memory of a call whose tensors are the memory that all share: copies that torch makes by
    itself, and what is on its way."""
    match kind:
        case Kind.REDUCE_SCATTER:  # an all-reduce of a copy
            copies = ranks * size
        case Kind.GATHER | Kind.SCATTER:  # the root's blocks in one piece
            copies = size
        case Kind.ALL_TO_ALL:  # whatever sockets take is on its way
            copies = ranks * min(size, ranks * connection_bytes)
        case _:
            copies = 0
    return _Call(copies + copies // _GAPS + moving, min(copies, ranks * _kept_bytes(size)))


def _kept_bytes(size: int) -> int:
    """The memory that malloc keeps of a rank's tensors of this size."""
    return _KEPT * size if size <= _LARGEST_KEPT_BYTES else 0


LISTED, STEPS, REPLAYED, PROGRAMS = _Listed(), _Steps(), _Replayed(), _Programs()
"""The parts that the registration of workloads names."""

_GUEST_WORKS = named_parts("guest", GuestWork)
