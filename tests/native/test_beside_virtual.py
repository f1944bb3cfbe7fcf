"""The native kernel beside the virtual one with the same spec: the capture, a queue that drops, and
faults."""

from __future__ import annotations

import itertools
import json
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis.decode.run_capture import load_capture
from analysis.runs.run import load_run
from tests.native.native_fabrics import flat, network
from tests.native.native_traffic import UDP, open_socket
from tests.native.own_pace import on_an_idle_machine

ROOT = Path(__file__).resolve().parents[2]
_SIZE = 1_000_000


def _spec(directory: Path, **sections: Any) -> Path:
    spec: dict[str, Any] = {
        "name": "beside",
        "fabric": {"kind": "flat", "hosts": 3, "link": {"rate": "50Mbps", "delay": 0, "mtu": 1500}},
        "workload": {
            "kind": "collectives",
            "ranks": 3,
            "iterations": 2,
            "operations": [{"kind": "all_reduce", "size": _SIZE}],
        },
        "compute": {"device": "none"},
        "capture": {"points": ["hosts"]},
        "scale": 1,
    }
    path = directory / "spec.yaml"
    path.write_text(yaml.safe_dump(spec | sections))
    return path


def _run(spec: Path, out: Path, kernel: str) -> Path:
    command = [sys.executable, "-m", "groundwire.cli", "run", spec, "--kernel", kernel]
    ended = subprocess.run(
        [*map(str, command), "--out", str(out)], cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode in (0, 3), ended.stderr
    return out


def test_a_capture_has_the_same_bytes_on_both_kernels(tmp_path: Path) -> None:
    spec = _spec(tmp_path)
    native, exact = (
        _bytes_by_collective(_run(spec, tmp_path / kernel, kernel))
        for kernel in ("native", "virtual")
    )
    assert native == exact
    payload = sum(data for (kind, _), (_, data, _) in native.items() if kind == "all_reduce")
    # A ring moves each element 2 (n - 1) times; the alignments' 8 bytes are all-reduces as well.
    assert payload >= 2 * 2 * 2 * _SIZE


def _bytes_by_collective(directory: Path) -> dict[tuple[str, str], tuple[int, int, int]]:
    """(kind, id and tag) -> messages, bytes of data, bytes of preambles."""
    capture = load_capture(load_run(directory))
    assert capture is not None
    assert capture.attribution.unattributed_bytes == 0
    return {
        (of.kind, f"{of.collective.id}/{of.tag}"): (
            of.messages,
            of.data_bytes,
            of.preamble_bytes,
        )
        for of in capture.attribution.by_collective()
        if of.collective is not None
    }


def test_a_fault_slows_both_kernels_alike(tmp_path: Path) -> None:
    slow = {"kind": "rate", "link": "h0-s0", "iteration": 1, "value": "10Mbps"}
    message = {"kind": "send_recv", "size": _SIZE}  # of which TCP makes the same every time
    workload = {"kind": "collectives", "ranks": 3, "iterations": 2, "operations": [message]}
    spec = _spec(tmp_path, faults=[slow], capture={"points": []}, workload=workload)
    exact = _durations_ns(_run(spec, tmp_path / "virtual", "virtual"))
    attempts = itertools.count()

    def ratios() -> list[float]:
        native = _durations_ns(_run(spec, tmp_path / f"native-{next(attempts)}", "native"))
        return [ours / right for ours, right in zip(native, exact, strict=True)]

    found = on_an_idle_machine(ratios, lambda each: max(each) < 1.1)
    assert min(found) > 0.95, "faster than the links allow"
    assert max(found) < 1.1
    assert exact[1] > 3 * exact[0], "the fault is there"


def _durations_ns(directory: Path) -> list[int]:
    result = json.loads((directory / "result.json").read_text())
    return [row["duration_ns"] for row in result["collectives"]]


@pytest.mark.parametrize("buffer_bytes", [15_000, 30_000])
def test_a_full_queue_loses_what_the_exact_one_loses(buffer_bytes: int) -> None:
    """One frame is in transmission and the buffer holds whole ones; the rest is lost. So does the
    port qdisc (tests/ports/test_droptail.py). A frame takes 12 ms, so timers do not matter."""
    frames, frame_bytes = 60, 1514
    fabric = flat(2, rate="1Mbps", mtu=1500, kind="droptail", buffer=buffer_bytes)
    with network(fabric) as live:
        with open_socket(live, "h0", UDP) as sender:
            sender.setsockopt(socket.SOL_SOCKET, 32, 1 << 20)  # SO_SNDBUFFORCE
            for _ in range(frames):
                with suppress(OSError):  # a queue that is full says so
                    sender.sendto(
                        bytes(frame_bytes - 42), (str(live.fabric.by_name["h1"].address), 9)
                    )
        port = next(p for p in live.port_counters() if p.node == "h0")
    assert port.queue.drops == pytest.approx(frames - 1 - buffer_bytes // frame_bytes, abs=1)
