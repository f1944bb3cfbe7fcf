"""A run as its page needs it: places, ports over time, spans of ranks, collectives, paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from analysis.metrics.chunk_spans import chunk_spans
from analysis.metrics.collective import collective_metrics
from analysis.metrics.spans import Span, union
from analysis.report.charts.fabric_layout import Layout, lay_out
from analysis.report.html import PAGE_WIDTH
from analysis.runs.collectives import ALIGNMENT
from analysis.runs.records import LinkRecord
from analysis.runs.run import Run
from analysis.runs.samples.ports import PortSeries, port_series
from analysis.runs.several import flat_keys
from analysis.view.paths import RankPath, rank_paths
from topologies.fabrics.fabric import Fabric, NodeKind

_SHORT_GAP = 50
"""The page's axis leaves out idle time that is longer than the busy time divided by this."""
_MOST_PHASES = 20_000
"""So many phases of chunks the page holds: of the collectives that come first."""


@dataclass(frozen=True)
class ViewNode:
    """A host or switch at its place in the drawing; `ranks` are those on a host."""

    name: str
    x: float
    y: float
    switch: bool
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class ViewPort:
    """An egress port with its totals and its samples. `by_job` has the bytes of each job's
    collectives where several jobs shared it. Times are since the page's origin; each
    column has a value for each of `times_ns`, of which `sent`, `drops` and `marks` count up."""

    port: str
    node: str
    peer: str
    rate_bps: int
    bytes: int
    drops: int
    marks: int
    pauses: int
    interval_ns: int
    times_ns: tuple[int, ...]
    sent: tuple[int, ...]
    peak: tuple[int, ...]
    drop_counts: tuple[int, ...]
    mark_counts: tuple[int, ...]
    paused: tuple[int, ...]
    by_job: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ViewPhase:
    """A phase of a chunk over all ranks, since the page's origin, and its dimension."""

    chunk: int
    name: str
    dimension: int | None
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class ViewCollective:
    """A collective: its span since the page's origin, its time of the target fabric, the
    predictions of it by name (nanoseconds; None where there is none), and the phases of its chunks
    where it ran as a program."""

    id: str
    kind: str
    phase: str
    group: str
    iteration: int
    size_bytes: int
    ranks: tuple[int, ...]
    start_ns: int
    end_ns: int
    duration_ns: int
    busbw_gbps: float | None
    predicted: dict[str, int | None]
    phases: tuple[ViewPhase, ...] = ()


@dataclass(frozen=True)
class ViewSpan:
    """A rank's computing, or its wait for a collective (its index), since the page's origin."""

    start_ns: int
    end_ns: int
    name: str
    collective: int | None


@dataclass(frozen=True)
class ViewProgress:
    """How far a run is that goes on: in words, its iterations, its clock, what all ports have sent,
    and how many operations each rank has posted and finished; `operations` says of what kind."""

    words: str
    iteration: int | None
    iterations: int | None
    clock_ns: int | None
    sent_bytes: int | None
    wall_s: float
    operations: str
    posted: tuple[int, ...]
    over: tuple[int, ...]


@dataclass(frozen=True)
class ViewDocument:
    """Everything that the page shows of a run. `stretches_ns` are the parts of its time in which
    something happened, since `origin_ns` on the clock of the logs. `progress` is that of a run that
    goes on; without it the run is done."""

    label: str
    name: str
    valid: bool
    reasons: tuple[str, ...]
    kernel: str
    scale: int
    origin_ns: int
    stretches_ns: tuple[Span, ...]
    height: float
    radius: float
    nodes: tuple[ViewNode, ...]
    ports: tuple[ViewPort, ...]
    collectives: tuple[ViewCollective, ...]
    ranks: tuple[tuple[ViewSpan, ...], ...]
    paths: tuple[RankPath, ...]
    notes: tuple[str, ...]
    spec: dict[str, str]
    progress: ViewProgress | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as the page's script reads it."""
        return asdict(self)


def view_document(run: Run, label: str) -> ViewDocument:
    """The document of a run; of several jobs all in one, on their common clock.

    Raises RunError for a damaged run directory.
    """
    logs = [log for own in _runs_of(run) for log in own.ranks]
    spans = [span for log in logs for span in _busy(log.computes, log.collectives)]
    series = {each.port: each for each in port_series(run)}
    if not spans:
        spans = [(s.begin_ns, s.end_ns) for each in series.values() for s in each.sent()]
    stretches = stretches_of(spans)
    origin_ns = stretches[0][0] if stretches else 0
    collectives = _collectives(run, origin_ns)
    index = {(each.group, each.id): i for i, each in enumerate(collectives)}
    layout = lay_out(run.fabric, PAGE_WIDTH)
    ports = tuple(
        view_port(record, series.get(record.port), origin_ns) for record in run.port_counters
    )
    result = run.result
    shared = {
        (link["link"], link["node"], link["peer"]): link["bytes"]
        for link in result.get("shared_links", ())
    }
    keys = [(record.link, record.node, record.peer) for record in run.port_counters]
    ports = tuple(
        replace(port, by_job=shared.get(key, {})) for port, key in zip(ports, keys, strict=True)
    )
    paths, note = rank_paths(run)
    notes = [note] if note else []
    if not series:
        notes.append("This run kept no samples of its ports: only totals are shown.")
    return ViewDocument(
        label,
        run.spec.name,
        bool(result["valid"]),
        tuple(result["invalid_reasons"]),
        run.environment.kernel,
        run.environment.scale,
        origin_ns,
        tuple((begin - origin_ns, end - origin_ns) for begin, end in stretches),
        layout.height,
        layout.radius,
        view_nodes(run.fabric, run.hosts, layout),
        ports,
        collectives,
        tuple(tuple(_spans(log.computes, log.collectives, index, origin_ns)) for log in logs),
        paths,
        tuple(notes),
        dict(flat_keys(run.spec.to_dict())),
    )


def view_nodes(fabric: Fabric, hosts: Sequence[str], layout: Layout) -> tuple[ViewNode, ...]:
    """The nodes of a fabric at their places; `hosts` are those of the ranks."""
    ranks_of: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        ranks_of.setdefault(host, []).append(rank)
    return tuple(
        ViewNode(
            node.name,
            round(layout.places[node.name][0], 1),
            round(layout.places[node.name][1], 1),
            node.kind is NodeKind.SWITCH,
            tuple(ranks_of.get(node.name, ())),
        )
        for node in fabric.nodes
    )


def view_port(record: LinkRecord, own: PortSeries | None, origin_ns: int) -> ViewPort:
    """A port with its totals, and its samples where it has any."""
    return ViewPort(
        record.port,
        record.node,
        record.peer,
        record.rate_bps,
        record.bytes,
        record.drops,
        record.ecn_marks or 0,
        record.pauses or 0,
        own.interval_ns if own else 0,
        tuple(at - origin_ns for at in own.times_ns) if own else (),
        own.sent_bytes if own else (),
        own.peak_bytes if own else (),
        own.drops if own else (),
        own.marks if own else (),
        own.paused_classes if own else (),
    )


def _runs_of(run: Run) -> Sequence[Run]:
    return [own for _, own in run.parts]


def _busy(computes: Sequence[Any], collectives: Sequence[Any]) -> Iterator[Span]:
    yield from ((c.start_ns, c.end_ns) for c in computes)
    yield from ((c.start_ns, c.end_ns) for c in collectives if c.phase != ALIGNMENT)


def stretches_of(spans: Sequence[Span]) -> list[Span]:
    """The busy time, with short gaps in it."""
    parts = union(spans)
    shortest = sum(end - begin for begin, end in parts) // _SHORT_GAP
    found: list[Span] = []
    for begin, end in parts:
        if found and begin - found[-1][1] <= shortest:
            found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    return found


def _collectives(run: Run, origin_ns: int) -> tuple[ViewCollective, ...]:
    found = []
    left = _MOST_PHASES
    for own in _runs_of(run):
        spans = chunk_spans(own)
        predicted = {
            (row["group"], row["id"]): {
                name: answer.get("duration_ns") for name, answer in row["predicted"].items()
            }
            for row in own.result["collectives"]
        }
        for metrics in collective_metrics(own):
            one = metrics.collective
            phases = spans.get((one.group, one.id), ())
            if len(phases) > left:
                phases = ()
            left -= len(phases)
            found.append(
                ViewCollective(
                    one.id,
                    one.label,
                    one.phase,
                    one.group,
                    one.iteration,
                    one.size_bytes,
                    one.ranks,
                    min(r.start_ns for r in one.by_rank.values()) - origin_ns,
                    one.end_ns - origin_ns,
                    one.duration_ns,
                    metrics.busbw_gbps,
                    predicted.get((one.group, one.id), {}),
                    tuple(
                        ViewPhase(
                            phase.chunk,
                            phase.name,
                            phase.dimension,
                            phase.start_ns - origin_ns,
                            phase.end_ns - origin_ns,
                        )
                        for phase in phases
                    ),
                )
            )
    return tuple(found)


def _spans(
    computes: Sequence[Any],
    collectives: Sequence[Any],
    index: dict[tuple[str, str], int],
    origin_ns: int,
) -> Iterator[ViewSpan]:
    for compute in computes:
        if compute.end_ns > compute.start_ns:
            span = compute.start_ns - origin_ns, compute.end_ns - origin_ns
            yield ViewSpan(*span, compute.name, None)
    for record in collectives:
        if record.phase != ALIGNMENT and record.waited_ns:
            began = record.end_ns - record.waited_ns - origin_ns
            at = index.get((record.group, record.id))
            yield ViewSpan(began, record.end_ns - origin_ns, record.id, at)
