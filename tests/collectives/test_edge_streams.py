"""Streams into a grid at its edge: every link's share, the hot one, and a run of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.fred.fabrics import PER_SWITCH
from benchmarks.fred.models import streamed_spec
from collectives.algorithms import algorithm
from collectives.algorithms.base import DoesNotFit
from collectives.kinds import Kind
from collectives.verify import verify
from tests.session.command import run_spec, valid_rows


def stripes_by_link(columns: int, rows: int) -> Counter[tuple[int, int]]:
    """How many stripes of a broadcast each directed link carries; member 0 is outside."""
    program = algorithm("edge-streams", dimensions=(columns, rows)).program(
        Kind.BROADCAST, 1 + columns * rows
    )
    return Counter((message.source, message.destination) for message in program.messages())


@pytest.mark.parametrize(("columns", "rows"), [(4, 4), (4, 5), (2, 3), (1, 3), (3, 1)])
@pytest.mark.parametrize("kind", [Kind.BROADCAST, Kind.REDUCE])
def test_programs_are_right(columns: int, rows: int, kind: Kind) -> None:
    verify(algorithm("edge-streams", dimensions=(columns, rows)).program(kind, 1 + columns * rows))


def test_stripes_go_from_neighbour_to_neighbour_and_come_in_at_the_rim() -> None:
    columns, rows = 4, 5
    found = stripes_by_link(columns, rows)
    places = {1 + y * columns + x: (x, y) for y in range(rows) for x in range(columns)}
    entered = {places[b]: n for (a, b), n in found.items() if a == 0}
    assert sum(entered.values()) == 2 * (columns + rows)
    corners = {(x, y) for x in (0, columns - 1) for y in (0, rows - 1)}
    assert {place for place, n in entered.items() if n == 2} == corners
    assert all(x in (0, 3) or y in (0, 4) for x, y in entered)
    for a, b in found:
        if a:
            (x0, y0), (x1, y1) = places[a], places[b]
            assert abs(x0 - x1) + abs(y0 - y1) == 1


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_the_last_link_of_a_column_takes_all_channels_but_one_end_of_each_line(size: int) -> None:
    """FRED (ISCA 2025): (2N - 1) P on an N x N mesh with 4N channels of P."""
    inside = {link: n for link, n in stripes_by_link(size, size).items() if link[0]}
    assert max(inside.values()) == 2 * size - 1


def test_on_the_wafer_nine_of_eighteen_channels_meet() -> None:
    inside = {link: n for link, n in stripes_by_link(4, 5).items() if link[0]}
    assert max(inside.values()) == 9
    down = [inside[13 + x, 17 + x] for x in range(4)]
    assert down == [9] * 4


def test_dimensions_are_those_of_the_grid_without_the_root() -> None:
    with pytest.raises(DoesNotFit, match="columns and rows of all but the root, 20"):
        algorithm("edge-streams", dimensions=(4, 4)).program(Kind.BROADCAST, 21)


@pytest.mark.long
def test_nine_of_eighteen_stripes_are_on_one_link_by_its_port_counters(tmp_path: Path) -> None:
    """Weights that are streamed in over FRED's 5x4 mesh, twice, and gradients that go out: half of
    all that comes in is on the last link down each column, and half of what goes out on the first
    one up."""
    size_bytes = 900_000
    text = streamed_spec("mesh", 1, size_bytes, 10).replace("iterations: 2", "iterations: 1")
    run = run_spec(tmp_path, text.replace("chunks: 16", "chunks: 2"))
    assert [row["kind"] for row in valid_rows(run, 0)] == ["broadcast", "broadcast", "reduce"]
    rows = [json.loads(line) for line in (run / "links.jsonl").read_text().splitlines()]
    sent = {(row["node"], row["peer"]): row["bytes"] * 18 / size_bytes for row in rows}
    for column in range(PER_SWITCH):
        ends = f"h{12 + column}", f"h{16 + column}"
        # The other way round go the stripes that come in at the last row.
        assert 2 * 9 + 3 < sent[ends] < 1.06 * (2 * 9 + 3)
        assert 2 * 3 + 9 < sent[ends[::-1]] < 1.06 * (2 * 3 + 9)
    entered = sum(stripes for (node, _), stripes in sent.items() if node == "io")
    # And acknowledgements of what goes out.
    assert 2 * 18 < entered < 1.2 * 2 * 18
