"""What the kernels of a run measured, put together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from emulator.kernel_parts import merge_parts, part_directory
from topologies.build import build_fabric
from topologies.division import Division, divide
from topologies.fabric import Fabric
from topologies.spec import parse_spec

_SPEC = """
name: parts
fabric: {kind: leaf-spine, leaves: 2, spines: 1, hosts_per_leaf: 2}
workload: {kind: collectives, ranks: 4, operations: [{kind: barrier}]}
"""
_POINTS = ("h3", "hosts")


@pytest.fixture
def fabric() -> Fabric:
    return build_fabric(parse_spec(_SPEC).fabric)


@pytest.fixture
def division(fabric: Fabric) -> Division:
    found = divide(fabric, 2)
    assert any(found.is_cut(link) for link in fabric.links)
    return found


def _links(fabric: Fabric, division: Division, kernel: int) -> list[dict[str, Any]]:
    """Lines as that kernel counts them: 10 packets at its own ports, and at those that others have
    towards it 7, of which devices lost some. Not in order, as merging sees to it."""
    lines = []
    for link in fabric.links:
        for port in (link.b, link.a):
            at = {division.kernel_of[link.a.node], division.kernel_of[link.b.node]}
            own = division.kernel_of[port.node] == kernel
            if kernel in at:
                line = {"link": link.index, "port": port.interface, "node": port.node}
                line |= {"packets": 10 if own else 7, "lost_outside_queue": 1 if own else 2}
                lines.append(line)
    return lines


def _measured(fabric: Fabric, division: Division, kernel: int) -> dict[str, Any]:
    hosts = [h.name for h in fabric.hosts if division.kernel_of[h.name] == kernel]
    return {
        "kernel_release": "6.12",
        "versions": {"python": "3"},
        "seed": 1,
        "hosts": ["h0", "h1", "h2", "h3"],
        "retransmits": 3 + kernel,
        "captures": [{"interface": f"{host}-eth0", "seen": 5} for host in hosts],
        "details": {"arrangement": "gwport"},
        "verdict": {
            "valid": True,
            "reasons": [],
            "samples": {"softnet_drops": kernel, "queue_lateness": None},
        },
        "faults": [],
    }


def _write(
    directory: Path,
    fabric: Fabric,
    division: Division,
    more: Mapping[int, Mapping[str, Any]] | None = None,
) -> None:
    (directory / "ranks").mkdir()
    for kernel in range(division.kernels):
        part = part_directory(directory, kernel)
        part.mkdir()
        (part / "hosts").write_text("127.0.0.1 localhost\n")
        lines = _links(fabric, division, kernel)
        (part / "links.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        measured = _measured(fabric, division, kernel) | dict((more or {}).get(kernel, {}))
        (part / "measured.json").write_text(json.dumps(measured))


def _merged(directory: Path, fabric: Fabric, division: Division) -> dict[str, Any]:
    merge_parts(directory, fabric, division, _POINTS)
    found: dict[str, Any] = json.loads((directory / "measured.json").read_text())
    return found


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_port_once_as_its_own_kernel_counted_it(
    tmp_path: Path, fabric: Fabric, division: Division
) -> None:
    _write(tmp_path, fabric, division)
    _merged(tmp_path, fabric, division)
    lines = _lines(tmp_path / "links.jsonl")
    ports = [p.interface for link in fabric.links for p in (link.a, link.b)]
    assert [line["port"] for line in lines] == ports
    assert {line["packets"] for line in lines} == {10}
    cut = {link.index for link in fabric.links if division.is_cut(link)}
    assert [line["lost_outside_queue"] for line in lines] == [
        3 if line["link"] in cut else 1 for line in lines
    ]
    assert (tmp_path / "ranks" / "hosts").read_text() == "127.0.0.1 localhost\n"
    assert list(tmp_path.glob("kernel-*")) == []


def test_measurements_add_up(tmp_path: Path, fabric: Fabric, division: Division) -> None:
    _write(tmp_path, fabric, division)
    (tmp_path / "capture").mkdir()
    index = {"clock_offset_ns": 17, "captures": []}
    (tmp_path / "capture" / "index.json").write_text(json.dumps(index))
    whole = _merged(tmp_path, fabric, division)
    assert whole["retransmits"] == 3 + 4
    assert whole["verdict"] == {
        "valid": True,
        "reasons": [],
        "samples": {"softnet_drops": 1, "queue_lateness": None},
    }
    assert whole["hosts"] == ["h0", "h1", "h2", "h3"]
    order = ["h3-eth0", "h0-eth0", "h1-eth0", "h2-eth0"]  # as the points name them
    assert [capture["interface"] for capture in whole["captures"]] == order
    told = json.loads((tmp_path / "capture" / "index.json").read_text())
    assert told == {"clock_offset_ns": 17, "captures": whole["captures"]}


def test_not_valid_if_one_is_not(tmp_path: Path, fabric: Fabric, division: Division) -> None:
    samples = {"softnet_drops": 0, "queue_lateness": None}
    late = {"valid": False, "reasons": ["late", "lost"], "samples": samples}
    lost = {"valid": False, "reasons": ["lost"], "samples": samples}
    _write(tmp_path, fabric, division, {0: {"verdict": lost}, 1: {"verdict": late}})
    whole = _merged(tmp_path, fabric, division)
    assert whole["verdict"]["valid"] is False
    assert whole["verdict"]["reasons"] == ["lost", "late"]


def test_samples_stand_by_node(tmp_path: Path, fabric: Fabric, division: Division) -> None:
    _write(tmp_path, fabric, division)
    times = {node.name: 0 for node in fabric.nodes}
    for kernel in range(division.kernels):
        lines = []
        for node in fabric.nodes:
            port = fabric.links_of[node.name][0].port(node.name).interface
            for _ in range(2):
                if division.kernel_of[node.name] == kernel:
                    times[node.name] += 1
                    lines.append({"port": port, "time_ns": times[node.name]})
        path = part_directory(tmp_path, kernel) / "queues.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    _merged(tmp_path, fabric, division)
    assert _lines(tmp_path / "queues.jsonl") == [
        {"port": fabric.links_of[node.name][0].port(node.name).interface, "time_ns": time_ns}
        for node in fabric.nodes
        for time_ns in (1, 2)
    ]


def test_kernels_that_ran_different_things_do_not_fit(
    tmp_path: Path, fabric: Fabric, division: Division
) -> None:
    _write(tmp_path, fabric, division, {1: {"seed": 2}})
    with pytest.raises(ValueError, match="do not agree on seed"):
        _merged(tmp_path, fabric, division)


def test_a_port_that_nobody_counted_is_missed(
    tmp_path: Path, fabric: Fabric, division: Division
) -> None:
    _write(tmp_path, fabric, division)
    path = part_directory(tmp_path, 1) / "links.jsonl"
    path.write_text("")
    with pytest.raises(ValueError, match="no kernel has counted what port"):
        _merged(tmp_path, fabric, division)
