"""Switches that compute in the virtual kernel, as a user starts them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.decode.phase_bytes import bytes_by_phase
from analysis.decode.run_capture import load_capture
from analysis.report.tables.run_tables import tables
from analysis.runs.run import load_run
from tests.session.command import run_spec, valid_rows

SIZE = 400_000
SPEC = f"""
name: in-network
fabric: {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 2}}
workload:
  kind: collectives
  ranks: 4
  iterations: 2
  operations:
    - {{kind: all_reduce, size: 8}}
    - {{kind: all_reduce, size: 4096}}
    - {{kind: all_reduce, size: {SIZE}, program: {{algorithm: aggregation, mode: streaming}}}}
    - {{kind: broadcast, size: 4096, root: 3}}
    - {{kind: reduce, size: 4096, root: 2}}
    - {{kind: all_reduce, size: 8, program: {{algorithm: halving-doubling}}}}
aggregation: {{slots: 3}}
predict: [alpha-beta, flow]
collectives:
  backend: programs
  all_reduce: {{algorithm: aggregation}}
  broadcast: {{algorithm: aggregation}}
  reduce: {{algorithm: aggregation}}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_spec(tmp_path_factory.mktemp("in-network"), SPEC)


def test_every_rank_checks_its_numbers(run: Path) -> None:
    for log in load_run(run).ranks:
        assert log.checks == 12
    assert [row.get("algorithm") for row in valid_rows(run, 0)] == ["aggregation"] * 5 + [
        "halving-doubling"
    ]
    # A payload of 1 KiB, rounded to whole elements.
    assert [row["chunks"] for row in valid_rows(run, 0)] == [1, 4, 1, 4, 4, 1]


def test_the_tree_is_there_before_the_first_collective(run: Path) -> None:
    """A collective with slots takes the same from the first on; a stream's connections have small
    windows in the beginning."""
    for first, second in zip(valid_rows(run, 0), valid_rows(run, 1), strict=True):
        within = 0.15 if first["size_bytes"] == SIZE else 0.01
        assert first["duration_ns"] == pytest.approx(second["duration_ns"], rel=within)


def test_switches_are_faster_than_hosts(run: Path) -> None:
    """Two links up and down and one for the rendezvous, against two exchanges over up to four."""
    small, *_, by_hosts = valid_rows(run, 1)
    assert small["duration_ns"] < by_hosts["duration_ns"] / 1.5


def test_predictions_follow_the_switches(run: Path) -> None:
    for row in valid_rows(run, 1):
        for predictor in ("alpha-beta", "flow"):
            assert abs(row["predicted"][predictor]["error"]) < 0.03, row


def test_all_captured_bytes_belong_to_a_collective(run: Path) -> None:
    capture = load_capture(load_run(run))
    assert capture is not None
    found = capture.attribution
    assert (found.unattributed_bytes, found.assumed_bytes, found.unlogged_bytes) == (0, 0, 0)
    by_id = {each.collective.id: each for each in found.by_collective() if each.collective}
    # Up and down at each of four hosts.
    assert by_id["i1.all_reduce.2"].data_bytes == 4 * 2 * SIZE
    phases = {
        each.phase.name: each.data_bytes
        for each in bytes_by_phase(found)
        if each.collective.id == "i1.all_reduce.2"
    }
    assert phases == {"reduce": 4 * SIZE, "multicast": 4 * SIZE}


def test_ports_carry_the_size_up_and_down(run: Path) -> None:
    """Twice a stream and four small ones. Beyond that there are headers, at most 3% of a stream,
    and frames of what is small: alignments, rendezvous, set-up."""
    links = [json.loads(line) for line in (run / "links.jsonl").read_text().splitlines()]
    for host in range(4):
        sent = sum(port["bytes"] for port in links if port["node"] == f"h{host}")
        come = sum(port["bytes"] for port in links if port["peer"] == f"h{host}")
        for found in (sent, come):
            assert 2 * SIZE < found < 2 * (1.03 * SIZE + 5 * 4096) + 30_000


def test_the_report_shows_how_slots_were_used(run: Path) -> None:
    """A message of four payloads takes all of three slots. An iteration has three such messages, a
    small one and a stream."""
    rows = tables(load_run(run))["slots"].rows
    assert [row[:4] for row in rows] == [
        (switch, 3, 2 * (3 * 4 + 1 + 1), 3) for switch in ("leaf0", "leaf1", "spine0")
    ]
    assert "Slots of aggregation nodes over time" in (run / "report.html").read_text()


def test_the_report_shows_the_tree_beside_what_hosts_would_send(run: Path) -> None:
    rows = tables(load_run(run))["in_network"].rows
    assert [row[:3] for row in rows] == [
        ("h0", "leaf0", "host"),
        ("h1", "leaf0", "host"),
        ("h2", "leaf1", "host"),
        ("h3", "leaf1", "host"),
        ("leaf0", "spine0", "leaf-spine"),
        ("leaf1", "spine0", "leaf-spine"),
    ]
    # The frames of both iterations: three all-reduces; a reduce to rank 2 and a broadcast from rank
    # 3.
    all_reduces, small = 2 * (8 + 4096 + SIZE), 2 * 4096
    up_and_down = [row[3:5] for row in rows]
    once, not_at_all = all_reduces + small, all_reduces
    assert up_and_down[0] == (once, once)
    assert up_and_down[2] == (once, once + small)
    assert up_and_down[3] == (once + small, not_at_all)
    ring = 2 * (4 - 1) / 4 * all_reduces
    by_hosts = [sent for row in rows[:4] for sent in row[5:] if isinstance(sent, int)]
    assert len(by_hosts) == 8 and min(by_hosts) > 0.99 * ring
    assert "The aggregation tree on the fabric" in (run / "report.html").read_text()
