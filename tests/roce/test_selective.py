"""Selective repeat: packets that overtake cost nothing, and what is lost is sent again alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.decode.roce.queue_pair_metrics import queue_pair_metrics
from analysis.decode.run_capture import load_capture
from analysis.runs.run import load_run
from groundwire.pipeline import run
from tests.exec.programs import execute
from topologies.spec.spec import parse_spec

_PAIR = """
name: lossy
fabric: {{kind: flat, hosts: 2, link: {{rate: 100Gbps, delay: 1us, mtu: 4200}},
  queue: {{kind: droptail, buffer: 64MB}}}}
transport: {{kind: roce, path_mtu: 4096, loss_recovery: {recovery}, qp_timeout: 131us}}
capture: {{points: []}}
predict: [packet]
{more}
"""
_LOSS = "faults: [{{kind: loss, link: h0-s0, at: 0ns, value: {}}}]"
_BROADCAST = """
workload: {kind: collectives, ranks: 2, operations: [{kind: broadcast, size: 32MiB}]}
collectives: {backend: programs, broadcast: {algorithm: tree}}
"""
_HEADERS = 82 + 16
"""Headers of a full packet, a RETH with them (analysis/predict/transports/roce/wire.py)."""

_SPRAY = """
name: sprayed
fabric: {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 4,
  link: {{rate: 100Gbps, delay: 500ns, mtu: 4200}}, routing: {{kind: spray, choose: {choose}}}}}
transport: {{kind: roce, path_mtu: 4096, loss_recovery: selective-repeat{more}}}
workload: {{kind: collectives, ranks: 8, operations: [{{kind: all_to_all, size: 2MB}}]}}
collectives: {{backend: programs, all_to_all: {{algorithm: direct}}}}
predict: [packet]
{faults}
"""


def _sprayed(out: Path, choose: str, more: str = "", faults: str = "") -> dict[str, Any]:
    spec = parse_spec(_SPRAY.format(choose=choose, more=more, faults=faults))
    run(spec, kernel="virtual", out=out, pages=False)
    found: dict[str, Any] = json.loads((out / "result.json").read_text())
    assert found["valid"], found["invalid_reasons"]
    return found


@pytest.mark.parametrize("choose", ["round-robin", "random"])
def test_nothing_is_sent_again_where_nothing_is_lost(tmp_path: Path, choose: str) -> None:
    """A rank sends 1.75 MB at 100 Gb/s, 1 MB of it to the other leaf: 4 MB over two uplinks of the
    same rate take 164 us with headers. Go-back-N takes several times as long. The packet engine
    follows round robin, but for ranks' threads."""
    found = _sprayed(tmp_path / "run", choose)
    summary = found["summary"]
    assert summary["early_requests"] > 20
    assert (summary["resent_alone"], summary["retries"], summary["drops"]) == (0, 0, 0)
    (collective,) = found["collectives"]
    sent_ns = 4_000_000 * (4096 + _HEADERS) / 4096 * 8 / 200
    assert sent_ns <= collective["duration_ns"] <= 1.2 * sent_ns
    if choose == "round-robin":
        predicted = collective["predicted"]["packet"]["duration_ns"]
        assert predicted == pytest.approx(collective["duration_ns"], rel=2e-3)


def test_captures_show_what_is_sent_again(tmp_path: Path) -> None:
    """A link that loses 1%, as senders' captures have it: what is there twice was sent again alone,
    also where all came and the last acknowledgement was lost; each byte belongs to the
    collective."""
    faults = "faults: [{kind: loss, link: leaf0-spine0, at: 0ns, value: 1%}]"
    summary = _sprayed(tmp_path / "run", "round-robin", faults=faults)["summary"]
    capture = load_capture(load_run(tmp_path / "run"))
    assert capture is not None
    found = capture.attribution
    assert found.unattributed_bytes == found.unlogged_bytes == found.assumed_bytes == 0
    metrics = queue_pair_metrics(found)
    again = sum(each.retransmitted_packets for each in metrics)
    assert 0 < again == summary["resent_alone"]


def test_a_hundredth_lost_keeps_nine_tenths_of_goodput(tmp_path: Path) -> None:
    """A broadcast of 32 MiB to one rank. With go-back-N each loss costs a round trip of 4 us at
    least. The packet engine loses the same packets, and follows both to the nanosecond but for
    ranks' threads."""
    size = 2**25
    wire_ns = size * (4096 + _HEADERS) / 4096 * 8 / 100
    took = {}
    for recovery in ("selective-repeat", "go-back-n"):
        spec = parse_spec(_PAIR.format(recovery=recovery, more=_LOSS.format("1%") + _BROADCAST))
        run(spec, kernel="virtual", out=tmp_path / recovery, pages=False)
        result = json.loads((tmp_path / recovery / "result.json").read_text())
        assert result["valid"], result["invalid_reasons"]
        took[recovery] = result["collectives"][0]["duration_ns"]
        predicted = result["iterations"][0]["predicted"]["packet"]["duration_ns"]
        assert predicted == pytest.approx(result["iterations"][0]["duration_ns"], rel=1e-3)
        if recovery == "selective-repeat":  # of 8,192 packets 1% and 1% of these, three sigmas
            assert 55 <= result["summary"]["resent_alone"] <= 110
    assert wire_ns <= took["selective-repeat"] <= wire_ns / 0.9
    assert took["go-back-n"] >= wire_ns + 55 * 4_000


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("ib_send_bw", id="send"),
        pytest.param("ib_read_bw", id="read", marks=pytest.mark.long),
        pytest.param("ib_atomic_bw", id="atomic", marks=pytest.mark.long),
        pytest.param("ib_write_bw", id="write", marks=pytest.mark.long),
    ],
)
def test_programs_get_on_with_losses(tmp_path: Path, program: str) -> None:
    """SENDs wait for their turn as they are; READs and atomics go back."""
    more = _LOSS.format("0.1%")
    (tmp_path / "fabric.yaml").write_text(_PAIR.format(recovery="selective-repeat", more=more))
    size = "" if "atomic" in program else "-s 65536"
    script = f"[ $RANK = 0 ] || {{ sleep 0.1; peer=h0; }}; {program} -x 1 {size} -n 500 -F $peer"
    argv = ("sh", "-c", script)
    done = execute(tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--", *argv)
    assert done.returncode == 0, done.stderr
