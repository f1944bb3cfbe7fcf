"""Several trees with different roots for the chunks of one collective."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.decode.run_capture import load_capture
from analysis.runs.run import load_run
from collectives.kinds import Kind, Shape
from collectives.settings import schedule_of, settings_of
from tests.collectives.test_aggregation import spec_of
from tests.session.command import run_spec, valid_rows
from topologies.aggregation_tree import OUTSIDE, ROOT
from topologies.spec.spec import SpecError

LEAF_SPINE: dict[str, Any] = {"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 2}
STREAM = 1_000_000


def test_trees_of_a_group_have_different_roots_and_know_all_its_switches() -> None:
    spec = spec_of(LEAF_SPINE, 4, {"trees": 2})
    found = settings_of(spec).aggregation
    assert found is not None
    first, second = found.of(range(4))
    assert first.switches == second.switches == ("leaf0", "leaf1", "spine0", "spine1")
    assert first.parents == (4, 4, 5, 5, 6, 6, ROOT, OUTSIDE)
    assert second.parents == (4, 4, 5, 5, 7, 7, OUTSIDE, ROOT)
    # A leaf is in both, a spine in one; a tree has as much as where it has least.
    assert (first.slots, second.slots) == (32, 32)


@pytest.mark.parametrize("mode", ["low-latency", "streaming"])
@pytest.mark.parametrize("kind", [Kind.ALL_REDUCE, Kind.REDUCE, Kind.BROADCAST])
def test_chunks_take_the_trees_in_turn(mode: str, kind: Kind) -> None:
    """`schedule_of` has proved the programs right."""
    spec = spec_of(LEAF_SPINE, 4, {"trees": 2, "mode": mode})
    plan = schedule_of(settings_of(spec), Shape(kind, 8192, 4, 4, 3), {"algorithm": "aggregation"})
    assert plan is not None
    assert len(plan.chunks) == {"low-latency": 8, "streaming": 2}[mode]
    used = {
        chunk: {m.destination for m in plan.numbered_messages() if m.chunk == chunk} & {6, 7}
        for chunk in range(len(plan.chunks))
    }
    assert used == {chunk: {6 + chunk % 2} for chunk in used}
    # A tree's participants run its own chunks, by the slots of the whole plan.
    second = plan.part(1, 2)
    assert [chunk.index for chunk in second.chunks] == [*used][1::2]
    assert second.in_flight == plan.in_flight // 2
    assert {m.slot for m in second.numbered_messages()} < {m.slot for m in plan.numbered_messages()}


def test_a_root_that_is_given_is_that_of_one_tree() -> None:
    with pytest.raises(SpecError, match="expected 1 with root: several trees have different roots"):
        spec_of(LEAF_SPINE, 4, {"trees": 2, "root": "spine0"})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = f"""
name: two-trees
fabric:
  kind: leaf-spine
  leaves: 2
  spines: 2
  hosts_per_leaf: 2
  links: {{leaf-spine: {{rate: 50Gbps}}}}
workload:
  kind: collectives
  ranks: 4
  iterations: 2
  operations:
    - {{kind: all_reduce, size: 16384, program: {{algorithm: aggregation}}}}
    - {{kind: all_reduce, size: {STREAM}, program: {{algorithm: aggregation, mode: streaming}}}}
aggregation: {{trees: 2, streams: any}}
predict: [flow]
"""
    return run_spec(tmp_path_factory.mktemp("two-trees"), text)


@pytest.mark.long
def test_both_roots_carry_half(run: Path) -> None:
    """Links between leaves and spines have half of the hosts' rate: with one tree they would
    decide."""
    small, stream = valid_rows(run, 1)
    assert (small["chunks"], stream["chunks"]) == (16, 2)
    assert stream["duration_ns"] < 8 * STREAM / 50
    assert abs(small["predicted"]["flow"]["error"]) < 0.06
    # `flow` has each of two streams on a host's link wait longer for the other.
    assert abs(stream["predicted"]["flow"]["error"]) < 0.2
    assert [log.checks for log in load_run(run).ranks] == [4] * 4


@pytest.mark.long
def test_bytes_of_both_trees_belong_to_their_collective(run: Path) -> None:
    capture = load_capture(load_run(run))
    assert capture is not None
    found = capture.attribution
    assert (found.unattributed_bytes, found.assumed_bytes, found.unlogged_bytes) == (0, 0, 0)
    by_id = {each.collective.id: each for each in found.by_collective() if each.collective}
    assert by_id["i1.all_reduce.1"].data_bytes == 4 * 2 * STREAM
    assert by_id["i1.all_reduce.0"].data_bytes == 4 * 2 * 16384
