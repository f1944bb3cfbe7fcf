"""The sections of a page: for every run, each section's drawing or the reason why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from analysis.metrics.phase_names import phase_name
from analysis.report.charts.breakdown import breakdown_chart
from analysis.report.charts.cdf import cdf_chart
from analysis.report.charts.colours import PhaseColours
from analysis.report.charts.dimension_load import dimension_load_chart
from analysis.report.charts.drawing import Drawing
from analysis.report.charts.fabric import MAX_LINKS, fabric_chart
from analysis.report.charts.heat_map import MAX_CELLS, heat_map
from analysis.report.charts.in_network.aggregation_tree import aggregation_tree_chart
from analysis.report.charts.in_network.slot_use import slot_use_chart
from analysis.report.charts.link_use import link_use_chart
from analysis.report.charts.prediction import (
    MAX_ROWS,
    comparisons,
    duration_range_ns,
    marker,
    prediction_chart,
)
from analysis.report.charts.queues import (
    ports_that_matter,
    queue_extremes_chart,
    queue_series_chart,
)
from analysis.report.charts.roce.rates import rates_chart
from analysis.report.charts.tier_balance import tier_balance_chart
from analysis.report.charts.timeline import MAX_RANKS, marks_of, shown_time_ns, timeline_chart
from analysis.report.run_figures import RunFigures
from analysis.report.tables.cells import without
from analysis.report.tables.figures import size
from analysis.report.tables.table import Table

MAX_TIMELINE_MARKS = 7000
MAX_TABLE_ROWS = 800

Legend = tuple[tuple[str, Markup | str], ...]


@dataclass(frozen=True)
class Panel:
    """One run's part of a section. `views` are (name, drawing) of which one is shown at a time."""

    run: RunFigures
    views: tuple[tuple[str, Markup], ...] = ()
    note: str = ""
    first: int = 0


@dataclass(frozen=True)
class ReportSection:
    """A heading, how to read what is below it, a legend, and a panel per run."""

    key: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    legend: Legend = ()
    scale: tuple[str, ...] = field(default=())
    """Labels of the shades s0.. where the section is coloured by amount."""


@dataclass(frozen=True)
class TablePanel:
    """A table of one run, cut to what a page can hold."""

    run: RunFigures
    table: Table
    rows_left_out: int


def phase_colours(runs: Sequence[RunFigures]) -> PhaseColours:
    """The same colours over all runs of a page."""
    return PhaseColours(m.collective.phase for run in runs for m in run.collectives)


def sections(runs: Sequence[RunFigures], width: float) -> tuple[ReportSection, ...]:
    """All sections, drawings `width` units wide. Runs of programs without collectives have none of
    those that are about collectives; the findings say why there are none."""
    colours = phase_colours(runs)
    makers = (_breakdown, _timeline, _fabric, _prediction, _queues, _rates, _flows, _traffic)
    made = (make(runs, colours, width) for make in makers)
    bare = all(run.is_program and not run.collectives for run in runs)
    return tuple(
        section
        for section in made
        if section is not None and not (bare and not any(panel.views for panel in section.panels))
    )


def table_panels(runs: Sequence[RunFigures]) -> tuple[tuple[TablePanel, ...], ...]:
    """For each table, a panel per run; the rank pairs are left to the heat map and the files."""
    found = []
    for name in dict.fromkeys(name for run in runs for name in run.tables):
        if name == "traffic":
            continue
        panels = []
        for run in runs:
            if name not in run.tables:
                continue
            whole = run.tables[name]
            for key in ("group", "ranks"):
                if name == "collectives" and len(set(whole.column(key))) == 1:
                    whole = without(whole, key)
            kept = Table(whole.name, whole.title, whole.columns, whole.rows[:MAX_TABLE_ROWS])
            panels.append(TablePanel(run, kept, len(whole.rows) - len(kept.rows)))
        if any(panel.table.rows for panel in panels):
            found.append(tuple(panels))
    return tuple(found)


def _swatch(css: str) -> Markup:
    return Markup(
        '<svg class="key" viewBox="0 0 12 12"><rect class="{}" width="12" height="12"/></svg>'
    ).format(css)


def _shape(number: int) -> Markup:
    drawing = Drawing(14, 14, "")
    marker(drawing, 7, 7, number)
    return drawing.render()


def _breakdown(runs: Sequence[RunFigures], colours: PhaseColours, width: float) -> ReportSection:
    panels = []
    longest_ns = max((b.mean_duration_ns for run in runs for b in run.iterations), default=1.0)
    for run in runs:
        bars = [(f"iteration {b.index}", b) for b in run.iterations]
        shown = bars[:30]
        note = f"The first 30 of {len(bars)} iterations." if len(bars) > 30 else ""
        drawing = breakdown_chart(shown, colours, width, longest_ns).render() if shown else None
        panels.append(
            Panel(run, (("", drawing),), note)
            if drawing
            else Panel(run, (), run.why_no_collectives)
        )
    computed = any(b.mean_compute_ns for run in runs for b in run.iterations)
    legend: list[tuple[str, Markup | str]] = []
    if computed:
        legend.append(("compute", _swatch("compute")))
    legend += [(f"exposed {phase_name(p)}", _swatch(css)) for p, css in colours.legend]
    if computed:
        legend.append(("hidden behind compute (thin bar)", _swatch("p0 flight")))
    if any(b.mean_other_ns > 0.001 * b.mean_duration_ns for r in runs for b in r.iterations):
        legend.append(("other", _swatch("other")))
    return ReportSection(
        "time",
        "Where the time goes",
        "Mean over the ranks. Exposed communication is time that a rank was blocked on; the thin "
        "bar below is communication that was in flight while the rank computed, and cost nothing.",
        tuple(panels),
        tuple(legend),
    )


def _timeline(runs: Sequence[RunFigures], colours: PhaseColours, width: float) -> ReportSection:
    panels = []
    chosen_of = {run.label: _iterations_to_draw(run) for run in runs}
    longest_ns = max(
        (shown_time_ns(run, index) for run in runs for index in chosen_of[run.label]), default=0.0
    )
    for run in runs:
        chosen = chosen_of[run.label]
        views = []
        for index in chosen:
            drawing = timeline_chart(run, index, colours, width, longest_ns)
            if drawing is not None:
                views.append((f"iteration {index}", drawing.render()))
        notes = []
        if len(chosen) < len(run.iterations):
            notes.append(f"{len(chosen)} of {len(run.iterations)} iterations are drawn.")
        if len(run.run.ranks) > MAX_RANKS:
            notes.append(f"{MAX_RANKS} of {len(run.run.ranks)} ranks, evenly spaced.")
        if not views:
            notes = ["This run logged nothing to draw."]
        panels.append(Panel(run, tuple(views), " ".join(notes)))
    legend: list[tuple[str, Markup | str]] = [("computing", _swatch("compute"))]
    for phase, css in colours.legend:
        legend.append((f"blocked on {phase_name(phase)}", _swatch(css)))
    legend.append(("in flight (thin lanes)", _swatch("p0 flight")))
    if any(run.notifications for run in runs):
        legend.append(("CNP that came (tick)", _swatch("marks-key")))
    if any(run.run.environment.faults for run in runs):
        legend.append(("a fault", _swatch("fault")))
    return ReportSection(
        "timeline",
        "Timeline of the ranks",
        "A lane per rank: on top its main thread, below it the collectives in flight from posting "
        "to completion. All ranks share one clock."
        + (
            " A virtual GPU has its default stream on top, below it a row for each other stream, "
            "with kernels and collectives; trace.json has each kernel."
            if any(log.gpus for run in runs for log in run.run.ranks)
            else ""
        ),
        tuple(panels),
        tuple(legend),
    )


def _iterations_to_draw(run: RunFigures) -> list[int]:
    """As many as the page can hold, the slowest among them."""
    indices = [b.index for b in run.iterations]
    if not indices:
        return []
    slowest = max(run.iterations, key=lambda b: b.duration_ns).index
    chosen, budget = [slowest], MAX_TIMELINE_MARKS - marks_of(run, slowest)
    for index in indices:
        cost = marks_of(run, index)
        if index != slowest and cost <= budget and len(chosen) < 8:
            chosen.append(index)
            budget -= cost
    return sorted(chosen)


def _fabric(runs: Sequence[RunFigures], colours: PhaseColours, width: float) -> ReportSection:
    panels = []
    for run in runs:
        views = []
        note = ""
        drawing = fabric_chart(run, width)
        if drawing is None:
            links = len(run.run.fabric.links)
            note = f"{links} links, more than {MAX_LINKS}, are not drawn; see the table of ports."
        else:
            views.append(("whole run", drawing.render()))
        over_time = link_use_chart(run, width)
        if over_time is not None:
            views.append(("over time", over_time.render()))
        balance = tier_balance_chart(run, width)
        if balance is not None:
            views.append(("balance over time", balance.render()))
        by_dimension = dimension_load_chart(run, width)
        if by_dimension is not None:
            views.append(("by dimension", by_dimension.render()))
        tree = aggregation_tree_chart(run, width)
        if tree is not None:
            views.append(("aggregation tree", tree.render()))
        slots = slot_use_chart(run, width)
        if slots is not None:
            views.append(("slots", slots.render()))
        panels.append(Panel(run, tuple(views), note))
    return ReportSection(
        "fabric",
        "Fabric and link use",
        "Share of the communicating time (any collective in flight) that each link spent sending, "
        "L1 overhead included; the two lanes of a link are its two directions. Over time: the "
        "ports next to a capture. Balance over time: the busiest port of a tier over the mean of "
        "its ports, from samples of all of them; 1 is even. By dimension: the bytes of programs "
        "along each, from the ranks' logs. Aggregation tree: payload of collectives in which "
        "switches took part, as a share of the bytes that hosts would have sent over the link "
        "that they load most. Slots: "
        "the most that operations held at once at each aggregation node. Hover for figures.",
        tuple(panels),
        scale=("idle", *(f"≤ {round(100 * (i + 1) / 6)}%" for i in range(6))),
    )


def _prediction(runs: Sequence[RunFigures], colours: PhaseColours, width: float) -> ReportSection:
    panels = []
    predictors = tuple(dict.fromkeys(name for run in runs for name in run.predictors))
    compared = {run.label: comparisons(run) for run in runs}
    range_ns = duration_range_ns([row for rows in compared.values() for row in rows[:MAX_ROWS]])
    for run in runs:
        rows = compared[run.label]
        if not rows:
            panels.append(Panel(run, (), run.why_no_collectives))
            continue
        note = f"The first {MAX_ROWS} of {len(rows)}; all are in the table of collectives."
        drawing = prediction_chart(rows, predictors, colours, width, range_ns)
        panels.append(Panel(run, (("", drawing.render()),), note if len(rows) > MAX_ROWS else ""))
    legend: list[tuple[str, Markup | str]] = [("measured, mean", _swatch("measured-key"))]
    legend += [(name, _shape(number)) for number, name in enumerate(predictors)]
    return ReportSection(
        "prediction",
        "Measured and predicted",
        "Measured means with whiskers from the fastest to the slowest iteration; markers "
        "are each predictor's times for the same collective. Predictions know when the run "
        "posted its collectives, and the ports that ECMP hashes.",
        tuple(panels),
        tuple(legend),
    )


_SERIES_CAPTION = (
    "Backlog of the ports with the deepest queues and the most marks. The dashed line is the "
    "depth from which the port marks; ticks under a series are marked packets."
)


def _queues(runs: Sequence[RunFigures], colours: PhaseColours, width: float) -> ReportSection:
    panels = []
    caption = (
        "Deepest backlog of the ports that dropped and marked most, of switches and hosts, then "
        "of those with the deepest queues."
    )
    for run in runs:
        series = queue_series_chart(run, width)
        if series is not None:
            caption = _SERIES_CAPTION
            panels.append(Panel(run, (("", series.render()),)))
            continue
        extremes = queue_extremes_chart(run, ports_that_matter(run), width)
        if extremes is None:
            counted = any(p.record.max_backlog_bytes is not None for p in run.ports)
            note = "Nothing ever queued at any port."
            if not counted:
                note = "The queues of this run do not count their backlog."
            panels.append(Panel(run, (), note))
        else:
            note = "Nothing was sampled (natively, or by counters.interval): totals instead."
            if run.queues:
                note = "The sampled ports never queued: totals of all ports instead."
            panels.append(Panel(run, (("", extremes.render()),), note))
    return ReportSection(
        "queues",
        "Queues and marks",
        caption,
        tuple(panels),
    )


def _rates(runs: Sequence[RunFigures], colours: PhaseColours, width: float) -> ReportSection | None:
    """None where no run has controllers of congestion."""
    if not any(run.rates for run in runs):
        return None
    panels = []
    for run in runs:
        drawing = rates_chart(run, width)
        note = "No queue pair was slowed down." if run.rates else "This run had no controllers."
        if drawing is None:
            panels.append(Panel(run, (), note))
        else:
            panels.append(Panel(run, (("", drawing.render()),)))
    return ReportSection(
        "rates",
        "Rates of queue pairs",
        "The queue pairs that their controllers slowed down most, as they sent. Ticks under a rate "
        "are congestion notifications (CNPs) that came for it, where captures have them.",
        tuple(panels),
    )


def _flows(runs: Sequence[RunFigures], colours: PhaseColours, width: float) -> ReportSection:
    panels = []
    for run in runs:
        if run.flows is None:
            panels.append(Panel(run, (), run.why_no_flows))
            continue
        views = []
        by_phase = run.flows.phases()
        for name, values, unit in (
            ("completion time", run.flows.messages.fct_ns, True),
            ("slowdown", run.flows.messages.slowdown, False),
        ):
            series = {
                phase_name(phase): (colours.css(phase), values[by_phase[phase]])
                for phase in colours.ordered(by_phase)
            }
            drawing = cdf_chart(series, name, width, is_time=unit)
            if drawing is not None:
                views.append((name, drawing.render()))
        round_trips = {"round trips": ("p0", run.flows.rtt_ns)}
        drawing = cdf_chart(round_trips, "round-trip time", width, is_time=True)
        if drawing is not None:
            views.append(("round trips", drawing.render()))
        behind = {"reordering": ("p0", run.flows.reordering)}
        drawing = cdf_chart(behind, "behind", width, is_time=False, unit="packets")
        if drawing is not None:
            views.append(("reordering", drawing.render()))
        note = "" if views else "The capture holds no messages of collectives."
        panels.append(Panel(run, tuple(views), note))
    legend = tuple((phase_name(phase), _swatch(css)) for phase, css in colours.legend)
    drawn = any(panel.views for panel in panels)
    return ReportSection(
        "flows",
        "Flow completion",
        "Share of Gloo's messages that were complete within a time: from the first bit leaving the "
        "sender's port to the last one at the receiver's. Slowdown is that over the time in an "
        "empty network. Round trips are from a packet's departure to its acknowledgement. "
        "Reordering: how many packets came before one that they should have followed.",
        tuple(panels),
        legend if drawn else (),
    )


def _traffic(runs: Sequence[RunFigures], colours: PhaseColours, width: float) -> ReportSection:
    panels = []
    steps: tuple[str, ...] = ("none",)
    for run in runs:
        if run.is_program and not run.traffic.bytes.any():
            panels.append(Panel(run, (), run.why_no_collectives))
            continue
        drawing, shades = heat_map(run.traffic, width)
        if len(runs) == 1:
            steps = ("none", *(f"≤ {size(bound)}" for bound in shades.bounds))
        else:
            steps = ("none", *(f"≤ {i + 1}/6 of most" for i in range(6)))
        note = f"From {run.traffic.source}."
        if len(run.run.ranks) > MAX_CELLS:
            block = -(-len(run.run.ranks) // MAX_CELLS)
            note += f" A cell is {block} × {block} neighbouring ranks."
        if run.traffic.left_out:
            note += f" {len(run.traffic.left_out)} collectives are not in it."
        panels.append(Panel(run, (("", drawing.render()),), note))
    return ReportSection(
        "traffic",
        "Traffic between ranks",
        "Payload from each rank (rows) to each rank (columns) over the whole run.",
        tuple(panels),
        scale=steps,
    )
