"""A run that goes on, as its page needs it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from analysis.report.charts.fabric_layout import lay_out
from analysis.report.html import PAGE_WIDTH
from analysis.runs.live import LiveCall, LiveRun
from analysis.runs.records import LinkRecord
from analysis.runs.samples.ports import PortSeries
from analysis.runs.several import flat_keys
from analysis.view.document import (
    ViewCollective,
    ViewDocument,
    ViewProgress,
    ViewSpan,
    stretches_of,
    view_nodes,
    view_port,
)

_NO_RANKS = "Ranks are shown when the run is done."
_NO_PORTS = "Ports are shown when the run is done."
_PATHS_LATER = "Paths are shown when the run is done."
_ALIGNMENT = re.compile(r"/i-?\d+\.align$")
_ITERATION = re.compile(r"i(\d+)\.")


def live_document(run: LiveRun, label: str, words: str) -> ViewDocument:
    """The document of a run that goes on; `words` say what it does.

    Ports have what they have done so far. Ranks have their last calls, each from its post to its
    end; a collective is that of all ranks that have called it. Nothing is predicted yet.
    """
    spec, state = run.spec, run.state
    hosts = _hosts(run)
    ranks = {(each.job, each.rank): each for each in run.ranks}
    order = [(job, rank) for job, many in spec.ranks_by_job.items() for rank in range(many)]
    calls = [
        [call for call in ranks[key].calls if not _ALIGNMENT.search(call.group)]
        if key in ranks
        else []
        for key in order
    ]
    now_ns = state.clock_ns or 0
    spans = [(call.posted_ns, _end_ns(call, now_ns)) for own in calls for call in own]
    if not spans:
        spans = [(s.begin_ns, s.end_ns) for each in run.series for s in each.sent()]
    stretches = stretches_of(spans)
    origin_ns = stretches[0][0] if stretches else 0
    collectives, index = _collectives(order, calls, origin_ns, now_ns)
    layout = lay_out(spec.plan.fabric, PAGE_WIDTH)
    series = {each.port: each for each in run.series}
    ports = tuple(
        view_port(record, series.get(record.port), origin_ns) for record in _records(run, series)
    )
    notes = [_PATHS_LATER]
    if not series:
        notes.append(_NO_PORTS)
    if not ranks and state.clock_ns:
        notes.append(_NO_RANKS)
    known = [each for each in run.ranks if each.posted]
    messages = any(call.kind in ("send", "recv") for own in calls for call in own)
    return ViewDocument(
        label=label,
        name=spec.name,
        valid=True,
        reasons=(),
        kernel="",
        scale=1,
        origin_ns=origin_ns,
        stretches_ns=tuple((begin - origin_ns, end - origin_ns) for begin, end in stretches),
        height=layout.height,
        radius=layout.radius,
        nodes=view_nodes(spec.plan.fabric, hosts, layout),
        ports=ports,
        collectives=collectives,
        ranks=tuple(
            tuple(
                ViewSpan(
                    call.posted_ns - origin_ns,
                    _end_ns(call, now_ns) - origin_ns,
                    _name(call),
                    index[_key(key[0], call)],
                )
                for call in own
            )
            for key, own in zip(order, calls, strict=True)
        ),
        paths=(),
        notes=tuple(notes),
        spec=dict(flat_keys(spec.to_dict())),
        progress=ViewProgress(
            words,
            state.iteration,
            state.iterations,
            state.clock_ns,
            state.sent_bytes,
            state.wall_s,
            "operations" if messages else "collectives",
            tuple(each.posted for each in known),
            tuple(each.over for each in known),
        ),
    )


def _hosts(run: LiveRun) -> tuple[str, ...]:
    plan = run.spec.plan
    return tuple(host for job in plan.jobs for host in job.hosts) if run.spec.jobs else plan.hosts


def _records(run: LiveRun, series: Mapping[str, PortSeries]) -> Iterator[LinkRecord]:
    """The ports of the fabric, with what they have done by their last sample."""
    for number, link in enumerate(run.spec.plan.fabric.links):
        for end, peer in ((link.a, link.b), (link.b, link.a)):
            own = series.get(end.interface)
            yield LinkRecord(
                link=number,
                port=end.interface,
                node=end.node,
                peer=peer.node,
                rate_bps=link.rate_bps,
                delay_ns=link.delay_ns,
                bytes=own.sent_bytes[-1] if own else 0,
                packets=0,
                drops=own.drops[-1] if own else 0,
                ecn_marks=own.marked if own else 0,
            )


def _key(job: str, call: LiveCall) -> tuple[str, str, str, int]:
    return job, call.group, call.kind, call.number


def _name(call: LiveCall) -> str:
    """The name of an operation: ranks of ours tell it behind the group's."""
    return call.group.partition("/")[2] or f"{call.kind} {call.number}"


def _end_ns(call: LiveCall, now_ns: int) -> int:
    over = call.state in ("over", "failed")
    return max(call.posted_ns, call.at_ns if over else max(now_ns, call.at_ns))


def _collectives(
    order: list[tuple[str, int]], calls: list[list[LiveCall]], origin_ns: int, now_ns: int
) -> tuple[tuple[ViewCollective, ...], dict[tuple[str, str, str, int], int]]:
    """Calls that are parts of one, in order of their posts; and which one each key is."""
    parts: dict[tuple[str, str, str, int], list[tuple[int, LiveCall]]] = defaultdict(list)
    for number, ((job, _), own) in enumerate(zip(order, calls, strict=True)):
        for call in own:
            parts[_key(job, call)].append((number, call))
    keys = sorted(parts, key=lambda key: min(call.posted_ns for _, call in parts[key]))
    found = []
    for key in keys:
        start_ns = min(call.posted_ns for _, call in parts[key])
        end_ns = max(_end_ns(call, now_ns) for _, call in parts[key])
        first = parts[key][0][1]
        found.append(
            ViewCollective(
                id=_name(first),
                kind=first.kind,
                phase="",
                group=first.group.partition("/")[0],
                iteration=int(found_in[1]) if (found_in := _ITERATION.match(_name(first))) else 0,
                size_bytes=first.size_bytes,
                ranks=tuple(number for number, _ in parts[key]),
                start_ns=start_ns - origin_ns,
                end_ns=end_ns - origin_ns,
                duration_ns=end_ns - start_ns,
                busbw_gbps=None,
                predicted={},
            )
        )
    return tuple(found), {key: number for number, key in enumerate(keys)}
