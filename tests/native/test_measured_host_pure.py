"""The costs of a host: what tries come to, and what the command prints of them; needs no root."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from emulator.host_time.measuring import STREAM_BYTES, HostMeasurement, Measured, costs
from groundwire.commands import doctor as command
from tests.session.command import groundwire
from topologies.spec.host_section import HostSpec
from topologies.spec.spec import parse_dict

_PACKETS = (23_000.0, 11_000.0, 3_700.0)


@given(
    copy_rate=st.integers(10**8, 10**11),
    syscall_ns=st.integers(100, 10_000),
    wakeup_ns=st.integers(0, 50_000),
    per_packet_ns=st.integers(0, 50_000),
    waits=st.integers(0, 5_000),
)
def test_tries_of_known_costs_come_to_these(
    copy_rate: int, syscall_ns: int, wakeup_ns: int, per_packet_ns: int, waits: int
) -> None:
    calls = 300
    stream_ns = 2 * STREAM_BYTES * 1e9 / copy_rate + calls * syscall_ns + waits * wakeup_ns
    alone_ns = 2.0 * syscall_ns
    one = {
        "empty": 90.0,
        "alone": alone_ns,
        "ping": alone_ns + wakeup_ns,
        "ping_wall": 1e5,
        "ns": stream_ns,
        "calls": calls,
        "waits": waits,
    }
    streams = [
        {"packets": n, "calls": calls, "waits": waits, "ns": stream_ns + n * per_packet_ns}
        for n in _PACKETS
    ]
    found = {each.name: each for each in costs([one] * 3, [streams] * 3)}
    assert found["copy_rate"].value == pytest.approx(copy_rate, rel=1e-6)
    assert found["syscall"].value == syscall_ns
    assert found["wakeup"].value == wakeup_ns
    assert found["per_packet"].value == pytest.approx(per_packet_ns, rel=1e-6, abs=1e-3)
    assert "per_packet" not in {each.name for each in costs([one], [])}


def _measurement() -> HostMeasurement:
    figures = (
        Measured("copy_rate", 3_796_543_210.0, 3e9, 4e9, "B/s", "a stream"),
        Measured("wakeup", 2_278.4, 2e3, 3e3, "ns", "a byte"),
    )
    return HostMeasurement("a machine", figures, {"per_packet": "users have no namespaces"})


def test_the_section_is_one_that_a_spec_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "measure_host", lambda report: _measurement())
    written = tmp_path / "host.yaml"
    assert command.doctor(host=True, out=written) == 0
    told = capsys.readouterr().out
    assert "not measured: per_packet: users have no namespaces" in " ".join(told.split())
    section = yaml.safe_load(written.read_text())["host"]
    assert told.endswith(written.read_text())
    assert section["copy_rate"] == "3.79GB/s" and section["wakeup"] == "2.278us"
    fabric = {"kind": "flat", "hosts": 2, "link": {"rate": "1Gbps"}}
    work = {"kind": "collectives", "ranks": 2, "operations": [{"kind": "barrier"}]}
    raw = {"name": "measured", "fabric": fabric, "workload": work, "host": section}
    spec = parse_dict(raw, str(written))
    assert spec.host == HostSpec.model_validate(section)


def test_json_has_the_figures_and_the_section(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "measure_host", lambda report: _measurement())
    assert command.doctor(host=True, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["host"]["copy_rate"] == "3.79GB/s"
    assert told["figures"][1] == {
        "name": "wakeup",
        "value": 2278.4,
        "least": 2e3,
        "largest": 3e3,
        "unit": "ns",
        "how": "a byte",
    }
    assert told["missing"] == {"per_packet": "users have no namespaces"}


def test_a_file_without_a_measurement_is_refused(tmp_path: Path) -> None:
    done = groundwire("doctor", "--out", tmp_path / "host.yaml")
    assert done.returncode == 2 and "--out is for --measure-host" in done.stderr
    assert not (tmp_path / "host.yaml").exists()
