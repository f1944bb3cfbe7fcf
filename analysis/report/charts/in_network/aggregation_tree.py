"""The aggregation tree of a run, drawn on its fabric."""

from __future__ import annotations

from analysis.metrics.in_network.links import TreeLink, tree_links
from analysis.report.charts.colours import Shades
from analysis.report.charts.drawing import Drawing
from analysis.report.charts.fabric import MAX_LINKS, draw_nodes
from analysis.report.charts.fabric_layout import lay_out
from analysis.report.run_figures import RunFigures
from analysis.report.tables.figures import size


def aggregation_tree_chart(figures: RunFigures, width: float) -> Drawing | None:
    """The links of the tree, shaded by their bytes as a share of those that hosts would have sent
    over the link that they load most; the others faint. None where switches took no part, or where
    there are too many links to see anything."""
    fabric = figures.run.fabric
    if len(fabric.links) > MAX_LINKS:
        return None
    links = {each.link.index: each for each in tree_links(figures.run)}
    if not links:
        return None
    layout = lay_out(fabric, width)
    drawing = Drawing(width, layout.height, f"The aggregation tree on the fabric ({fabric.kind})")
    shades = Shades(1.0)
    most = max(max(_sent(each), _by_hosts(each)) for each in links.values()) or 1
    for link in sorted(fabric.links, key=lambda link: link.index in links):
        a, b = layout.places[link.a.node], layout.places[link.b.node]
        tree = links.get(link.index)
        if tree is None:
            drawing.line(*a, *b, "link s0 w0")
            continue
        share = _sent(tree) / most
        drawing.line(*a, *b, f"link {shades.css(share)} w{shades.step(share)}", _tip(tree))
    draw_nodes(drawing, layout, figures)
    return drawing


def _sent(tree: TreeLink) -> int:
    return max(tree.up_bytes, tree.down_bytes)


def _by_hosts(tree: TreeLink) -> int:
    return max(tree.by_hosts_up_bytes, tree.by_hosts_down_bytes)


def _tip(tree: TreeLink) -> str:
    return (
        f"{tree.child} below {tree.parent}\n"
        f"sent {size(tree.up_bytes)} up, {size(tree.down_bytes)} down\n"
        f"by hosts {size(tree.by_hosts_up_bytes)} up, {size(tree.by_hosts_down_bytes)} down"
    )
