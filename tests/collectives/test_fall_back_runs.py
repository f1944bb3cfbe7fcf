"""A node dies in the middle of a stream, and ranks go on by hosts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.decode.run_capture import load_capture
from analysis.runs.run import load_run
from tests.collectives.test_aggregation import spec_of
from tests.session.command import run_spec, valid_rows
from topologies.spec.spec import SpecError, parse_dict

STREAM = 1_000_000
SPEC = f"""
name: falls-back
fabric: {{kind: flat, hosts: 3}}
workload:
  kind: collectives
  ranks: 3
  iterations: 2
  operations:
    - {{kind: all_reduce, size: {STREAM}, program: {{algorithm: aggregation, mode: streaming}}}}
    - {{kind: broadcast, size: 4096, root: 2, program: {{algorithm: aggregation}}}}
aggregation: {{when_lost: fall-back, fall_back: {{algorithm: gloo-ring}}}}
faults: [{{kind: node-dies, switch: s0, at: 50us}}]
predict: [alpha-beta]
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_spec(tmp_path_factory.mktemp("falls-back"), SPEC)


@pytest.mark.long
def test_what_was_under_way_is_done_again_by_hosts(run: Path) -> None:
    stream, again, small = valid_rows(run, 0)
    assert (stream["id"], again["id"]) == ("i0.all_reduce.0", "i0.all_reduce.0.by-hosts")
    assert (stream["algorithm"], stream["fell_back"]) == ("aggregation", True)
    assert (again["algorithm"], again["phase"]) == ("gloo-ring", "fall-back")
    # The node's death is told at once: the stream takes what hosts take from then on.
    assert stream["end_ns"] == again["end_ns"]
    assert stream["duration_ns"] == pytest.approx(50_000 + again["duration_ns"], abs=1000)
    # Gloo's ring has no broadcast.
    assert (small["algorithm"], small["fell_back"]) == ("tree", True)
    assert [log.checks for log in load_run(run).ranks] == [4] * 3


@pytest.mark.long
def test_what_comes_later_runs_by_hosts(run: Path) -> None:
    rows = valid_rows(run, 1)
    assert [row["algorithm"] for row in rows] == ["gloo-ring", "tree"]
    assert all(row["fell_back"] for row in rows)


@pytest.mark.long
def test_the_result_names_the_node(run: Path) -> None:
    (note,) = json.loads((run / "result.json").read_text())["notes"]
    assert "switch s0 died: 4 collectives, from i0.all_reduce.0 on, fell back to hosts" in note
    assert [node.switch for node in load_run(run).environment.lost_nodes] == ["s0"]
    assert "the aggregation node of s0 dies" in (run / "report.html").read_text()


@pytest.mark.long
def test_bytes_of_the_hosts_belong_to_their_row(run: Path) -> None:
    capture = load_capture(load_run(run))
    assert capture is not None
    found = capture.attribution
    assert (found.unattributed_bytes, found.unlogged_bytes) == (0, 0)
    by_id = {each.collective.id: each for each in found.by_collective() if each.collective}
    # Each sends 2/3 of the data twice.
    sent = by_id["i0.all_reduce.0.by-hosts"].data_bytes
    assert sent == pytest.approx(3 * 4 / 3 * STREAM, abs=100)


def test_mistakes_are_named() -> None:
    with pytest.raises(SpecError, match=r"fall_back\.algorithm: found rings"):
        spec_of(
            {"kind": "flat", "hosts": 3},
            3,
            {"when_lost": "fall-back", "fall_back": {"algorithm": "rings"}},
        )
    raw = spec_of({"kind": "flat", "hosts": 3}, 3).to_dict()
    raw["faults"] = [{"kind": "node-dies", "switch": "s1", "at": "1ms"}]
    with pytest.raises(SpecError, match=r"faults\[0\]\.switch: found s1"):
        parse_dict(raw, "dies.yaml")
