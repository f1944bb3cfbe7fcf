"""Planes: a queue pair's packets go by all ports of its NIC, and where packets say their path they
do so by turns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.runs.run import load_run
from groundwire.pipeline import run
from topologies.spec.spec import parse_spec

_PLANES = 4
_SPEC = """
name: planes
fabric: {{kind: rails, servers: 2, hosts_per_server: 1, servers_per_leaf: 1, spines: 2,
  planes: 4, link: {{rate: 25Gbps, delay: 500ns, mtu: 4200}},
  links: {{scale-up: {{rate: 400Gbps}}}}, queue: {{kind: dctcp, k: 200KB}}, routing: {routing}}}
transport: {{kind: mrc{more}}}
workload: {{kind: collectives, ranks: 2, operations: [{{kind: all_gather, size: 8MB}}]}}
collectives: {{backend: programs, all_gather: {{algorithm: ring}}}}
predict: [packet]
{faults}
"""
_PACKETS = -(-4_000_000 // 4096)
_MEETING = 16
"""Packets by which ranks meet over TCP, each connection by the path of its ports."""
_WIRE_SHARE = 4096 / (4096 + 82 + 16)
"""The payload's share of a full packet (analysis/predict/transports/roce/wire.py)."""


def _measured(out: Path, routing: str, more: str = "", faults: str = "") -> dict[str, Any]:
    text = _SPEC.format(routing=routing, more=more, faults=faults)
    run(parse_spec(text), kernel="virtual", out=out, pages=False)
    found: dict[str, Any] = json.loads((out / "result.json").read_text())
    assert found["valid"], found["invalid_reasons"]
    return found


def _by_port(run_directory: Path, node: str, above: str) -> dict[str, int]:
    """The packets that leave a node by each of its ports to nodes that are called so."""
    counters = load_run(run_directory).port_counters
    return {one.peer: one.packets for one in counters if one.node == node and above in one.peer}


def test_a_path_that_packets_say_is_taken_by_turns(tmp_path: Path) -> None:
    """All ways of all planes carry as many packets of a queue pair: the ports of a NIC, and in each
    plane both uplinks. So it has the rate of four ports, but for answers, which take turns as
    requests do: a plane may have more of the one and less of the other."""
    found = _measured(tmp_path / "run", "source")
    by_plane = _by_port(tmp_path / "run", "nic0-0", "leaf")
    assert len(by_plane) == _PLANES
    assert sum(by_plane.values()) > _PACKETS
    assert max(by_plane.values()) - min(by_plane.values()) <= _MEETING
    for plane in range(_PLANES):
        uplinks = _by_port(tmp_path / "run", f"leaf0p{plane}", "spine").values()
        assert len(uplinks) == 2
        assert max(uplinks) - min(uplinks) <= _MEETING
    (iteration,) = found["iterations"]
    at_line_rate_ns = 8 * 4_000_000 / _WIRE_SHARE / (_PLANES * 25)
    assert at_line_rate_ns < iteration["duration_ns"] < 1.15 * at_line_rate_ns
    predicted = iteration["predicted"]["packet"]["duration_ns"]
    assert predicted == pytest.approx(iteration["duration_ns"], rel=1e-3)


def test_a_plane_that_dies_is_left(tmp_path: Path) -> None:
    """One of four ports of a NIC loses all. Its values are left, so that three planes carry the
    message: 4/3 of the time, and what was lost first waits for `reordering`."""
    faults = "faults: [{kind: loss, link: nic0-0-leaf0p2, at: 0ns, value: 100%}]"
    more = ", entropy: {values: 64}, qp_timeout: 1ms"
    found = _measured(tmp_path / "run", "source", more, faults)
    by_plane = _by_port(tmp_path / "run", "nic0-0", "leaf")
    dead = by_plane.pop("leaf0p2")
    assert dead < min(by_plane.values()) / 3
    assert found["summary"]["paths_bad"] >= 64 / _PLANES
    (iteration,) = found["iterations"]
    at_line_rate_ns = 8 * 4_000_000 / _WIRE_SHARE / (_PLANES * 25)
    assert iteration["duration_ns"] < 4 / 3 * at_line_rate_ns + 300_000
