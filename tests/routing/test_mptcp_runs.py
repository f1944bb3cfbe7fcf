"""MPTCP in the virtual kernel: subflows by several paths, and every byte of them attributed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.decode.run_capture import load_capture
from analysis.metrics.flow import flows_of
from analysis.runs.run import load_run
from groundwire.pipeline import run
from topologies.spec.spec import parse_spec

# A host sends 100 Gb/s, and each of two uplinks half of that.
_SPEC = """
name: mptcp
fabric: {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 1,
  link: {{rate: 100Gbps, delay: 500ns, mtu: 9000}}, links: {{leaf-spine: {{rate: 50Gbps}}}},
  queue: {{kind: droptail, buffer: 4MB}}}}
transport: {{kind: {transport}}}
workload: {{kind: collectives, ranks: 2, iterations: 2,
  operations: [{{kind: send_recv, size: 20MB}}]}}
predict: [alpha-beta, flow-ideal-ecmp, packet]
capture: {{points: [hosts]}}
"""
_BYTES = 20_000_000


def _measured(out: Path, transport: str) -> dict[str, Any]:
    run(parse_spec(_SPEC.format(transport=transport)), kernel="virtual", out=out, pages=False)
    found: dict[str, Any] = json.loads((out / "result.json").read_text())
    assert found["valid"], found["invalid_reasons"]
    return found


def _uplinks(directory: Path) -> list[int]:
    """The bytes that leaf0 has sent to each spine."""
    ports = load_run(directory).port_counters
    return [each.bytes for each in ports if each.node == "leaf0" and "spine" in each.peer]


def test_subflows_take_both_of_two_paths(tmp_path: Path) -> None:
    """A connection of TCP has one of two uplinks of 50 Gb/s. Both have some of 8 subflows
    (all by one: 2 in 2^8), so that both carry a part, and a message takes less time than one
    uplink needs for its payload, though more than both need."""
    over_one_ns = _BYTES * 8 / 50
    found = _measured(tmp_path / "tcp", "tcp")
    assert all(row["duration_ns"] > over_one_ns for row in found["collectives"])
    assert min(_uplinks(tmp_path / "tcp")) < _BYTES / 100

    found = _measured(tmp_path / "mptcp", "mptcp, subflows: 8")
    last = found["collectives"][-1]
    assert over_one_ns / 2 < last["duration_ns"] < 0.8 * over_one_ns
    assert min(_uplinks(tmp_path / "mptcp")) > 2 * _BYTES / 10
    environment = json.loads((tmp_path / "mptcp" / "environment.json").read_text())
    counts = environment["mptcp"]
    assert counts["connections"] > 0 and counts["refused"] == counts["closed"] == 0
    assert counts["subflows"] == 7 * counts["connections"]
    told = (tmp_path / "mptcp" / "subflows.jsonl").read_text().splitlines()
    assert len({json.loads(line)["port"] for line in told}) == len(told) == counts["subflows"]


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with four subflows."""
    directory = tmp_path_factory.mktemp("four") / "run"
    _measured(directory, "mptcp, subflows: 4")
    return directory


def test_every_byte_of_a_connection_is_attributed(four: Path) -> None:
    """Messages lie in pieces on four subflows: what captures say of them is what ranks sent."""
    capture = load_capture(load_run(four))
    assert capture is not None
    attribution = capture.attribution
    assert attribution.unattributed_bytes == attribution.unlogged_bytes == 0
    assert len(attribution.connections) == 1
    sent = [each for each in attribution.by_collective() if each.kind == "send_recv"]
    assert [each.data_bytes for each in sent] == [_BYTES, _BYTES]
    (long,) = (each for each in flows_of(capture).flows if each.payload_bytes > _BYTES)
    assert (long.source, long.destination) == (0, 1)
    assert long.reordered > 0  # what goes by the shorter queue comes early
    for number, file in enumerate(attribution.files):
        wire = sum(each.wire_bytes for each in attribution.by_collective(number))
        assert wire == file.data_connection_bytes


def test_a_second_run_is_the_same(four: Path, tmp_path: Path) -> None:
    _measured(tmp_path / "run", "mptcp, subflows: 4")
    for file in ("links.jsonl", "subflows.jsonl", "ranks/000.jsonl", "ranks/001.jsonl"):
        assert (tmp_path / "run" / file).read_bytes() == (four / file).read_bytes(), file


def test_predictors_of_one_path_refuse_by_name(four: Path) -> None:
    found = json.loads((four / "result.json").read_text())
    told = found["collectives"][0]["predicted"]
    assert told["alpha-beta"]["duration_ns"] > 0
    assert told["flow-ideal-ecmp"]["duration_ns"] > 0
    assert "packet does not follow MPTCP" in json.dumps(found)


def test_subflows_are_of_their_jobs_class(tmp_path: Path) -> None:
    """All that a job's sockets send is of its class, from the first packet on: the port of a host
    has nothing in the other one."""
    text = """
name: classes
fabric: {kind: flat, hosts: 2, link: {rate: 10Gbps}, queue: {kind: classes, classes: {
  bulk: {priority: 0, queue: {kind: droptail}}, train: {priority: 3, queue: {kind: droptail}}}}}
transport: {kind: mptcp, subflows: 3}
class: train
workload: {kind: collectives, ranks: 2, operations: [{kind: all_reduce, size: 1MB}]}
predict: []
capture: {points: []}
"""
    run(parse_spec(text), kernel="virtual", out=tmp_path / "run", pages=False)
    lines = map(json.loads, (tmp_path / "run" / "links.jsonl").read_text().splitlines())
    sent = [(one["class"], one["bytes"]) for line in lines for one in line["classes"]]
    assert sum(many for name, many in sent if name == "train") > 1_000_000
    assert sum(many for name, many in sent if name == "bulk") == 0
