"""A link that goes down takes packets until routes have left it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groundwire.pipeline import run
from topologies.spec.spec import parse_spec

_SPEC = """
name: reroute
fabric: {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 1,
  link: {{rate: 100Gbps, delay: 500ns, mtu: 4200}},
  routing: {{kind: spray, choose: round-robin}}}}
transport: {{kind: roce, path_mtu: 4096, loss_recovery: selective-repeat}}
workload: {{kind: collectives, ranks: 2, operations: [{{kind: all_gather, size: 8MB}}]}}
collectives: {{backend: programs, all_gather: {{algorithm: ring}}}}
faults: [{{kind: {kind}, link: leaf0-spine0, at: 50us, reroute: {reroute}}}]
predict: []
"""
_ON_THE_WIRE = 4096 + 82 + 16


def _drops(out: Path, kind: str, reroute: str) -> int:
    text = _SPEC.format(kind=kind, reroute=reroute)
    run(parse_spec(text), kernel="virtual", out=out, pages=False)
    found = json.loads((out / "result.json").read_text())
    assert found["valid"], found["invalid_reasons"]
    return int(found["summary"]["drops"])


def test_what_is_lost_is_what_the_link_would_have_carried(tmp_path: Path) -> None:
    """Each host sprays 100 Gb/s over two uplinks, so that the dead one would have carried 50 Gb/s
    each way, and at most an answer for each packet. With routes that follow at once, only what was
    on it is lost; a flap that is over before routes know loses what half the time carries."""
    at_once = _drops(tmp_path / "at-once", "link-down", "0ns")
    late = _drops(tmp_path / "late", "link-down", "100us")
    flap = _drops(tmp_path / "flap", "flap, every: 10ms, down: 50us, duration: 1ms", "200us")
    carried = 2 * 50e9 * 100e-6 / 8 / _ON_THE_WIRE
    assert at_once <= 8
    assert 0.9 * carried <= late <= 2 * carried
    assert flap == pytest.approx(late / 2, rel=0.15)
