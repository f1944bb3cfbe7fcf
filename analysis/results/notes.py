"""Notes for the reader of a run's figures; none of them makes a run invalid."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

from analysis.results.gpus import sharing_unknown
from analysis.results.judged import QUOTED
from analysis.runs.collectives import (
    ALIGNMENT,
    collectives_of,
    groups_of_program,
    refused_of,
    unfinished_of,
    unseen_iterations,
)
from analysis.runs.doubt import Doubt
from analysis.runs.faults import FaultSpan, fault_events, fault_spans
from analysis.runs.mpi_messages import MPI_MESSAGES, described, load_mpi_messages
from analysis.runs.records import CapturedRecord
from analysis.runs.run import Run
from topologies.spec.payload_scaling import LEAST_BYTES
from topologies.spec.run_sections import WrongClock
from topologies.spec.spec import Spec
from topologies.units import format_size
from workloads.models.replay import DIRECTORY, NOTES

NO_COLLECTIVES = "no collectives were found"
_FAULTS_TOLD = 8
_FAULTS_UNKNOWN = "predictions of single collectives are those without faults of links"
_NOT_CHECKED = (
    "the numbers that ranks received were not checked: all ranks sent the same memory "
    "(payload: timing)"
)

_LAZY = (
    "ranks connected when they first communicated: where that was within a collective it took "
    "longer, which predictors do not know (virtual.connections: lazy)"
)


_SPINNERS = {
    "ready": "asked again and again whether a file is ready that was ready all the time",
    "memory": "waited for its memory to change by computing",
}
"""The spinners that are seen in time; one that is `interrupted` makes a run invalid."""

_NOT_NCCL = "their times are not those of NCCL's, whose choices collectives: {backend: nccl} has"


def payload_checked(spec: Spec) -> bool | None:
    """Whether each rank has checked the numbers that it received; None where no rank is ours."""
    if all(workload.program is not None for workload in spec.workloads):
        return None
    return spec.payload == "checked"


def notes_of(run: Run) -> list[str]:
    """The notes on a run of a program, and on ours where they differ from others: in what they
    send, and when they connect. Raises RunError."""
    of_network = [
        f"a fault never happened, as the ranks were done before: {fault}"
        for fault in run.environment.missed_faults
    ]
    of_network += [*_of_faults(run), *_of_routes(run)]
    if run.spec.workload.program is None:
        own = [*_of_payload(run), *_of_replay(run), *_of_connections(run), *_of_lost_nodes(run)]
        return own + _of_spinners(run) + of_network
    return [
        *_of_network(run),
        *_of_share(run),
        *_of_compute(run),
        *_of_sources(run),
        *_of_groups(run),
        *_of_doubts(run),
        *_of_hosts(run),
        *_of_clocks(run),
        *_of_observers(run),
        *_of_spinners(run),
        *of_network,
    ]


def _of_network(run: Run) -> list[str]:
    simulated = run.environment.simulated
    if simulated is None:
        return []
    return [
        f"the network was simulated: collectives of virtual GPUs went through the packet engine "
        f"({simulated.packets:,} packets, {simulated.hops:,} hops), of which ports have totals "
        "alone; ranks met over the emulated one, which is not counted"
    ]


def _of_share(run: Run) -> list[str]:
    program = run.spec.workload.program
    if program is None or program.payload_share == 1:
        return []
    records = [each for log in run.ranks for each in log.collectives]
    scaled = [each for each in records if each.payload_bytes is not None]
    whole = [each.size_bytes for each in records if each.payload_bytes is None]
    large = [size for size in whole if size > LEAST_BYTES]
    said = (
        f"{program.scale_payload} of each large message was sent, over links and queues of that "
        f"share of their rates and sizes ({sum(each.size_bytes for each in scaled):,} bytes for "
        f"{sum(each.payload_bytes or 0 for each in scaled):,}, by all ranks' records): times are "
        "those of the whole, but for frames, each of which stands for "
        f"{program.payload_share}; sizes, rates, bandwidths, counters and predictions are of what "
        "was sent, and payload_bytes is the whole"
    )
    if large:
        said += (
            f"; {len(large):,} messages of up to {format_size(max(large))} were sent whole, as "
            f"they may have contents, and take up to {program.payload_share} times as long"
        )
    return [said]


def _of_payload(run: Run) -> list[str]:
    return [] if run.spec.payload == "checked" else [_NOT_CHECKED]


def _of_replay(run: Run) -> list[str]:
    """The acts of a replay that differ from its traces."""
    file = run.directory / DIRECTORY / NOTES
    return [f"traces: {note}" for note in json.loads(file.read_text())] if file.exists() else []


def _of_connections(run: Run) -> list[str]:
    lazy = run.spec.virtual.connections == "lazy" and run.environment.kernel == "virtual"
    return [_LAZY] if lazy else []


def _of_clocks(run: Run) -> list[str]:
    wrong = [fault for fault in run.spec.faults if isinstance(fault, WrongClock)]
    if not wrong:
        return []
    clocks = ", ".join(f"{fault.host} ({fault.in_words})" for fault in wrong[:QUOTED])
    more = f" and {len(wrong) - QUOTED} more" if len(wrong) > QUOTED else ""
    return [
        f"the time of day was wrong at {clocks}{more}: times that programs tell by it are; those "
        "of this result are right"
    ]


def _of_faults(run: Run) -> list[str]:
    """When each fault happened, and in which iterations."""
    iterations = _iterations(run)
    if not iterations:
        return []
    first_ns, scale = min(iterations.values())[0], run.environment.scale
    spans: dict[str, list[FaultSpan]] = defaultdict(list)
    for span in fault_spans(run):
        spans[span.what].append(span)
    said = []
    for what, times in spans.items():
        begin_ns, end_ns = times[0].start_ns, times[-1].end_ns
        until = "on" if end_ns is None else f"to {(end_ns - first_ns) / scale / 1e6:,.3f} ms"
        often = f", {len(times)} times" if len(times) > 1 else ""
        met = [
            index
            for index, (start_ns, end_ns) in sorted(iterations.items())
            if any(span.touches(start_ns, end_ns) for span in times)
        ]
        where = f"during iteration{'s' * (len(met) > 1)} {_numbers(met)}"
        said.append(
            f"{what}: from {(begin_ns - first_ns) / scale / 1e6:,.3f} ms {until} after the first "
            f"operation began{often}, {where if met else 'between iterations'}"
        )
    more = len(said) - _FAULTS_TOLD
    said = said[:_FAULTS_TOLD] + ([f"{more} more faults"] if more > 0 else [])
    links = any(event.link is not None for event in fault_events(run))
    return said + ([_FAULTS_UNKNOWN] if links else [])


def _iterations(run: Run) -> dict[int, tuple[int, int]]:
    """The first begin and the last end of each iteration, by what ranks logged of it."""
    found: dict[int, tuple[int, int]] = {}
    for log in run.ranks:
        spans = [(each.index, each.start_ns, each.end_ns) for each in log.iterations]
        own = (each for each in log.events if each.phase != ALIGNMENT)
        spans += [(each.iteration, each.start_ns, each.end_ns) for each in own]
        for index, start_ns, end_ns in (span for span in spans if span[0] >= 0):
            first_ns, last_ns = found.get(index, (start_ns, end_ns))
            found[index] = min(first_ns, start_ns), max(last_ns, end_ns)
    return found


def _numbers(found: Sequence[int]) -> str:
    """Ascending numbers in words."""
    if len(found) > 2 and found[-1] - found[0] == len(found) - 1:
        return f"{found[0]} to {found[-1]}"
    return ", ".join(map(str, found))


def _of_routes(run: Run) -> list[str]:
    lost = run.environment.unrouted
    if not lost:
        return []
    most = sorted(lost, key=lambda node: -lost[node])[:QUOTED]
    named = ", ".join(f"{node} {lost[node]:,}" for node in most)
    more = f" and {len(lost) - len(most)} more nodes" if len(lost) > len(most) else ""
    return [f"{sum(lost.values()):,} packets were lost for lack of a route: {named}{more}"]


def _of_lost_nodes(run: Run) -> list[str]:
    names = [node.switch for node in run.environment.lost_nodes]
    fallen = [each.id for each in collectives_of(run) if each.fell_back]
    if not fallen:
        return []
    which = fallen[0] if len(fallen) == 1 else f"{len(fallen)} collectives, from {fallen[0]} on,"
    whose = f"the aggregation node of switch {' and '.join(names)}" if names else "a switch's node"
    return [f"{whose} died: {which} fell back to hosts (aggregation.when_lost: fall-back)"]


def _of_gpus(run: Run) -> list[str]:
    gpus = [gpu for log in run.ranks for gpu in log.gpus]
    device, contents = run.spec.compute.device, run.spec.compute.contents
    totals = [total for gpu in gpus for total in gpu.kernels.values()]
    kernels, flops = sum(total[0] for total in totals), sum(total[2] for total in totals)
    how = f"the roofline's time of {device}" if run.spec.compute.modelled else "no time"
    program = run.spec.workload.program
    if program is not None and program.charge_by is not None:
        how = f"the time of a table, and what that lacks {how}"
    peak_bytes = max((gpu.peak_reserved_bytes for gpu in gpus), default=0)
    computed = (
        "all tensors were computed, on the CPU"
        if contents == "full"
        else "tensors have contents where they are small, and else shapes alone (contents: small): "
        "the program's losses mean nothing"
    )
    return [
        f"virtual GPUs: {kernels:,} kernels and {flops:,} FLOP on {len(gpus)} GPUs took {how}; at "
        f"most {format_size(peak_bytes)} of a GPU's memory were reserved; {computed}. Computing on "
        "the host took no time but for launches (compute.launch)",
        "a collective begins when its stream gets to it on its last rank; exposed communication is "
        "when the default stream stood still for it. An iteration ends when the last kernel before "
        "an optimizer's step is over",
        _of_carrying(run),
        *_of_tokens(run),
    ]


def _of_carrying(run: Run) -> str:
    """The note on who carries the collectives of virtual GPUs, by which algorithms."""
    by = "Gloo" if run.environment.simulated is None else "the packet engine"
    ring = "reduce-scatters go round a ring by messages of their own"
    algorithms = {
        "gloo": f"Gloo's algorithms; {ring}: {_NOT_NCCL}",
        "programs": f"the spec's programs. Kinds without one have Gloo's algorithms; {ring}",
        "nccl": "NCCL's algorithms, as programs",
    }[run.spec.collectives.backend]
    return f"collectives of the backend nccl were carried by {by}, with {algorithms}"


def _of_tokens(run: Run) -> list[str]:
    seen = any(each.tokens for log in run.ranks for each in log.iterations)
    group = sharing_unknown(run)
    if run.spec.compute.tokens is not None or not seen or group is None:
        return []
    return [
        f"no tokens/s: {group} is no named dimension of a device mesh, so whether its ranks look "
        "up the same tokens is not known (--tokens says how many an iteration has)"
    ]


def _of_compute(run: Run) -> list[str]:
    program = run.spec.workload.program
    if program is not None and program.gpus_per_host:
        return _of_gpus(run)
    computes = [compute for log in run.ranks for compute in log.computes]
    if computes:
        device = run.spec.compute.device
        operations = sum(compute.operations for compute in computes)
        flops = sum(compute.flops for compute in computes)
        ranks = sum(bool(log.computes) for log in run.ranks)
        by_trace = sum(compute.by_trace or 0 for compute in computes)
        how = f"by the roofline of device {device}"
        if any(compute.by_trace is not None for compute in computes):
            how = f"by a trace, which has {by_trace:,} of them, the rest {how}"
        return [
            f"computing was charged {how}: {operations:,} operations "
            f"of torch and {flops:,} FLOP on {ranks} of {len(run.ranks)} ranks, from their process "
            "group on. FLOP are those of matrix products, convolutions and attention; all other "
            "operations take the time of their bytes. Nothing was charged for threads of the "
            "program's own, compiled code, and computing outside of torch"
        ]
    if program is not None and program.charges:
        return [
            "computing took no time: it was to be charged, but no rank's torch told of operations"
        ]
    if run.environment.kernel == "virtual":
        return [
            "computing took no time, as nothing was charged for it: the run shows communication, "
            "waiting and sleeping alone"
        ]
    slowed = run.environment.scale
    network = f", on a network slowed down {slowed} times" if slowed > 1 else ""
    return [f"computing took the time that it takes on this machine{network}"]


def _of_sources(run: Run) -> list[str]:
    found = []
    if observed := [log.rank for log in run.ranks if log.observed]:
        found += _of_observed(run, observed)
        if (run.directory / MPI_MESSAGES).exists():
            found += [_of_mpi(run), *_of_mpis_others(run)]
        else:
            found += _of_other_connections(run, "the process groups'")
    elif (run.directory / MPI_MESSAGES).exists():
        found += [_of_mpi(run), *_of_mpis_others(run)]
    elif captured := [each for log in run.ranks for each in log.captured]:
        found += _of_captures(run, captured[0])
    elif (program := run.spec.workload.program) is not None and program.per == "job":
        found.append(_of_mpi(run))
    else:
        found.append(NO_COLLECTIVES)
    unfinished = unfinished_of(run)
    if unfinished:
        found.append(
            f"{_counted(len(unfinished), 'collective')} left out, as not all ranks were seen to "
            f"finish it: {_quoted(unfinished)}"
        )
    refused = refused_of(run)
    if refused:
        found.append(
            f"{_counted(len(refused), 'collective')} without a row, as torch refused it: "
            f"{_quoted(refused)} ({next(iter(refused.values()))})"
        )
    return found + _of_unseen(run)


def _of_observed(run: Run, observed: Sequence[int]) -> list[str]:
    """Notes on what these ranks told."""
    found: list[str] = []
    if len(observed) < len(run.ranks):
        found.append(f"only {len(observed)} of {len(run.ranks)} ranks told of their collectives")
    elif any(log.iterations and not log.gpus for log in run.ranks):
        found.append(
            "an iteration is a step of the program's optimizer; exposed communication is when "
            "a rank's main thread waited for collectives, in Python or in torch's own code"
        )
    return found


def _of_other_connections(run: Run, whose: str, own_bytes: int = 0) -> list[str]:
    """Notes on connections that are not `whose`, which carried `own_bytes` beside Gloo's."""
    found: list[str] = []
    for each in (each for log in run.ranks for each in log.captured):
        total = own_bytes + each.gloo_bytes + sum(each.other_bytes.values())
        found += _of_others(each, total, whose)
    return found


def _of_captures(run: Run, captured: CapturedRecord) -> list[str]:
    many = len({(each.group, each.id) for log in run.ranks for each in log.collectives})
    found = []
    if many:
        names = (
            f". {captured.named:,} of {many:,} have the names of what XLA compiled"
            if captured.named
            else ", and torch's reduce-scatter looks like the all-reduce that Gloo makes of it"
        )
        found.append(
            "collectives were found in the captures, by Gloo's headers: their times are those of "
            f"packets at hosts{names}"
        )
    else:
        found.append(NO_COLLECTIVES)
    lost = captured.gloo_bytes - captured.row_bytes
    others = sum(captured.other_bytes.values())
    total = captured.gloo_bytes + others
    if lost > 0:
        found.append(
            f"{lost:,} B on Gloo's connections, {lost / total:.2%} of all payload between ranks, "
            "are in no row: a message could not be read or fits nothing. Whole packets tell most "
            "(capture.snaplen above the MTU)"
        )
    return found + _of_others(captured, total, "Gloo's")


def _of_others(captured: CapturedRecord, total_bytes: int, whose: str) -> list[str]:
    """A note on what connections that are not `whose` have carried, of so much."""
    others = sum(captured.other_bytes.values())
    if not others:
        return []
    by_bytes = sorted(captured.other_bytes, key=lambda port: (-captured.other_bytes[port], port))
    return [
        f"{others:,} B, {others / total_bytes:.2%} of all payload between ranks, went over "
        f"connections that are not {whose} (to port {_quoted(by_bytes)}), which have no rows"
    ]


def _of_unseen(run: Run) -> list[str]:
    unseen: dict[str, int] = defaultdict(int)
    for log in run.ranks:
        by_group: dict[str, int] = defaultdict(int)
        for each in log.unseen:
            by_group[each.group] += each.operations
        for group, operations in by_group.items():
            unseen[group] = max(unseen[group], operations)
    found = [
        f"{_counted(operations, 'operation')} of group {group} without a row: posted past torch's "
        "dispatcher, where nobody sees it (as by a call of the backend itself)"
        for group, operations in unseen.items()
    ]
    iterations = sorted(unseen_iterations(run))
    if found and any(log.iterations for log in run.ranks):
        found.append(
            "the exposed communication of iterations "
            f"{', '.join(map(str, iterations))} is not told, as ranks may have waited for these"
        )
    return found


def _of_groups(run: Run) -> list[str]:
    """The dimensions of a device mesh that the groups of rows are."""
    by_mesh: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for name, group in groups_of_program(run).items():
        if group.mesh is not None:
            by_mesh[group.mesh][name] = group.ranks
    return [
        f"mesh dimension {mesh}: "
        + _quoted(f"{name} is ranks {', '.join(map(str, ranks))}" for name, ranks in own.items())
        for mesh, own in by_mesh.items()
    ]


def _of_doubts(run: Run) -> list[str]:
    by_doubt: dict[Doubt, list[str]] = defaultdict(list)
    for one in collectives_of(run):
        if one.doubt is not None:
            by_doubt[one.doubt].append(one.id)
    return [
        f"{_counted(len(names), 'row')} without bandwidths: {_quoted(names)}: {doubt}"
        for doubt, names in by_doubt.items()
    ]


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _quoted(names: Iterable[str]) -> str:
    """The first few, and that there are more."""
    listed = list(names)
    return ", ".join(listed[:QUOTED]) + (", ..." if len(listed) > QUOTED else "")


def _of_mpi(run: Run) -> str:
    messages = load_mpi_messages(run.directory)
    if not messages:
        return (
            "no collectives were found: ranks tell nothing of those of MPI, and no message of "
            "OpenMPI was captured"
        )
    said = f"OpenMPI's messages were captured: {described(messages)} (mpi.jsonl). "
    if len(set(run.hosts)) < len(run.hosts):
        return said + (
            "Ranks that share a host have others that no link carries, so collectives have no rows"
        )
    unnamed = sum(each.collective is None for each in messages)
    if unnamed:
        said += f"{unnamed:,} of them have no row. "
    return said + (
        "A collective's kind and messages are read from the wire. Their number and "
        "sizes follow from the algorithms of OpenMPI 4.1. A message that fits none has a row of "
        "its own, and so has an exchange of several at one time. packet and flow predict the time "
        "of these messages, not OpenMPI's choice of them"
    )


def _of_mpis_others(run: Run) -> list[str]:
    of_messages = sum(each.size_bytes for each in load_mpi_messages(run.directory))
    return _of_other_connections(run, "OpenMPI's", of_messages)


def _of_spinners(run: Run) -> list[str]:
    return [
        f"{each.program} (process {each.pid}, the first of them) {_SPINNERS[each.kind]}. Such "
        f"threads rested for {each.virtual_ns / 1e3:,.0f} us in all, and saw the acts of others "
        "at their time; they may have passed a deadline of their own by up to 16 us"
        for each in run.environment.spinners
        if each.kind in _SPINNERS
    ]


def _of_hosts(run: Run) -> list[str]:
    if len(set(run.hosts)) == len(run.hosts):
        return []
    return ["ranks share hosts: what these exchange goes past all links"]


def _of_observers(run: Run) -> list[str]:
    by_text: dict[str, list[int]] = defaultdict(list)
    for log in run.ranks:
        for text in log.notes:
            by_text[text].append(log.rank)
    return [
        f"{text} (rank {ranks[0]}{f' and {len(ranks) - 1} more' if len(ranks) > 1 else ''})"
        for text, ranks in by_text.items()
    ]
