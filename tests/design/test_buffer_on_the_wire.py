"""The model of a buffer against a flow of Reno that crosses one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.design.network import buffer_utilisation
from tests.session.command import groundwire as command

_RATE_BPS = 10**9
_ROUND_TRIP_NS = 2 * 10**6
_PRODUCT_BYTES = _RATE_BPS * _ROUND_TRIP_NS // 8 // 10**9
_SIZE_BYTES = 100 * 10**6
_SEGMENT, _FRAME = 1448, 1538
"""Bytes at an MTU of 1500: payload beside headers with time stamps; the frame with Ethernet's
part."""

SPEC = f"""
name: buffer
fabric:
  kind: graph
  link: {{rate: {_RATE_BPS}bps, delay: {_ROUND_TRIP_NS // 4}ns, mtu: 1500}}
  nodes: [{{name: a, kind: host}}, {{name: r, kind: switch}}, {{name: b, kind: host}}]
  links: [{{ends: [a, r], rate: 4Gbps}}, {{ends: [r, b], class: slow}}]
transport: {{congestion_control: reno}}
workload:
  kind: collectives
  ranks: 2
  iterations: 2
  operations: [{{kind: send_recv, size: {_SIZE_BYTES}}}]
capture: {{points: []}}
predict: []
"""


@pytest.mark.long
@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_reno_uses_as_much_of_a_link_as_the_model_says(share: float, tmp_path: Path) -> None:
    """Within 6%: fast recovery and a window of whole segments take a few percent more, the more the
    smaller the buffer; a transfer ends a round trip after its last byte is sent."""
    (tmp_path / "spec.yaml").write_text(SPEC)
    buffer = f"{{kind: droptail, buffer: {round(share * _PRODUCT_BYTES)}}}"
    out = tmp_path / "out"
    key = f"fabric.queues.slow={buffer}"
    done = command("run", tmp_path / "spec.yaml", "--set", key, "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((out / "result.json").read_text())["collectives"]
    (last,) = [r for r in rows if r["kind"] == "send_recv" and r["iteration"] == 1]
    line_ns = _SIZE_BYTES / _SEGMENT * _FRAME * 8e9 / _RATE_BPS
    used = line_ns / last["duration_ns"]
    assert used < 1
    assert used == pytest.approx(buffer_utilisation(share), rel=0.06)
