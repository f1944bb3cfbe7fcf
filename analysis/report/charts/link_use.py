"""Link use over time: a strip per class of links and one per captured port, shaded by the share of
time spent sending."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.metrics.link import communicating_spans
from analysis.metrics.port_traffic import PortTraffic, port_traffic
from analysis.report.charts.broken_time import BrokenTime
from analysis.report.charts.colours import SHADES, Shades
from analysis.report.charts.drawing import Drawing
from analysis.report.run_figures import RunFigures
from analysis.report.tables.figures import share

MAX_STRIPS = 64
_COLUMNS = 240


def link_use_chart(figures: RunFigures, width: float) -> Drawing | None:
    """None for runs without captures, or in which nothing communicated."""
    spans = communicating_spans(figures.run)
    if figures.flows is None or not spans:
        return None
    traffic = port_traffic(figures.flows.capture)
    strips = _chosen(traffic)
    if not strips:
        return None
    strips = [*_by_class(figures, traffic), *strips]
    height, gap = (11.0, 2.0) if len(strips) <= 40 else (7.0, 1.0)
    left, top = 26 + 6.2 * max(len(_name(strip)) for strip in strips), 8.0
    bottom = top + len(strips) * (height + gap)
    drawing = Drawing(width, bottom + 38, "Link use over time")
    time = BrokenTime(spans, left, width - 12)
    time.draw_axis(drawing, top, bottom, figures.scale)
    for position, strip in enumerate(strips):
        y = top + position * (height + gap)
        drawing.text(left - 8, y + height - 1.5, _name(strip), "tick end")
        _draw(drawing, time, strip, y, height)
    return drawing


def _chosen(traffic: Sequence[PortTraffic]) -> list[PortTraffic]:
    """The ports that sent most, in order of links."""
    most = sorted(traffic, key=lambda each: -int(each.wire_bytes.sum()))[:MAX_STRIPS]
    kept = {each.port for each in most if len(each.wire_bytes)}
    return [each for each in traffic if each.port in kept]


def _by_class(figures: RunFigures, traffic: Sequence[PortTraffic]) -> list[PortTraffic]:
    """The captured ports of each class of links, such as the axes of a torus, taken together: the
    dimensions that schedules balance. None for fabrics of one class."""
    classes: dict[str, list[PortTraffic]] = {}
    ports = {
        port.interface: link.link_class
        for link in figures.run.fabric.links
        for port in (link.a, link.b)
    }
    for each in traffic:
        classes.setdefault(ports[each.port], []).append(each)
    if len(classes) < 2:
        return []
    found = []
    for name, members in classes.items():
        time_ns = np.concatenate([member.time_ns for member in members])
        order = np.argsort(time_ns, kind="stable")
        found.append(
            PortTraffic(
                port="",
                node=f"{name}, {len(members)} ports",
                peer="",
                rate_bps=sum(member.rate_bps for member in members),
                at_peer=False,
                time_ns=time_ns[order],
                wire_bytes=np.concatenate([member.wire_bytes for member in members])[order],
            )
        )
    return found


def _name(strip: PortTraffic) -> str:
    return f"{strip.node} → {strip.peer}" if strip.peer else strip.node


def _draw(drawing: Drawing, time: BrokenTime, strip: PortTraffic, y: float, height: float) -> None:
    """A path per shade, so that a strip takes little room in the page."""
    shades = Shades(1.0)
    pieces: list[list[str]] = [[] for _ in range(SHADES)]
    highest = 0.0
    for stretch in time.stretches:
        columns = max(
            1, round(_COLUMNS * (stretch.right - stretch.left) / (time.right - time.left))
        )
        edges = np.linspace(stretch.start_ns, stretch.end_ns, columns + 1)
        values = np.minimum(strip.utilisation(edges), 1.0)
        highest = max(highest, float(values.max()))
        steps = [shades.step(value) for value in values.tolist()]
        step_width = (stretch.right - stretch.left) / columns
        start = 0
        for index in range(1, columns + 1):
            if index == columns or steps[index] != steps[start]:
                x, run = stretch.left + start * step_width, (index - start) * step_width
                pieces[steps[start]].append(f"M{x:.1f} {y:.1f}h{run:.1f}v{height:.1f}h-{run:.1f}z")
                start = index
    tip = f"{_name(strip)}\nat most {share(highest)} of a time step spent sending"
    for step, parts in enumerate(pieces):
        if parts:
            drawing.path("".join(parts), f"s{step}", tip)
