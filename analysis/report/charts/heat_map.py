"""Bytes from every rank to every other one as a heat map."""

from __future__ import annotations

from analysis.metrics.traffic import TrafficMatrix
from analysis.report.charts.colours import Shades
from analysis.report.charts.drawing import Drawing
from analysis.report.tables.figures import size

MAX_CELLS = 64


def heat_map(traffic: TrafficMatrix, width: float) -> tuple[Drawing, Shades]:
    """Sources as rows, destinations as columns. Beyond 64 ranks, blocks of neighbours together."""
    matrix = traffic.bytes
    ranks = len(matrix)
    block = -(-ranks // MAX_CELLS)
    cells = -(-ranks // block)
    side = min(width - 70, 520.0, 34.0 * cells)
    cell = side / cells
    left, top = 46.0, 38.0
    sums = [
        [
            int(matrix[r * block : (r + 1) * block, c * block : (c + 1) * block].sum())
            for c in range(cells)
        ]
        for r in range(cells)
    ]
    shades = Shades(max(max(row) for row in sums), relative=True)
    drawing = Drawing(left + side + 14, top + side + 8, "Bytes from rank to rank")
    gap = 0.0 if cell < 6 else 0.8
    for r, row in enumerate(sums):
        for c, total in enumerate(row):
            tip = f"rank {_name(r, block, ranks)} → {_name(c, block, ranks)}\n{size(total)}"
            drawing.rect(
                left + c * cell, top + r * cell, cell - gap, cell - gap, shades.css(total), tip
            )
    every = max(1, -(-cells * 24 // round(side)))
    for index in range(0, cells, every):
        name = str(index * block)
        drawing.text(left - 6, top + (index + 0.5) * cell + 3.5, name, "tick end")
        drawing.text(left + (index + 0.5) * cell, top - 6, name, "tick mid")
    drawing.text(12, top + side / 2, "from rank", "axis mid", turn=-90)
    drawing.text(left + side / 2, 12, "to rank", "axis mid")
    return drawing, shades


def _name(index: int, block: int, ranks: int) -> str:
    first, last = index * block, min((index + 1) * block, ranks) - 1
    return str(first) if first == last else f"{first}–{last}"
