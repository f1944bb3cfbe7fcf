"""Flow completion times of `packet`, how far it is meanwhile, and that Ctrl-C ends it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

import groundwire
from analysis.predict.models.external_formats import read_flow_completions
from analysis.predict.models.packet import Packet
from analysis.predict.planned_run import predict_workload
from analysis.predict.setting import setting_of_spec
from groundwire.commands.app import app
from topologies.spec.spec import Spec, parse_spec

_FRAME_NS = (8948 + 66 + 24) * 8 / 100
"""A full segment at 100 Gb/s with an MTU of 9000."""


def _text(operation: str, ranks: int = 4, mtu: int = 9000) -> str:
    return f"""
name: flows
fabric: {{kind: flat, hosts: 4, link: {{rate: 100Gbps, delay: 1us, mtu: {mtu}}}}}
workload: {{kind: collectives, ranks: {ranks}, operations: [{operation}]}}
collectives: {{backend: programs, all_reduce: {{algorithm: ring}}}}
"""


def _spec(operation: str, ranks: int = 4, mtu: int = 9000) -> Spec:
    return parse_spec(_text(operation, ranks, mtu))


def test_a_flow_takes_its_path_and_its_bytes() -> None:
    """A ring all-reduce of 4 ranks has 6 messages a rank, each a quarter of the data."""
    flows = groundwire.flow_times(_spec(f"{{kind: all_reduce, size: {4 * 8 * 8948 - 4 * 48}B}}"))
    assert len(flows) == 4 * 6
    assert {flow.size_bytes for flow in flows} == {8 * 8948 - 48}
    assert {(flow.destination - flow.source) % 4 for flow in flows} == {1}
    assert all(a.end_ns <= b.end_ns for a, b in pairwise(flows))
    for flow in flows:
        assert flow.alone_ns == pytest.approx(8 * _FRAME_NS + 4 * 1000, abs=200)
        assert flow.duration_ns > 8 * _FRAME_NS + 2 * 1000


def test_ns3_s_lines_are_read_as_its_own(tmp_path: Path) -> None:
    spec = _spec("{kind: all_to_all, size: 1MB}")
    flows = groundwire.flow_times(spec)
    path = tmp_path / "fct.txt"
    path.write_text("".join(f"{flow.as_ns3()}\n" for flow in flows))
    (burst,) = read_flow_completions(path)
    assert burst.moved_bytes == 12 * 250_000
    found = predict_workload(spec, setting_of_spec(spec), Packet())
    (collective,) = found.collectives.values()
    assert burst.duration_ns == pytest.approx(collective.duration_ns, rel=0.01)


def test_the_command_prints_a_line_for_each_flow(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(_text("{kind: all_reduce, size: 1MB}"))
    lines = {
        name: CliRunner().invoke(app, ["predict", str(path), "--fct-format", name]).stdout
        for name in ("ns3", "htsim")
    }
    ns3 = r"(?:[0-9a-f]{8} ){2}0 0 250000 \d+ \d+ \d+\n"
    assert re.fullmatch(f"(?:{ns3}){{24}}", lines["ns3"])
    htsim = r"Flow Tcp_[0-3]_[0-3] finished at \d+\.\d{3} total bytes 250000\n"
    assert re.fullmatch(f"(?:{htsim}){{24}}", lines["htsim"])
    for more in (["--fct-format", "ns2"], ["--fct-format", "ns3", "--json"]):
        assert CliRunner().invoke(app, ["predict", str(path), *more]).exit_code != 0


def test_a_long_prediction_says_how_far_it_is() -> None:
    told: list[tuple[int, float]] = []
    groundwire.predict(
        _spec("{kind: all_to_all, size: 400MB}", mtu=1500),
        predictors=["packet"],
        progress=lambda now_ns, share: told.append((now_ns, share)),
    )
    assert told
    assert all(a < b for (a, _), (b, _) in pairwise(told))
    assert all(0 <= share <= 1 for _, share in told)


def test_ctrl_c_ends_a_long_prediction_and_its_engine(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(_text("{kind: all_to_all, size: 40GB}", mtu=1500))
    command = [
        sys.executable,
        "-m",
        "groundwire.cli",
        "predict",
        str(path),
        "--predictor",
        "packet",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while not (children := _children(process.pid)):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in said
    # One that was just being started ends by the end of its input, and is reaped by who adopts it.
    until_s = time.monotonic() + 60
    while any(_runs_engine(child) for child in children):
        assert time.monotonic() < until_s
        time.sleep(0.05)


def _children(pid: int) -> list[int]:
    """Those that run the engine."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found if _runs_engine(int(child))]


def _runs_engine(pid: int) -> bool:
    """Whether a process has that program; one that has ended has none."""
    try:
        return "packet-engine" in Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
