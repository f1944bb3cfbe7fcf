"""Trees and slots of groups that a program makes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.in_network.on_demand import TreesOnDemand, makes_trees, nodes_on_demand
from topologies.spec.spec import Spec, SpecError, parse_dict


def spec_of(quota: int | None = None, slots: int = 64, **aggregation: object) -> Spec:
    return parse_dict(
        {
            "name": "program",
            "fabric": {"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 4},
            "workload": {"kind": "command", "argv": ["a"], "ranks": 8},
            "aggregation": {"slots": slots, "quota": quota} | aggregation,
            "collectives": {"backend": "programs", "all_reduce": {"algorithm": "aggregation"}},
        },
        "program.yaml",
    )


def test_all_switches_wait_for_groups() -> None:
    nodes = nodes_on_demand(spec_of())
    assert [(node.name, node.number) for node in nodes] == [
        ("leaf0", 8), ("leaf1", 9), ("spine0", 10), ("spine1", 11)
    ]  # fmt: skip
    some = nodes_on_demand(spec_of(switches=["leaf", "spine1"]))
    assert [node.name for node in some] == ["leaf0", "leaf1", "spine1"]
    assert not makes_trees(parse_dict(spec_of().to_dict() | {"collectives": {}}, "gloo.yaml"))


def test_a_script_without_a_tree_of_all_its_ranks_is_refused_before_the_run() -> None:
    with pytest.raises(SpecError, match=r"algorithm: found aggregation.*h0 is cut off"):
        spec_of(switches=["leaf"])
    assert makes_trees(spec_of(switches=["leaf"], when_full="fall-back"))
    with pytest.raises(SpecError, match=r"aggregation\.middles: found 3.*routed before the run"):
        spec_of(middles=3)
    with pytest.raises(SpecError, match=r"aggregation\.when_lost: found fall-back.*expected fail"):
        spec_of(when_lost="fall-back")


def test_a_group_takes_half_of_what_is_left() -> None:
    trees = TreesOnDemand({"": spec_of(slots=8)}, ())
    found = [trees.give("", range(8))[1].trees[0] for _ in range(5)]
    assert [tree.slots for tree in found] == [4, 2, 1, 1, 0]
    # Roots take turns.
    assert [tree.switches[-1] for tree in found[:2]] == ["spine0", "spine1"]
    assert "leaf0 has 0 of its 8 slots left (groups before have 8)" in found[-1].reason


def test_a_quota_is_first_come_first_served_and_given_back() -> None:
    trees = TreesOnDemand({"": spec_of(quota=40)}, ())
    number, first = trees.give("", range(4))
    assert (first.trees[0].switches, first.trees[0].slots) == (("leaf0",), 40)
    assert "and a tree of this group takes 40" in trees.give("", range(8))[1].trees[0].reason
    # The other leaf has its own.
    assert not trees.give("", range(4, 8))[1].trees[0].reason
    trees.take_back("", number)
    assert not trees.give("", range(4))[1].trees[0].reason


def test_a_group_gets_all_of_its_trees_or_none() -> None:
    trees = TreesOnDemand({"": spec_of(quota=24, trees=2)}, ())
    both = trees.give("", range(8))[1]
    assert [(tree.part, tree.parts, tree.slots) for tree in both.trees] == [(0, 2, 24), (1, 2, 24)]
    none = trees.give("", range(8))[1]
    assert all("leaf0 has 16 of its 64 slots left" in tree.reason for tree in none.trees)
    # And those that were refused keep nothing.
    assert not TreesOnDemand({"": spec_of(quota=16)}, ()).give("", range(8))[1].trees[0].reason


def test_trees_of_other_jobs_have_their_slots_already() -> None:
    spec = spec_of(quota=40)
    theirs = TreesOnDemand({"": spec}, ()).give("", range(8))[1].trees
    trees = TreesOnDemand({"program": spec}, [("ranks", theirs[0])])
    assert "(job ranks has 40)" in trees.give("program", range(8))[1].trees[0].reason


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(2, 8), st.booleans()), max_size=20))
def test_no_node_ever_gives_more_slots_than_it_has(asked: list[tuple[int, int, bool]]) -> None:
    trees = TreesOnDemand({"": spec_of(slots=16)}, ())
    held: dict[int, list[tuple[str, int]]] = {}
    for first, length, give_back in asked:
        members = range(first, min(8, first + length))
        if len(members) < 2:
            continue
        number, found = trees.give("", members)
        held[number] = [(s, t.slots) for t in found.trees if not t.reason for s in t.switches]
        if give_back:
            trees.take_back("", number)
            del held[number]
        for switch in ("leaf0", "leaf1", "spine0", "spine1"):
            used = sum(slots for each in held.values() for name, slots in each if name == switch)
            assert used <= 16
