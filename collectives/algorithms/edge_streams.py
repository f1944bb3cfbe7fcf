"""Streams into a grid at its edge, and out of it: weights that are streamed in from controllers
along the rim, and gradients (Rashidi et al., FRED, ISCA 2025)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from collectives.algorithms.base import DoesNotFit
from collectives.algorithms.trees import AlongTrees, Edges
from collectives.kinds import Kind


@dataclass(frozen=True, kw_only=True)
class EdgeStreams(AlongTrees):
    """The root is outside of a grid of the other members, with a channel to each end of each row
    and column. Each channel carries an equal stripe of the data.

    A stripe goes straight on to the other side, and from each member on that line to both sides. So
    the last link of a column takes what comes in at both ends of all rows but one, and at the
    column's own end: of N rows 2N - 1 channels. `dimensions` are the columns and the rows. A reduce
    takes the same trees back.
    """

    name = "edge-streams"
    parts = frozenset({Kind.BROADCAST, Kind.REDUCE})
    window = 4

    dimensions: tuple[int, ...] = ()

    def check(self, ranks: int) -> None:
        sizes = list(self.dimensions)
        if len(sizes) != 2 or min(sizes) < 1 or sizes[0] * sizes[1] != ranks - 1:
            allowed = f"columns and rows of all but the root, {ranks - 1}"
            raise DoesNotFit("dimensions", f"{sizes}", allowed)

    def grain(self, members: int) -> int:
        return 2 * sum(self.dimensions)

    def rooted_trees(self, members: int) -> Sequence[Edges]:
        columns, rows = self.dimensions

        def in_row(row: int, column: int) -> int:
            return 1 + row * columns + column

        def in_column(column: int, row: int) -> int:
            return in_row(row, column)

        found = []
        for at, lines, length in ((in_row, rows, columns), (in_column, columns, rows)):
            for line in range(lines):
                places = range(length)
                for ends in (places, places[::-1]):
                    found.append(_stripe(at, line, ends, lines))
        return found


def _stripe(
    at: Callable[[int, int], int], line: int, places: Sequence[int], lines: int
) -> list[tuple[int, int]]:
    """From position 0 along a line, and from each of its places across the other lines. Edges are
    (child, parent), children first."""
    edges = []
    for place in places:
        for across in (range(line, lines), range(line, -1, -1)):
            spoke = [at(other, place) for other in across]
            edges += [(child, parent) for parent, child in pairwise(spoke)][::-1]
    trunk = [0, *(at(line, place) for place in places)]
    return edges + [(child, parent) for parent, child in pairwise(trunk)][::-1]
