"""The connections of process groups over a simulated network."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.predict.driven_network import network_columns
from emulator.ranks.simulated.meshes import MeshesOfGroups
from simulation.driven_engine import DrivenEngine
from topologies.spec.spec import parse_spec

_TWO = parse_spec(
    """
name: two
fabric: {kind: flat, hosts: 2, link: {rate: 100Gbps, delay: 1us, mtu: 9000}}
workload: {kind: collectives, ranks: 2, operations: [{kind: barrier}]}
"""
)
_GROUPS = st.lists(st.sets(st.integers(0, 7), min_size=2).map(sorted), max_size=6)


@given(_GROUPS)
def test_groups_with_two_ranks_in_common_have_connections_of_their_own(
    groups: list[list[int]],
) -> None:
    meshes = MeshesOfGroups(8, 8)
    found = [meshes.ends(str(number), group) for number, group in enumerate(groups)]
    for ends, group in zip(found, groups, strict=True):
        assert [end % 8 for end in ends] == group and len({end // 8 for end in ends}) == 1
    for (one, ends), (other, others) in combinations(zip(groups, found, strict=True), 2):
        if len(set(one) & set(other)) > 1:
            assert not set(ends) & set(others)
    assert found == [meshes.ends(str(number), group) for number, group in enumerate(groups)]


def test_groups_beyond_the_meshes_take_turns() -> None:
    meshes = MeshesOfGroups(2, 3)
    found = [meshes.ends(str(number), (0, 1))[0] // 2 for number in range(5)]
    assert found == [0, 1, 2, 0, 1]


@pytest.mark.parametrize(("mesh", "first"), [(0, 0.5), (1, 1.0)])
def test_messages_of_one_mesh_follow_each_other_and_those_of_two_share_the_way(
    mesh: int, first: float
) -> None:
    over: list[int] = []
    with DrivenEngine(network_columns(_TWO, meshes=2)) as engine:
        for tag, ends in enumerate([(0, 1), (2 * mesh, 2 * mesh + 1)]):
            engine.receive(*ends, 4 << 20, tag=tag, then=lambda: over.append(engine.now_ns))
            engine.send(*ends, 4 << 20, tag=tag)
        engine.run()
    assert over[0] / over[1] == pytest.approx(first, abs=0.05)
