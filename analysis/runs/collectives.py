"""The collectives of a run, assembled from what each rank saw of them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.runs.doubt import Doubt, doubt_of
from analysis.runs.ingress import ingress_of
from analysis.runs.mpi_messages import exchanges_of, of_ranks
from analysis.runs.records import CollectiveRecord, GroupRecord
from analysis.runs.run import JobOfRun, RankLog, Run, RunError
from collectives.call import CollectiveCall, Shaped
from collectives.kinds import Kind, Shape, bus_factor
from collectives.schedule import halving_doubling
from collectives.schedule.exchange import ExchangeSchedule
from collectives.schedule.gloo import GLOO
from collectives.schedule.schedule import Schedule
from collectives.schedule.uneven import UnevenAllToAll
from collectives.settings import schedule_of, settings_of
from topologies.ethernet import ETHERNET_BYTES
from topologies.spec.collectives_section import CollectivesOfRun

ALIGNMENT = "align"
"""Phase of the collectives that only bring the ranks to a common start; they are no result."""


@dataclass(frozen=True)
class MeasuredCollective(Shaped):
    """One collective of a run. It starts when its last rank has posted it and ends when its last
    rank has completed it; `by_rank` has each rank's own record."""

    id: str
    kind: str
    phase: str
    group: str
    tag: int | None
    size_bytes: int
    element_bytes: int
    iteration: int
    ranks: tuple[int, ...]
    root: int
    degree: int | None
    peer: int | None
    shift: int | None
    start_ns: int
    end_ns: int
    by_rank: dict[int, CollectiveRecord]
    schedule: Schedule = GLOO
    """The messages of its ranks."""
    uneven: bool = False
    """Whether its ranks send each other unequal parts, which the size does not tell; its schedule
    does, where it is known."""
    op: str = "sum"
    """How it reduces, where it does."""
    fell_back: bool = False
    """Whether hosts did it, or ended it, as an aggregation node had died."""
    job: str = ""
    """The job to which it belongs, where a run has several."""
    doubt: Doubt | None = None
    """Why it has no bandwidths."""

    @property
    def algorithm(self) -> str | None:
        """The algorithm of the program; None for Gloo's own."""
        return self.schedule.algorithm

    @property
    def ends(self) -> Sequence[CollectiveRecord]:
        """The records of the ranks of which the last one ends it."""
        return _ends(self.kind, self.peer, self.ranks, self.by_rank)

    @property
    def found(self) -> bool:
        """Whether it was found in captures: its ranks told nothing of it."""
        return any(record.sends is not None for record in self.by_rank.values())

    @property
    def unknown(self) -> bool:
        """Whether its ranks send each other parts of which nobody knows the sizes."""
        return self.uneven and not self.schedule.uneven

    @property
    def label(self) -> str:
        """Its kind, and the algorithm of a program: what runs alike has it alike."""
        return self.kind if self.algorithm is None else f"{self.kind} ({self.algorithm})"

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def algbw_gbps(self) -> float | None:
        """Size over time, decimal gigabits per second; None where that cannot be (`doubt`)."""
        if self.doubt is not None:
            return None
        return self.size_bytes * 8 / self.duration_ns if self.duration_ns else 0.0

    @property
    def busbw_gbps(self) -> float | None:
        algbw_gbps = self.algbw_gbps
        if algbw_gbps is None:
            return None
        return algbw_gbps * bus_factor(Kind(self.kind), len(self.ranks))

    @property
    def rank_sizes_bytes(self) -> tuple[int, ...] | None:
        """The size at each of its ranks, where these differ."""
        sizes = tuple(self.by_rank[rank].size_bytes for rank in self.ranks)
        alike = self.kind == Kind.SEND_RECV or len(set(sizes)) == 1
        return None if alike else sizes


def collectives_of(run: Run) -> tuple[MeasuredCollective, ...]:
    """All collectives but alignments, by start. Raises RunError when a rank's record is missing;
    of a program, what not all members saw the end of is left out (`unfinished_of`). A run of
    several jobs has those of all, with ranks and groups as in `Run.jobs`."""
    if run.jobs:
        many = len(run.hosts)
        every = [_among_all(job, c, many) for job, own in run.finished for c in collectives_of(own)]
        return tuple(sorted(every, key=lambda c: (c.start_ns, c.group, c.id)))
    return _in_order(run, lambda record: record.phase != ALIGNMENT)


def alignments_of(run: Run) -> tuple[MeasuredCollective, ...]:
    """The alignments of a run with one workload, by start; jobs have none."""
    if run.jobs:
        return ()
    return _in_order(run, lambda record: record.phase == ALIGNMENT)


def _in_order(
    run: Run, wanted: Callable[[CollectiveRecord], bool]
) -> tuple[MeasuredCollective, ...]:
    exchanges = exchanges_of(run.directory)
    seen: dict[tuple[str, str, int | None], dict[int, CollectiveRecord]] = defaultdict(dict)
    for log in run.ranks:
        for record in filter(wanted, log.collectives):
            # Alignments of one iteration share an id; tags tell them apart.
            tag = record.tag if record.phase == ALIGNMENT else None
            seen[record.group, record.id, tag][log.rank] = record
    if run.spec.workload.program is not None:
        seen = {key: by_rank for key, by_rank in seen.items() if not _missing(run, by_rank)}
    found = [_assemble(run, by_rank) for by_rank in seen.values()]
    found = [
        replace(one, schedule=of_ranks(exchanges[one.id], one.ranks, two_frames_ns(run, one.ranks)))
        if one.id in exchanges
        else one
        for one in found
    ]
    if run.spec.workload.program is not None:
        found = _with_doubts(run, found)
    return tuple(sorted(found, key=lambda c: (c.start_ns, c.group, c.id)))


def _with_doubts(run: Run, found: Sequence[MeasuredCollective]) -> list[MeasuredCollective]:
    """Collectives that ranks of a program posted when they got to them, without impossible
    bandwidths."""
    ingress, scale = ingress_of(run), run.environment.scale
    delay_ns = {
        host: scale * min(link.delay_ns for link in run.fabric.links_of[host]) for host in ingress
    }
    judged = []
    for one in found:
        hosts = [run.hosts[rank] for rank in one.ranks]
        by_switches = bool(one.schedule.aggregators)
        if by_switches or len(set(hosts)) < len(hosts) or len(hosts) < 2:
            judged.append(one)  # less goes over a link than bandwidths count, or nothing
            continue
        into = [ingress[host] for host in hosts]
        uneven = one.uneven or one.rank_sizes_bytes is not None
        least_ns = min(delay_ns[host] for host in hosts)
        doubt = doubt_of(one.shape, uneven, one.duration_ns, into, least_ns)
        judged.append(replace(one, doubt=doubt))
    return judged


def two_frames_ns(run: Run, ranks: Sequence[int]) -> list[int]:
    """The time of two full frames at the slowest port of each rank's host, as the run had it."""
    found = []
    for rank in ranks:
        links = run.fabric.links_of[run.hosts[rank]]
        bits = max(16 * (link.mtu_bytes + ETHERNET_BYTES) / link.rate_bps for link in links)
        found.append(round(bits * 10**9 * run.environment.scale))
    return found


def _among_all(job: JobOfRun, collective: MeasuredCollective, many: int) -> MeasuredCollective:
    """With the numbers of a run of so many ranks."""
    return replace(
        collective,
        group=f"{job.name}/{collective.group}",
        job=job.name,
        ranks=tuple(job.first + rank for rank in collective.ranks),
        by_rank={job.first + rank: record for rank, record in collective.by_rank.items()},
        schedule=collective.schedule.beside(many - len(job.ranks)),
    )


def iterations_of(run: Run, collectives: Sequence[MeasuredCollective]) -> tuple[int, ...]:
    """The iterations that have a duration, in order: those that ranks logged, and of our own
    workloads all in which something was communicated. The acts of a program before, between and
    after its steps are part of none."""
    found = {i.index for log in run.ranks for i in log.iterations}
    if run.spec.workload.program is None:
        found |= {c.iteration for c in collectives}
    return tuple(sorted(found))


def unfinished_of(run: Run) -> tuple[str, ...]:
    """The collectives that not all of their members saw the end of, by id."""
    seen: dict[tuple[str, str], dict[int, CollectiveRecord]] = defaultdict(dict)
    for log in run.ranks:
        for record in log.collectives:
            seen[record.group, record.id][log.rank] = record
    partly = [id for (_, id), by_rank in seen.items() if _missing(run, by_rank)]
    refused = set(refused_of(run))
    nowhere = {
        each.id: None
        for log in run.ranks
        for each in log.unfinished
        if (each.group, each.id) not in seen and each.id not in refused
    }
    return (*(id for id in partly if id not in refused), *nowhere)


def refused_of(run: Run) -> dict[str, str]:
    """The collectives of a program that torch refused, by id: what it said."""
    return {
        each.id: each.reason
        for log in run.ranks
        for each in log.unfinished
        if each.reason is not None
    }


def unseen_iterations(run: Run) -> frozenset[int]:
    """The iterations in which a program's ranks may have waited for something unseen."""
    return frozenset(index for log in run.ranks for each in log.unseen for index in each.iterations)


def groups_of_program(run: Run) -> dict[str, GroupRecord]:
    """The process groups that a program's ranks told of, by name."""
    return {each.name: each for log in run.ranks for each in log.groups}


def exposed_by_phase(log: RankLog, index: int) -> dict[str, int]:
    """Nanoseconds that a rank's main thread was blocked on collectives in an iteration, by phase.
    Where a log has the times of its waits, each counts in the iteration in which it happened."""
    found: dict[str, int] = defaultdict(int)
    if not log.observed:
        for record in log.collectives:
            if record.phase != ALIGNMENT and record.iteration == index:
                found[record.phase] += record.waited_ns
        return found
    span = next((each for each in log.iterations if each.index == index), None)
    if span is None:
        return found
    waits = sorted((*wait, record.phase) for record in log.collectives for wait in record.waits)
    told_ns = span.start_ns
    for began_ns, ended_ns, phase in waits:
        until_ns = min(ended_ns, span.end_ns)
        found[phase] += max(0, until_ns - max(began_ns, told_ns))
        told_ns = max(told_ns, until_ns)
    return found


def _missing(run: Run, by_rank: Mapping[int, CollectiveRecord]) -> list[int]:
    """The members whose record of a collective is missing."""
    ranks = next(iter(by_rank.values())).ranks
    return sorted(set(range(len(run.ranks)) if ranks is None else ranks) - set(by_rank))


def _assemble(run: Run, by_rank: dict[int, CollectiveRecord]) -> MeasuredCollective:
    first = next(iter(by_rank.values()))
    ranks = tuple(range(len(run.ranks))) if first.ranks is None else tuple(first.ranks)
    if missing := _missing(run, by_rank):
        raise RunError(
            f"{run.directory}: collective {first.id} is missing in the log of rank {missing[0]}"
        )
    sizes = list(by_rank.values())
    if first.kind == Kind.SEND_RECV and first.peer is not None:
        sizes = [by_rank[ranks[first.root]]]  # its receiver's buffer may be larger than it
    return MeasuredCollective(
        first.id,
        first.kind,
        first.phase,
        first.group,
        first.tag,
        max(record.size_bytes for record in sizes),
        first.element_bytes,
        first.iteration,
        ranks,
        first.root,
        first.degree,
        first.peer,
        first.shift,
        max(record.start_ns for record in by_rank.values()),
        max(record.end_ns for record in _ends(first.kind, first.peer, ranks, by_rank)),
        by_rank,
        schedule_of_records(run, ranks, by_rank),
        any(record.uneven for record in by_rank.values()),
        first.op,
        any(record.fell_back for record in by_rank.values()),
    )


def _ends(
    kind: str, peer: int | None, ranks: Sequence[int], by_rank: Mapping[int, CollectiveRecord]
) -> list[CollectiveRecord]:
    """The records that end a collective: a message's receiver's, as its sender is told when its
    buffer is free, and asks when it gets to it; else all."""
    if kind == Kind.SEND_RECV and peer is not None:
        return [by_rank[ranks[peer]]]
    return list(by_rank.values())


def schedule_of_records(
    run: Run, ranks: Sequence[int], by_rank: Mapping[int, CollectiveRecord]
) -> Schedule:
    """The schedule of a collective of which all its ranks tell: together they know the parts of an
    uneven one. Raises RunError."""
    if any(record.uneven for record in by_rank.values()):
        parts = [_parts_bytes(by_rank[rank], len(ranks)) for rank in ranks if rank in by_rank]
        known = tuple(tuple(each) for each in parts if len(each) == len(ranks))
        if len(known) == len(ranks):
            return UnevenAllToAll(known)
    return schedule_of_record(run, next(iter(by_rank.values())), ranks)


def _parts_bytes(record: CollectiveRecord, ranks: int) -> Sequence[int]:
    """The bytes that a rank sends to each member of an all-to-all: where it tells of none, and its
    own are equal, those; else nothing."""
    if record.parts_bytes is not None:
        return record.parts_bytes
    return () if record.uneven else [record.size_bytes // ranks] * ranks


def schedule_of_record(run: Run, record: CollectiveRecord, ranks: Sequence[int]) -> Schedule:
    """The schedule of these ranks' collective. Raises RunError when it cannot be told any more, as
    when an MSCCL file is gone."""
    if record.messages is not None:
        return ExchangeSchedule(tuple(record.messages))
    if record.algorithm == halving_doubling.ALGORITHM and record.program is None:
        return halving_doubling.reduce_scatter(record.size_bytes, len(ranks), record.element_bytes)
    if record.program is None:
        return GLOO
    kind = Kind(record.kind)
    shape = Shape(kind, record.size_bytes, len(ranks), record.element_bytes, record.root)
    try:
        return schedule_of(section_of_record(run, record), shape, record.program, ranks)
    except (ValueError, OSError) as error:
        raise RunError(f"{run.directory}: the program of {record.id}: {error}") from error


def call_of_record(run: Run, record: CollectiveRecord) -> CollectiveCall:
    """The call that a rank's record tells of. Raises RunError."""
    ranks = tuple(range(len(run.ranks))) if record.ranks is None else tuple(record.ranks)
    return CollectiveCall(
        record.kind,
        record.size_bytes,
        ranks,
        record.element_bytes,
        record.root,
        record.degree,
        record.peer,
        record.shift,
        schedule_of_record(run, record, ranks),
    )


def section_of_record(run: Run, record: CollectiveRecord) -> CollectivesOfRun:
    """The section by which a collective was planned: the spec's, or of a script's group that which
    `workloads/torch_backend` had, with the trees that the group was given. Raises ValueError."""
    if record.section is None:
        return settings_of(run.spec)
    return CollectivesOfRun.model_validate_json(json.dumps(record.section))
