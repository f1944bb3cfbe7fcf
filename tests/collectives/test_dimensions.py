"""The dimensions that collectives take from a fabric."""

from __future__ import annotations

import pytest

from collectives.settings import settings_of
from topologies.spec.spec import parse_spec


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
