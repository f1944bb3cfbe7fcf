"""How much memory a guest needs for a spec."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from collectives.groups import GroupName, groups_of
from collectives.in_network.of_run import nodes_of
from collectives.in_network.on_demand import nodes_on_demand
from collectives.kinds import Kind, Shape, rounded_elements
from collectives.program import PROGRAM_KINDS
from collectives.schedule.program import ProgramSchedule
from collectives.settings import schedule_of, settings_of
from emulator.capture.ring_room import ring_bytes_of_guest
from emulator.ports.port_qdisc import SAMPLE_BYTES
from emulator.ports.sampling import sampling_of
from emulator.ranks.packing import ranks_per_process
from emulator.transports import emulated
from topologies.fabrics.selectors import select_ports
from topologies.spec.spec import Spec
from topologies.spec.workload_section import (
    ITEM_BYTES,
    ChakraWorkload,
    CollectivesWorkload,
    CommandWorkload,
    Incast,
)
from topologies.spec.workload_types import Payload
from workloads.models.build import step_of
from workloads.models.replay import DIRECTORY, at_once_bytes, read_program
from workloads.models.step import (
    Action,
    ComputeKernel,
    Pause,
    StartCollective,
    StartMessage,
    WaitFor,
)

# The kernel, Python and torch's CPU build took 440 MB and each rank 15 MB (docs/guest-memory.md).
_SYSTEM_BYTES = 800 * 2**20
# Of builds for accelerators the process from which ranks are forked has 309 MB of its own for 152,
# and 216 MB of files for 80.
_ACCELERATORS_BYTES = 400 * 2**20
_RANK_BYTES = 24 * 2**20
# A rank that is a thread of a process took 0.5 MB, and an end of a connection 7.5 kB, of which Gloo
# has a part before it is connected.
_PACKED_RANK_BYTES = 2 * 2**20
_CONNECTION_END_BYTES = 10 * 2**10
_PAIR_BYTES = 2 * 2**10
# A Python process with torch and a small model, which shares nothing with others but files.
_PROGRAM_BYTES = 400 * 2**20
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
# What Python, torch and Gloo keep of a message that is under way, and what a rank's log keeps of
# any call to the end: of 50,000 flows of a rank, 5.4 KB each.
_MESSAGE_BYTES = 6 * 2**10
_EVENT_BYTES = 2**10
# What depends on nothing in a trace may run beside more than `at_once_bytes` counts.
_TRACE = 5
# A ring's all-reduce sends nearly twice its size from each rank, no other collective sends more.
_SENT_PER_SIZE = 2
_SAMPLES_PER_BLOCK = 4096 // SAMPLE_BYTES
# A thread's stack as far as Python touches it, and the kernel's share.
_THREAD_BYTES = 96 * 2**10


@dataclass(frozen=True)
class _Call:
    """The memory of a call on all its ranks together, from when it is posted until it is waited
    for, and what malloc keeps of that from then on. `threads` is how many its program has at a
    rank, `most_threads` how many a rank has for all calls together, where a run bounds them."""

    used_bytes: int
    kept_bytes: int
    threads: int = 0
    most_threads: int | None = None


def guest_memory_bytes(spec: Spec, run_directory: Path) -> int:
    """Memory that a guest needs: the system and torch, then per rank its own pages, its tensors,
    what is on its way and what malloc keeps of tensors that are gone.

    What a trace exchanges is in the replay programs of the run directory. Raises OSError when they
    are not there, pydantic.ValidationError.
    """
    if spec.jobs:
        own = [
            guest_memory_bytes(spec.of_job(job), run_directory / "jobs" / job.name)
            for job in spec.jobs
        ]
        return sum(own) - (len(own) - 1) * (_SYSTEM_BYTES + emulated(spec).fabric_bytes(spec))
    workload = spec.workload
    ranks = range(workload.ranks)
    if isinstance(workload, CommandWorkload):
        programs_bytes = len(ranks) * _PROGRAM_BYTES
        nodes_bytes = len(nodes_on_demand(spec)) * _RANK_BYTES
        return _SYSTEM_BYTES + programs_bytes + nodes_bytes + emulated(spec).fabric_bytes(spec)
    connection_bytes = spec.tcp.sndbuf_bytes + spec.tcp.rcvbuf_bytes
    kept_times = _KEPT if ranks_per_process(spec) == 1 else _KEPT_BY_THREADS
    if isinstance(workload, CollectivesWorkload):
        programs = _ProgramBytes(spec)
        calls = [
            programs.with_them(
                _call(
                    operation.kind,
                    operation.size_bytes,
                    len(ranks),
                    connection_bytes,
                    operation.degree if isinstance(operation, Incast) else None,
                    spec.payload,
                ),
                operation.kind,
                operation.size_bytes,
                ranks,
                ITEM_BYTES[workload.dtype],
                getattr(operation, "program", None),
            )
            for operation in workload.operations
        ]
        tensors_bytes = max(call.used_bytes for call in calls)
        if len(calls) > 1 or workload.iterations > 1:
            tensors_bytes += kept_times * max(call.kept_bytes for call in calls) // _KEPT
    elif isinstance(workload, ChakraWorkload):
        replayed = (read_program(run_directory / DIRECTORY, rank) for rank in ranks)
        at_once = sum(at_once_bytes(program) for program in replayed)
        tensors_bytes = _TRACE * at_once + at_once // _GAPS
        if spec.payload == "timing":
            tensors_bytes = at_once
    else:
        item_bytes = ITEM_BYTES[workload.dtype]
        groups = {name: parts[0] for name, parts in groups_of(workload).items()}
        tensors_bytes = sum(
            _step_bytes(
                step_of(workload, rank),
                item_bytes,
                groups,
                connection_bytes,
                _ProgramBytes(spec),
                spec.payload,
                kept_times,
                workload.iterations,
            )
            for rank in ranks
        )
    system_bytes = _SYSTEM_BYTES
    if not version("torch").endswith("+cpu"):
        system_bytes += _ACCELERATORS_BYTES
    system_bytes += len(nodes_of(settings_of(spec))) * _RANK_BYTES
    sent = _sent_bytes(spec)
    an_iteration = None if sent is None else sent // max(1, workload.iterations)
    more_bytes = _samples_bytes(spec) + emulated(spec).fabric_bytes(spec)
    more_bytes += emulated(spec).rank_bytes(spec, an_iteration)
    needed_bytes = system_bytes + _ranks_bytes(spec) + tensors_bytes + more_bytes
    return needed_bytes + _rings_bytes(spec, needed_bytes)


def _rings_bytes(spec: Spec, free_bytes: int) -> int:
    """The memory of the capture's rings, in a guest that has so much memory besides."""
    fabric = spec.plan.fabric
    ports = {port for point in spec.capture.points for port in select_ports(fabric, point)}
    rates = [link.rate_bps for link in fabric.links for port in (link.a, link.b) if port in ports]
    return ring_bytes_of_guest(
        spec.capture.backend,
        rates,
        spec.virtual.receive_coalescing_ns,
        spec.capture.snaplen_bytes,
        free_bytes,
    )


def _samples_bytes(spec: Spec) -> int:
    """The most memory of samples of ports: two for each packet at each port that it passes, as its
    coming and its going change the backlog, and two packets and an acknowledgement for each full
    frame."""
    fabric = spec.plan.fabric
    sampling = sampling_of(spec, fabric)
    if sampling is None:
        return 0
    most = len(sampling.ports) * sampling.capacity
    sent_bytes = _sent_bytes(spec)
    if sent_bytes is not None:
        import networkx as nx

        hops = nx.single_source_shortest_path_length(fabric.graph, fabric.hosts[0].name)
        longest = 2 * max(hops.values())
        frames = -(-sent_bytes // min(link.mtu_bytes for link in fabric.links))
        most = min(most, 2 * 3 * frames * longest + len(sampling.ports) * _SAMPLES_PER_BLOCK)
    return most * SAMPLE_BYTES


def _sent_bytes(spec: Spec) -> int | None:
    """Payload that all ranks send in a run, at most; None where only the run tells."""
    workload = spec.workload
    if isinstance(workload, ChakraWorkload | CommandWorkload):
        return None
    item_bytes = ITEM_BYTES[workload.dtype]
    if isinstance(workload, CollectivesWorkload):
        sizes = [operation.size_bytes for operation in workload.operations] * workload.ranks
    else:
        sizes = [
            action.elements * item_bytes
            for rank in range(workload.ranks)
            for action in step_of(workload, rank)
            if isinstance(action, StartCollective | StartMessage)
        ]
    return _SENT_PER_SIZE * sum(sizes) * workload.iterations


def _ranks_bytes(spec: Spec) -> int:
    """The memory of ranks that have no tensors yet, but all of their connections."""
    ranks, threads = spec.workload.ranks, ranks_per_process(spec)
    if threads == 1:
        return ranks * _RANK_BYTES
    processes = -(-ranks // threads)
    pairs_bytes = ranks * (ranks - 1) * _PAIR_BYTES
    ends_bytes = ranks * _connected(spec) * _CONNECTION_END_BYTES
    return processes * _RANK_BYTES + ranks * _PACKED_RANK_BYTES + pairs_bytes + ends_bytes


def _connected(spec: Spec) -> int:
    """With how many others a rank is connected at the end, at most, on average."""
    others = spec.workload.ranks - 1
    workload = spec.workload
    if (
        spec.virtual.connections == "eager"
        or not isinstance(workload, CollectivesWorkload)
        or spec.collectives.backend != "gloo"
        or any(operation.kind == "all_to_all" for operation in workload.operations)
    ):
        return others
    # Rings know two, trees and barriers the powers of two in both directions, a root all others.
    return min(others, 2 * others.bit_length() + 2 * len(workload.operations) + 2)


_RESCUE_COPIES = 2
"""Of what a collective moves, where ranks may have to do it again: inputs, and what trees work
on (`workloads.execution.aggregation.rescue`)."""


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
