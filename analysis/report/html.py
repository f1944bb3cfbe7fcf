"""One self-contained HTML page for one run or several: nothing is loaded from anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from jinja2 import Environment

from analysis.report.output import rank_outputs
from analysis.report.overview import findings, key_figures
from analysis.report.page import page_environment
from analysis.report.run_figures import RunFigures
from analysis.report.sections import sections, table_panels
from analysis.report.tables.figures import duration
from analysis.runs.several import differing_keys, flat_keys, in_words
from topologies.fabrics.fabric import Link
from topologies.spec.run_sections import (
    FaultSpec,
    Freeze,
    Kill,
    MemoryLimit,
    NodeDies,
    Partition,
    WrongClock,
)
from topologies.spec.spec import Spec
from topologies.units import format_rate, format_size, format_time

PAGE_WIDTH = 1080.0
"""The width of a chart that has its page to itself, in pixels."""
_WIDTH_BESIDE = 620.0
_MOST_DIFFERING = 12


def render_html(runs: Sequence[RunFigures], title: str | None = None) -> str:
    """The page; its title is the specs' names where there is no `title`. Raises RunError for a
    damaged run directory, ValueError for no runs."""
    if not runs:
        raise ValueError("a report needs at least one run")
    width = PAGE_WIDTH if len(runs) == 1 else _WIDTH_BESIDE
    summaries = [key_figures(run) for run in runs]
    rows = list(dict.fromkeys(figure.title for figures in summaries for figure in figures))
    template = _environment().get_template("report.html")
    return template.render(
        runs=runs,
        figures={
            run.label: {f.title: f for f in s} for run, s in zip(runs, summaries, strict=True)
        },
        rows=rows,
        findings={run.label: findings(run) for run in runs},
        facts={run.label: facts for run, facts in zip(runs, _all_facts(runs), strict=True)},
        outputs={run.label: rank_outputs(run.run) for run in runs},
        sections=sections(runs, width),
        tables=table_panels(runs),
        command="report",
        title=title or " · ".join(dict.fromkeys(run.run.spec.name for run in runs)),
    )


@cache
def _environment() -> Environment:
    return page_environment()


def _all_facts(runs: Sequence[RunFigures]) -> list[tuple[tuple[str, str], ...]]:
    """The facts of each run, with what its spec says where those of the others differ."""
    if len(runs) == 1:
        return [_facts(runs[0])]
    apart = differing_keys([dict(flat_keys(run.run.spec.to_dict())) for run in runs])
    told = [
        in_words(values) if len(values) <= _MOST_DIFFERING else f"{len(values)} keys of the spec"
        for values in apart
    ]
    return [
        (("differs in", words or "nothing"), *_facts(run))
        for run, words in zip(runs, told, strict=True)
    ]


def _facts(run: RunFigures) -> tuple[tuple[str, str], ...]:
    """The spec and its kernel: the lines under the summary."""
    spec, environment = run.run.spec, run.run.environment
    fabric = run.run.fabric
    queue = spec.fabric.queue
    scale = "1:1" if environment.scale == 1 else f"1:{environment.scale}, shown in target units"
    nodes = f"{len(fabric.hosts)} hosts, {len(fabric.switches)} switches, {len(fabric.links)} links"
    placement = spec.placement if isinstance(spec.placement, str) else "given"
    workload = f"{spec.workload.kind}, {len(run.run.ranks)} ranks, placement {placement}"
    return (
        ("fabric", f"{fabric.kind}, {nodes}"),
        ("links", links_in_words(fabric.links)),
        ("queues", f"{queue.kind}, {format_size(queue.buffer_bytes)} buffer"),
        ("transport", spec.transport_words),
        ("workload", workload),
        ("faults", "; ".join(map(_fault, spec.faults)) or "none"),
        ("kernel", f"{environment.kernel}, Linux {environment.kernel_release}"),
        *((("network", "simulated by the packet engine"),) if environment.simulated else ()),
        *_payload(spec),
        ("scale", scale),
        ("seed", str(environment.seed)),
        ("wall time", duration(environment.wall_s * 1e9)),
        ("versions", ", ".join(f"{k} {v}" for k, v in environment.versions.items())),
    )


def _payload(spec: Spec) -> tuple[tuple[str, str], ...]:
    program = spec.workload.program
    if program is None or program.payload_share == 1:
        return ()
    return (("payload", f"{program.scale_payload}, over links with that share of their rates"),)


def links_in_words(links: Sequence[Link]) -> str:
    """The rate, the delay and the MTU of links; of each, the least and the most where they differ:
    `20Gbps to 75Gbps, 600ns to 700ns, MTU 9000`."""
    rates = [format_rate(rate) for rate in _ends(link.rate_bps for link in links)]
    delays = [format_time(delay) for delay in _ends(link.delay_ns for link in links)]
    mtus = map(str, _ends(link.mtu_bytes for link in links))
    return f"{' to '.join(rates)}, {' to '.join(delays)}, MTU {' to '.join(mtus)}"


def _ends(values: Iterable[int]) -> list[int]:
    """The least and the most, or the only one."""
    found = sorted(set(values))
    return [found[0], found[-1]] if len(found) > 1 else found


def _fault(fault: FaultSpec) -> str:
    begins = fault.begins
    lasts_ns: int | None = None
    match fault:
        case NodeDies():
            return f"the aggregation node of {fault.switch} dies at {begins}"
        case Kill():
            again = fault.restart_ns
            restart = "" if again is None else f", started again after {format_time(again)}"
            return f"{fault.victim} is killed at {begins}{restart}"
        case Freeze():
            what, lasts_ns = f"{fault.victim} stands still", fault.duration_ns
        case MemoryLimit():
            more = format_size(fault.value)
            return f"{fault.victim} may take {more} more of address space from {begins} on"
        case WrongClock():
            what = f"the clock of {fault.host} is off by {fault.in_words}"
            lasts_ns = fault.duration_ns
        case Partition():
            what, lasts_ns = f"partition of {', '.join(fault.nodes)}", fault.duration_ns
        case _:
            what, lasts_ns = f"{fault.kind} on {fault.link}", fault.duration_ns
    lasts = "" if lasts_ns is None else f" for {format_time(lasts_ns)}"
    return f"{what} at {begins}{lasts}"
