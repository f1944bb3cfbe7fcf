"""Flows through switches of reducing microswitches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.in_network.clos import Conflict, Flow, Route, route
from collectives.settings import settings_of
from topologies.spec.spec import Spec, SpecError, parse_dict


def all_reduce(name: str, *ports: int) -> Flow:
    return Flow(name, frozenset(ports), frozenset(ports))


def carried(found: Route, flows: tuple[Flow, ...], middles: int) -> dict[int, frozenset[int]]:
    """Output -> the inputs that have been reduced into it, followed stage by stage."""
    if found.ports <= 2:
        return {port: flow.inputs for flow in flows for port in flow.outputs}
    middle = dict(found.middle)
    assert set(middle.values()) <= set(range(middles))
    into: dict[tuple[int, int], frozenset[int]] = {}
    for flow in flows:
        for port in flow.inputs:
            wire = middle[flow.name], port // 2
            together = {p for p in flow.inputs if p // 2 == port // 2}
            # One wire between a microswitch and a middle switch: nobody else's.
            assert into.setdefault(wire, frozenset(together)) == together
    got: dict[int, frozenset[int]] = {}
    for number, inside in found.inside:
        parts = tuple(
            Flow(
                flow.name,
                frozenset(port // 2 for port in flow.inputs),
                frozenset(port // 2 for port in flow.outputs),
            )
            for flow in flows
            if middle[flow.name] == number
        )
        for place, come in carried(inside, parts, middles).items():
            for flow in flows:
                for port in flow.outputs:
                    if middle[flow.name] == number and port // 2 == place:
                        assert port not in got
                        got[port] = frozenset[int]().union(*(into[number, i] for i in come))
    return got


@st.composite
def flows_of(draw: st.DrawFn) -> tuple[int, tuple[Flow, ...]]:
    ports = draw(st.integers(2, 13))
    ins = draw(st.permutations(range(ports)))
    outs = draw(st.permutations(range(ports)))
    flows: list[Flow] = []
    while ins and outs and len(flows) < 5 and draw(st.booleans()):
        a, b = draw(st.integers(1, len(ins))), draw(st.integers(1, len(outs)))
        flows.append(Flow(f"f{len(flows)}", frozenset(ins[:a]), frozenset(outs[:b])))
        ins, outs = ins[a:], outs[b:]
    return ports, tuple(flows)


@given(flows_of(), st.integers(2, 4))
def test_what_is_routed_arrives_reduced_and_nothing_else_does(
    drawn: tuple[int, tuple[Flow, ...]], middles: int
) -> None:
    ports, flows = drawn
    try:
        found = route(ports, middles, flows)
    except Conflict as conflict:
        assert len(conflict.flows) > middles
        return
    expected = {port: flow.inputs for flow in flows for port in flow.outputs}
    assert carried(found, flows, middles) == expected


@given(st.integers(1, 8), st.data())
def test_two_switches_in_the_middle_are_enough_for_permutations(
    r: int, data: st.DataObject
) -> None:
    """A Clos network with m >= n = 2 is rearrangeable (Benes 1965)."""
    to = data.draw(st.permutations(range(2 * r)))
    flows = tuple(Flow(f"f{i}", frozenset({i}), frozenset({j})) for i, j in enumerate(to))
    route(2 * r, 2, flows)


def test_neighbours_in_a_group_share_their_microswitch_with_nobody() -> None:
    """FRED's placement: model-parallel groups of neighbours need one middle switch."""
    pairs = tuple(all_reduce(f"mp{i}", 2 * i, 2 * i + 1) for i in range(6))
    found = route(12, 3, pairs)
    assert {colour for _, colour in found.middle} == {0}
    assert found.reducing == found.copying == tuple(range(6))


def test_the_groups_that_cross_a_wafer_go_at_once_with_three_in_the_middle() -> None:
    """Four data-parallel groups of five, each with a port to each of five switches below."""
    groups = tuple(all_reduce(f"dp{g}", *(4 * s + g for s in range(5))) for g in range(4))
    found = route(20, 3, groups)
    assert len({colour for _, colour in found.middle}) == 2


def test_flows_that_meet_three_others_each_conflict_with_three_in_the_middle() -> None:
    """Each two of four flows meet: at most one takes each middle switch."""
    flows = (
        all_reduce("a", 0, 2, 4),
        all_reduce("b", 1, 6, 8),
        all_reduce("c", 3, 7, 10),
        all_reduce("d", 5, 9, 11),
    )
    with pytest.raises(Conflict, match=r"a, b, c, d share microswitches of FRED_3\(12\)") as caught:
        route(12, 3, flows)
    assert caught.value.flows == ("a", "b", "c", "d")
    assert len(dict(route(12, 4, flows).middle)) == 4


def test_ports_are_used_once() -> None:
    with pytest.raises(ValueError, match="b shares a port with another flow"):
        route(4, 3, (all_reduce("a", 0, 1), all_reduce("b", 1, 2)))
    with pytest.raises(ValueError, match="expected inputs from 0 to 3"):
        route(4, 3, (all_reduce("a", 4),))


# -- trees of groups -------------------------------------------------------------------------------


def spec_of(middles: int, placement: dict[int, str] | None = None, **more: object) -> Spec:
    """FRED's 20 endpoints with MP(2) and DP(10)."""
    layer = {"name": "a", "weight_gradient": {"collective": "all_reduce", "size": 4000}}
    return parse_dict(
        {
            "name": "fred",
            "fabric": {"kind": "hierarchical", "groups": 5, "hosts_per_group": 4},
            "workload": {
                "kind": "layers",
                "ranks": 20,
                "parallelism": "hybrid-data-model",
                "innermost": 4,
                "layers": [layer],
            },
            "placement": placement or "linear",
            "aggregation": {"middles": middles, **more},
            "collectives": {"backend": "programs", "all_reduce": {"algorithm": "aggregation"}},
        }
    )


def reasons(spec: Spec) -> list[str]:
    found = settings_of(spec).aggregation
    assert found is not None
    return [tree.reason for tree in found.trees]


def test_freds_placement_has_no_conflicts_with_three_in_the_middle() -> None:
    assert reasons(spec_of(3)) == [""] * 9


def test_another_placement_has_some_which_are_told_or_left_to_hosts() -> None:
    """Each model-parallel group has a host below each of four switches: of five groups of four, all
    meet at the upper switch."""
    scattered = {rank: f"h{4 * (rank % 5) + rank // 5}" for rank in range(20)}
    with pytest.raises(SpecError, match=r"conflict in outer0: ranks .* of FRED_2\(20\)"):
        spec_of(2, scattered)
    fallen = reasons(spec_of(2, scattered, when_full="fall-back"))
    assert any(fallen) and not all(fallen)
