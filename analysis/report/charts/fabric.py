"""The fabric drawn, its links coloured by how busy they were."""

from __future__ import annotations

from analysis.metrics.link import PortMetrics
from analysis.report.charts.colours import Shades
from analysis.report.charts.drawing import Drawing
from analysis.report.charts.fabric_layout import Layout, lay_out
from analysis.report.run_figures import RunFigures
from analysis.report.tables.figures import count, share, size
from topologies.fabrics.fabric import Link, NodeKind
from topologies.units import format_rate

MAX_LINKS = 4000
_TWO_LANES_BELOW = 500
_LABEL_GAP = 30.0


def fabric_chart(figures: RunFigures, width: float) -> Drawing | None:
    """Links as two lanes, one per direction (the right-hand one of who looks along it); as one lane
    of the busier direction in large fabrics. None when there are too many links to see anything."""
    fabric = figures.run.fabric
    if len(fabric.links) > MAX_LINKS:
        return None
    layout = lay_out(fabric, width)
    drawing = Drawing(width, layout.height, f"The fabric ({fabric.kind}) with its links' use")
    ports = {metrics.record.port: metrics for metrics in figures.ports}
    shades = Shades(1.0)
    both = len(fabric.links) <= _TWO_LANES_BELOW
    order = sorted(fabric.links, key=lambda link: _busiest(link, ports))
    for link in order:
        _draw_link(drawing, layout, link, ports, shades, both)
    draw_nodes(drawing, layout, figures)
    return drawing


def _busiest(link: Link, ports: dict[str, PortMetrics]) -> float:
    return max((_use(ports.get(end.interface)) for end in (link.a, link.b)), default=0.0)


def _use(metrics: PortMetrics | None) -> float:
    return (metrics.utilisation or 0.0) if metrics else 0.0


def _draw_link(
    drawing: Drawing,
    layout: Layout,
    link: Link,
    ports: dict[str, PortMetrics],
    shades: Shades,
    both: bool,
) -> None:
    a, b = layout.places[link.a.node], layout.places[link.b.node]
    tip = _tip(link, ports)
    if layout.grid and _wraps(layout, link):
        for here, there in ((a, b), (b, a)):
            _draw_stub(drawing, here, there, _busiest(link, ports), shades, tip)
        return
    if not both:
        use = _busiest(link, ports)
        drawing.line(*a, *b, f"link {shades.css(use)} w{shades.step(use)}", tip)
        return
    length = max(((b[0] - a[0]) ** 2 + (b[1] - a[1]) ** 2) ** 0.5, 1e-9)
    shift = (-(b[1] - a[1]) / length * 1.7, (b[0] - a[0]) / length * 1.7)
    for end, sign in ((link.a, 1), (link.b, -1)):
        use = _use(ports.get(end.interface))
        dx, dy = shift[0] * sign, shift[1] * sign
        drawing.line(
            a[0] + dx,
            a[1] + dy,
            b[0] + dx,
            b[1] + dy,
            f"link {shades.css(use)} w{shades.step(use)}",
            tip,
        )


def _wraps(layout: Layout, link: Link) -> bool:
    """Whether another node stands between the two ends, so that a straight line would hide it."""
    (ax, ay), (bx, by) = layout.places[link.a.node], layout.places[link.b.node]
    middle = ((ax + bx) / 2, (ay + by) / 2)
    length = ((bx - ax) ** 2 + (by - ay) ** 2) ** 0.5
    for name, (x, y) in layout.places.items():
        if name in (link.a.node, link.b.node):
            continue
        along = ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / max(length * length, 1e-9)
        if not 0 < along < 1:
            continue
        across = abs((bx - ax) * (ay - y) - (ax - x) * (by - ay)) / max(length, 1e-9)
        if across < 2 and abs(x - middle[0]) + abs(y - middle[1]) < length:
            return True
    return False


def _draw_stub(
    drawing: Drawing,
    here: tuple[float, float],
    there: tuple[float, float],
    use: float,
    shades: Shades,
    tip: str,
) -> None:
    """A wrap-around link leaves its node outwards, away from its other end."""
    length = max(((there[0] - here[0]) ** 2 + (there[1] - here[1]) ** 2) ** 0.5, 1e-9)
    reach = 26.0
    x = here[0] - (there[0] - here[0]) / length * reach
    y = here[1] - (there[1] - here[1]) / length * reach
    drawing.line(*here, x, y, f"link stub {shades.css(use)} w{shades.step(use)}", tip)


def draw_nodes(drawing: Drawing, layout: Layout, figures: RunFigures) -> None:
    """Hosts and switches, with what is on them."""
    fabric = figures.run.fabric
    ranks: dict[str, list[int]] = {}
    for rank, host in enumerate(figures.run.hosts):
        ranks.setdefault(host, []).append(rank)
    tiers: dict[float, list[float]] = {}
    for x, y in layout.places.values():
        tiers.setdefault(y, []).append(x)
    gaps = {
        y: min([b - a for a, b in zip(sorted(xs), sorted(xs)[1:], strict=False)] or [99.0])
        for y, xs in tiers.items()
    }
    r = layout.radius
    for node in fabric.nodes:
        x, y = layout.places[node.name]
        mine = ranks.get(node.name, [])
        what = f"rank {', '.join(map(str, mine))}" if mine else node.kind.value
        tip = f"{node.name} ({what})\n{node.address}, {len(fabric.links_of[node.name])} ports"
        if node.kind is NodeKind.SWITCH:
            drawing.rect(x - 1.35 * r, y - 0.8 * r, 2.7 * r, 1.6 * r, "switch", tip)
        else:
            drawing.circle(x, y, 0.85 * r, "host" if mine else "host idle", tip)
        if layout.grid:
            if r >= 8 and mine:
                drawing.text(x, y + 3, str(mine[0]), "node-in mid")
        elif layout.rings:
            continue
        elif gaps[y] >= max(_LABEL_GAP, 6.4 * len(node.name) + 4):
            below = node.kind is NodeKind.HOST
            drawing.text(x, y + r + 14 if below else y - r - 5, node.name, "tick mid halo")
            if below and mine:
                drawing.text(x, y + r + 26, f"rank {mine[0]}", "tick mid faint halo")

    for name, (x, y) in layout.rings.items():
        drawing.text(x, y + 4, name, "tick mid faint halo")


def _tip(link: Link, ports: dict[str, PortMetrics]) -> str:
    lines = [f"link {link.index}: {format_rate(link.rate_bps)}, {link.link_class}"]
    for end in (link.a, link.b):
        metrics = ports.get(end.interface)
        if metrics is None:
            continue
        record = metrics.record
        line = f"{metrics.name}: {share(metrics.utilisation)} busy, {size(record.bytes)}"
        if record.max_backlog_bytes is not None:
            line += f", queue at most {size(record.max_backlog_bytes)}"
        for amount, what in (
            (record.ecn_marks, "marks"),
            (record.drops, "drops"),
            (record.pauses, "pauses"),
        ):
            if amount:
                line += f", {count(amount)} {what}"
        lines.append(line)
    return "\n".join(lines)
