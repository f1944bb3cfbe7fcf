"""The dimensions that collectives take from a fabric."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.dimensions import coordinates, part_of_grid, rank_at
from collectives.settings import settings_of
from topologies.spec.spec import parse_spec
from workloads.models.planned import planned_calls


@pytest.mark.parametrize(
    ("fabric", "ranks", "expected"),
    [
        ("{kind: torus, dims: [2, 3, 4]}", 24, (4, 3, 2)),
        ("{kind: mesh, dims: [2, 4]}", 8, (4, 2)),
        ("{kind: mesh, dims: [2, 4]}", 6, None),
        ("{kind: hierarchical, groups: 4, hosts_per_group: 8}", 32, (8, 4)),
        ("{kind: rails, servers: 4, hosts_per_server: 8}", 32, (8, 4)),
        ("{kind: flat, hosts: 8}", 8, None),
    ],
)
def test_dimensions_are_the_fabrics_where_it_is_full(
    fabric: str, ranks: int, expected: tuple[int, ...] | None
) -> None:
    workload = f"{{kind: training, parallelism: {{data: {ranks}}}}}"
    text = f"name: test\nfabric: {fabric}\nworkload: {workload}"
    assert settings_of(parse_spec(text)).dimensions == expected


GRID = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@given(GRID, st.data())
def test_a_group_has_the_sizes_of_its_part_of_the_grid(
    sizes: list[int], data: st.DataObject
) -> None:
    sides = [sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=1))) for size in sizes]
    part = tuple(len(side) for side in sides)
    ranks = tuple(
        rank_at([sides[d][i] for d, i in enumerate(coordinates(place, part))], sizes)
        for place in range(prod(part))
    )
    assert part_of_grid(ranks, tuple(sizes)) == part
    if len(ranks) > 1:
        # In another order it is no part: positions in the group would be other points.
        assert part_of_grid((*ranks[1:], ranks[0]), tuple(sizes)) is None


def test_what_is_no_part_of_a_grid() -> None:
    assert part_of_grid((0, 1, 2), (2, 2)) is None
    assert part_of_grid((0, 3), (2, 2)) is None
    assert part_of_grid((2, 4), (2, 2)) is None


def test_groups_of_a_table_run_hierarchically_over_their_part() -> None:
    text = """
name: test
fabric: {kind: flat, hosts: 16}
workload: {kind: layers, ranks: 16, parallelism: hybrid-data-model, innermost: 4, layers: [
  {name: a, forward: {collective: all_reduce, size: 64KB},
   weight_gradient: {collective: all_reduce, size: 64KB}}]}
collectives:
  backend: programs
  dimensions: [2, 4, 2]
  dimension_rates: [4, 2, 1]
  active_per_dimension: 1
  chunks: 2
  all_reduce: {algorithm: hierarchical}
"""
    spec = parse_spec(text)
    used = {}
    for planned in planned_calls(spec):
        assert planned.call.schedule is not None
        program = planned.call.schedule.chunks[0].program
        used[planned.call.ranks] = {phase.dimension for phase in program.phases}
    # Four neighbours are the innermost dimension and half of the next; the others have the rest.
    assert used == {(0, 1, 2, 3): {0, 1}, (0, 4, 8, 12): {1, 2}}
