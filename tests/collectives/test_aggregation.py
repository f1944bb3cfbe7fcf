"""Trees of switches, and the programs in which they take part."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.predict.interface import load_predictor
from analysis.predict.setting import setting_of_spec
from collectives.algorithms.base import Refused
from collectives.kinds import Kind, Shape
from collectives.schedule.program import ProgramSchedule
from collectives.settings import schedule_of, settings_of
from topologies.aggregation_tree import NoTree, aggregation_tree, children, way_up
from topologies.fabrics.build import build_fabric
from topologies.routing.routes import compute_routes
from topologies.spec.scaling import scale_spec
from topologies.spec.spec import Spec, SpecError, parse_dict
from workloads.models.planned import planned_calls

FABRICS: list[tuple[dict[str, Any], int]] = [
    ({"kind": "flat", "hosts": 5}, 5),
    ({"kind": "leaf-spine", "leaves": 3, "spines": 2, "hosts_per_leaf": 3}, 9),
    ({"kind": "hierarchical", "groups": 3, "hosts_per_group": 2}, 6),
    ({"kind": "fat-tree", "k": 4}, 16),
]


def spec_of(
    fabric: dict[str, Any],
    ranks: int,
    aggregation: dict[str, Any] | None = None,
    size: int = 4096,
    **program: object,
) -> Spec:
    entry = {"algorithm": "aggregation", **program}
    return parse_dict(
        {
            "name": "tree",
            "fabric": fabric,
            "workload": {
                "kind": "collectives",
                "ranks": ranks,
                "operations": [{"kind": "all_reduce", "size": size, "program": entry}],
            },
            "aggregation": aggregation or {},
        }
    )


def plan_for(spec: Spec, kind: Kind, size: int, root: int = 0) -> ProgramSchedule:
    found = schedule_of(
        settings_of(spec),
        Shape(kind, size, spec.ranks, 4, root),
        {"algorithm": "aggregation"},
    )
    assert isinstance(found, ProgramSchedule)
    return found


def problems(spec: dict[str, Any], **changes: object) -> list[str]:
    with pytest.raises(SpecError) as failure:
        parse_dict(spec | changes, "tree.yaml")
    return str(failure.value).splitlines()


# -- trees -----------------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_parents_are_neighbours_and_all_ranks_are_below_the_root(data: st.DataObject) -> None:
    section, hosts = data.draw(st.sampled_from(FABRICS))
    fabric = build_fabric(spec_of(section, 2).fabric)
    ranks = data.draw(st.integers(2, hosts))
    placed = data.draw(st.permutations([host.name for host in fabric.hosts]))[:ranks]
    tree = aggregation_tree(fabric, placed, {switch.name for switch in fabric.switches})
    names = (*placed, *tree.switches)
    assert len(tree.parents) == len(names)
    for participant, parent in enumerate(tree.parents):
        if parent >= 0:
            around = {link.other(names[parent]).node for link in fabric.links_of[names[parent]]}
            assert names[participant] in around
    roots = [i for i, parent in enumerate(tree.parents) if parent < 0]
    ways = [way_up(tree.parents, rank) for rank in range(ranks)]
    assert len(roots) == 1 and all(way[-1] == roots[0] for way in ways)
    # No switch without somebody below, no longer way than the fabric's shortest.
    assert all(children(tree.parents, ranks + i) for i in range(len(tree.switches)))
    routes = compute_routes(fabric)
    for rank in range(ranks):
        way, here = 1, placed[rank]
        while here != names[roots[0]]:
            here = routes.next_hops(here, names[roots[0]])[0].node
            way += 1
        assert len(ways[rank]) == way


def test_a_tree_is_as_low_as_its_ranks_allow() -> None:
    fabric = build_fabric(spec_of({"kind": "fat-tree", "k": 4}, 2).fabric)
    switches = {switch.name for switch in fabric.switches}
    assert aggregation_tree(fabric, ["h0", "h1"], switches).switches == ("edge0-0",)
    in_pod = aggregation_tree(fabric, ["h0", "h2"], switches)
    assert in_pod.switches == ("edge0-0", "edge0-1", "agg0-0")
    over_pods = aggregation_tree(fabric, ["h0", "h4"], switches)
    # A host, its edge switch, one of its pod's and a core switch.
    assert len(way_up(over_pods.parents, 0)) == len(way_up(over_pods.parents, 1)) == 4
    other = aggregation_tree(fabric, ["h0", "h4"], switches, root="core3")
    assert other.switches[-1] == "core3" and "agg0-1" in other.switches


def test_a_host_that_no_switch_joins_is_named() -> None:
    fabric = build_fabric(spec_of({"kind": "fat-tree", "k": 4}, 2).fabric)
    edges = {switch.name for switch in fabric.switches if switch.name.startswith("edge")}
    with pytest.raises(NoTree, match=r"no switch that aggregates reaches all hosts .* h\d+ is cut"):
        aggregation_tree(fabric, ["h0", "h4"], edges)


# -- programs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fabric", "ranks"), FABRICS)
@pytest.mark.parametrize("mode", ["low-latency", "streaming"])
@pytest.mark.parametrize("kind", [Kind.ALL_REDUCE, Kind.REDUCE, Kind.BROADCAST])
@pytest.mark.parametrize("size", [4, 4100, 300_000])
def test_every_link_of_the_tree_carries_the_data_once_each_way(
    fabric: dict[str, Any], ranks: int, mode: str, kind: Kind, size: int
) -> None:
    """`schedule_of` has proved the programs right; here they move no byte too much."""
    root = ranks - 1
    spec = spec_of(fabric, ranks, {"mode": mode, "payload": "100KB", "window": 3})
    found = plan_for(spec, kind, size, root)
    carried: dict[tuple[int, int], int] = {}
    for message in found.numbered_messages():
        pair = message.source, message.destination
        carried[pair] = carried.get(pair, 0) + message.size_bytes
    of_run = settings_of(spec).aggregation
    assert of_run is not None
    (tree,) = of_run.trees
    above = {*way_up(tree.parents, root)}
    edges = {(c, p) for c, p in enumerate(tree.parents) if p >= 0}
    up = edges if kind is not Kind.BROADCAST else {e for e in edges if e[0] in above}
    down = {
        Kind.ALL_REDUCE: edges,
        Kind.REDUCE: {e for e in edges if e[0] in above},
        Kind.BROADCAST: {e for e in edges if e[0] not in above},
    }[kind]
    assert carried == dict.fromkeys([*up, *((p, c) for c, p in down)], size)


def test_slots_bound_what_is_in_flight_and_payloads_the_chunks() -> None:
    spec = spec_of(
        FABRICS[3][0], 16, {"slots": 8, "payload": "1KB", "nodes": {"core": {"slots": 5}}}
    )
    found = plan_for(spec, Kind.ALL_REDUCE, 100_000)
    assert found.in_flight == 5
    assert len(found.chunks) == 100
    assert max(chunk.elements * 4 for chunk in found.chunks) <= 1000
    streamed = plan_for(spec_of(FABRICS[3][0], 16, {"mode": "streaming"}), Kind.ALL_REDUCE, 100_000)
    assert (len(streamed.chunks), streamed.in_flight) == (1, 1)
    assert streamed.chunks[0].program.pieces == 4


def test_small_messages_take_two_ways_through_the_tree() -> None:
    """Up and down, each a hop's delay and a frame's serialisation, a unit at each switch; and one
    hop more in the beginning, by which Gloo's receivers say that they are ready. Frames also wait
    for each other's announcements at their ports, as `packet` knows, and no formula here."""
    delay_ns, latency_ns = 500, 100
    for section, ranks in FABRICS[1:]:
        spec = spec_of(section, ranks, {"latency": f"{latency_ns}ns"}, size=8)
        (planned,) = planned_calls(spec)
        of_run = settings_of(spec).aggregation
        assert of_run is not None and planned.call.schedule is not None
        depth = 3 if section["kind"] == "fat-tree" else 2
        found, followed = (
            load_predictor(name).predict(setting_of_spec(spec), planned.call)
            for name in ("alpha-beta", "packet")
        )
        frame_ns = 12  # 8 bytes, Gloo's 48 and headers, at 100 Gb/s
        expected = (2 * depth + 1) * (delay_ns + frame_ns) + depth * latency_ns
        assert found == pytest.approx(followed, abs=2 * depth * 4)
        assert expected <= followed < 1.02 * expected


# -- refusals --------------------------------------------------------------------------------------


def test_slots_that_are_used_up_are_refused_with_the_switch() -> None:
    plain = spec_of(FABRICS[1][0], 9).to_dict()
    full = {"nodes": {"spine0": {"slots": 3}}}
    plain["workload"]["operations"][0]["program"] = {"algorithm": "aggregation", "slots": 4}
    (said,) = problems(plain, aggregation=full)
    assert "workload.operations[0].program.slots: found 4" in said
    assert "at most 3: all that spine0 has" in said
    plain["workload"]["operations"][0]["program"] = {"algorithm": "aggregation"}
    (said,) = problems(plain, aggregation={"nodes": {"leaf": {"slots": 0}}})
    assert "found a slot" in said and "all that leaf0 has" in said


def test_hosts_do_it_where_the_spec_allows_that() -> None:
    full = {"slots": 0, "when_full": "fall-back", "fall_back": {"algorithm": "tree"}}
    found = plan_for(spec_of(FABRICS[1][0], 9, full), Kind.ALL_REDUCE, 4096)
    assert found.chunks[0].program.algorithm == "tree"
    assert not found.aggregators


def test_groups_of_some_ranks_are_refused() -> None:
    spec = spec_of(FABRICS[1][0], 9)
    with pytest.raises(Refused, match="a group of 3 ranks"):
        schedule_of(
            settings_of(spec), Shape(Kind.ALL_REDUCE, 64, 3, 4), {"algorithm": "aggregation"}
        )


@pytest.mark.parametrize(
    ("aggregation", "said"),
    [
        ({"switches": ["rack"]}, "aggregation.switches[0]: found rack"),
        ({"nodes": {"core": {}}}, "aggregation.nodes.core: found core"),
        ({"root": "h0"}, "aggregation.root: found h0"),
        ({"switches": ["leaf"]}, "no switch that aggregates reaches all hosts"),
        ({"nodes": {"leaf1": {"dtypes": ["float16"]}}}, "leaf1 reduces float16, and not float32"),
        ({"fall_back": {"algorithm": "aggregation"}}, "expected an algorithm of hosts"),
    ],
)
def test_mistakes_are_named(aggregation: dict[str, Any], said: str) -> None:
    plain = spec_of(FABRICS[1][0], 9).to_dict()
    assert any(said in line for line in problems(plain, aggregation=aggregation))


def test_an_algorithm_of_switches_needs_switches_that_reduce() -> None:
    plain = spec_of(FABRICS[1][0], 9).to_dict()
    (said,) = problems(plain, aggregation=None)
    assert "with a section aggregation" in said
    plain["workload"]["operations"][0]["program"]["mode"] = "fast"
    (said,) = problems(plain)
    assert "low-latency, streaming" in said


def test_a_slowed_fabric_has_slowed_nodes() -> None:
    spec = spec_of(FABRICS[1][0], 9, {"rate": "400Gbps", "nodes": {"leaf": {"latency": "50ns"}}})
    slow = scale_spec(spec, 4).aggregation
    assert slow is not None
    assert (slow.rate_bps, slow.latency_ns) == (100_000_000_000, 400)
    assert slow.of("leaf2").latency_ns == 200
