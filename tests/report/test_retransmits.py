"""Retransmits are of data: a FIN that is sent again closes a connection that has carried all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from analysis.results.retransmits import fins_sent_again, retransmits_of

from analysis.predict.models.flow import Flow  # isort: skip
from analysis.runs.run import load_run
from tests.decode.synthetic_gloo import ACK, FIN, PSH, Wire
from tests.predict.measured_run import write_run


def _captured(tmp_path: Path, fins: int) -> Path:
    """A run whose first host sent data twice, and a FIN so many times."""
    write_run(tmp_path, "{kind: flat, hosts: 8}", "{kind: all_reduce, size: 1KB}", Flow())
    wire = Wire()
    for _ in range(2):
        wire.packet(0, ACK | PSH, 0, b"data")
    for _ in range(fins):
        wire.packet(0, FIN | ACK, 4)
    wire.packet(1, FIN | ACK, 0)
    run = load_run(tmp_path)
    port = run.fabric.links_of[run.hosts[0]][0].port(run.hosts[0]).interface
    (tmp_path / "capture").mkdir(exist_ok=True)
    wire.write_pcap(tmp_path / "capture" / f"{port}.pcap", 160)
    return tmp_path


def test_a_fin_that_is_sent_again_is_no_retransmit(tmp_path: Path) -> None:
    run = load_run(_captured(tmp_path, fins=3))
    counted = replace(run, environment=run.environment.model_copy(update={"retransmits": 3}))
    assert fins_sent_again(counted) == 2
    assert retransmits_of(counted) == 1


def test_without_retransmits_no_capture_is_read(tmp_path: Path) -> None:
    run = load_run(_captured(tmp_path, fins=2))
    assert run.environment.retransmits == 0
    assert fins_sent_again(run) == retransmits_of(run) == 0
