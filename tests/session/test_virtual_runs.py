"""Whole runs in the virtual kernel, as a user starts them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from analysis.predict.setting import setting_of
from analysis.runs.run import load_run
from emulator.progress import Progress
from groundwire.connected import connected_setting
from tests.session.captured_headers import captured_headers
from tests.session.command import groundwire, result_of

_STEP = """
name: step
seed: {seed}
fabric:
  kind: fat-tree
  k: 4
  link: {{rate: 100Gbps, delay: 500ns, mtu: 9000}}
  queue: {{kind: dctcp, k: 100KB, buffer: 4MB}}
transport: {{congestion_control: dctcp}}
workload: {{kind: dlrm, ranks: 16, iterations: 1, batch_size: 32, bottom_mlp: [256, 64],
  top_mlp: [256, 1], bucket: 200KB}}
capture: {{points: {points}}}
predict: [alpha-beta]
"""


@pytest.fixture(scope="module")
def step_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _run_step(tmp_path_factory.mktemp("step"), "run", seed=1, points="[hosts]")


def _run_step(directory: Path, name: str, seed: int, points: str) -> Path:
    spec = directory / f"{name}.yaml"
    spec.write_text(_STEP.format(seed=seed, points=points))
    out = directory / name
    done = groundwire("run", spec, "--kernel", "virtual", "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def test_the_main_job_follows_the_contract(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    done = groundwire(
        "run", "topologies/dlrm-fat-tree-k4.yaml", "--kernel", "virtual", "--out", out, "--json"
    )
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"iteration 2 \(3 of 3\), \d+\.\d{6} s since the ranks began, about \d+ s left "
        r"\(until \d\d:\d\d:\d\d\)",
        done.stderr,
    )
    result = json.loads(done.stdout)
    assert result == json.loads((out / "result.json").read_text())
    assert result["schema"] == 2 and result["kernel"] == "virtual"
    assert result["valid"] is True and result["invalid_reasons"] == []
    assert [i["index"] for i in result["iterations"]] == [0, 1, 2]
    for iteration in range(3):
        rows = [c for c in result["collectives"] if c["iteration"] == iteration]
        assert len(rows) >= 3
        assert {"all_reduce", "all_to_all"} == {c["kind"] for c in rows}
    for row in result["collectives"]:
        assert row["ranks"] == 16
        assert row["duration_ns"] == row["end_ns"] - row["start_ns"] > 0
        for predicted in row["predicted"].values():
            assert predicted["duration_ns"] > 0
            assert predicted["error"] == pytest.approx(
                predicted["duration_ns"] / row["duration_ns"] - 1, abs=1e-6
            )
    # No port carries more than its rate: 16 hosts at 100 Gb/s bound the bus bandwidth.
    assert all(0 < row["busbw_gbps"] < 100 for row in result["collectives"])
    logs = sorted((out / "ranks").glob("*.jsonl"))
    assert len(logs) == 16
    for log in logs:
        events = [json.loads(line) for line in log.read_text().splitlines()]
        checks = [e for e in events if e["event"] == "check"]
        assert len(checks) == len(result["collectives"]) and all(c["ok"] for c in checks)
    assert len(list((out / "capture").glob("*.pcap"))) == 16


def test_two_runs_are_byte_identical_also_with_the_host_loaded(
    step_run: Path, tmp_path: Path
) -> None:
    load = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        again = _run_step(tmp_path, "another-path", seed=1, points="[hosts]")
    finally:
        for process in load:
            process.kill()
            process.wait()
    assert result_of(again) == result_of(step_run)
    for name in ("links.jsonl", *(f"ranks/{rank:03d}.jsonl" for rank in range(16))):
        assert (again / name).read_bytes() == (step_run / name).read_bytes(), name
    seen, before = captured_headers(again), captured_headers(step_run)
    assert [name for name in before if seen[name] != before[name]] == []


def test_capturing_changes_no_measured_time(step_run: Path, tmp_path: Path) -> None:
    bare = _run_step(tmp_path, "bare", seed=1, points="[]")
    assert not (bare / "capture").exists()
    assert result_of(bare) == result_of(step_run)
    # Nor does it wake the guest for each packet.
    switches = [
        json.loads((out / "environment.json").read_text())["stops"]["switches"]
        for out in (bare, step_run)
    ]
    assert switches[1] < 1.1 * switches[0]


def test_ports_are_known_from_connecting_alone(step_run: Path) -> None:
    run = load_run(step_run)
    progress: list[Progress] = []
    found = connected_setting(run.spec, progress.append)
    ran = setting_of(run)
    assert len(found.ports) == 120 and found.ports == ran.ports
    assert found.group_ports == ran.group_ports
    assert not any(one.stage == "iteration" for one in progress)  # nothing of the workload ran


def test_another_seed_takes_other_paths(step_run: Path, tmp_path: Path) -> None:
    """An edge switch sends the same payload up with every seed, over other uplinks."""
    other = _uplinks(_run_step(tmp_path, "other", seed=2, points="[]"))
    first = _uplinks(step_run)
    assert len(first) == 8
    moved = 0
    for edge, sent in first.items():
        assert len(sent) == 2
        total = sum(sent.values())
        # Acknowledgements are as many as came about.
        assert sum(other[edge].values()) == pytest.approx(total, rel=0.01)
        # One rank sends another 16 KiB in each of two all-to-alls: more than that.
        moved += any(abs(other[edge][port] - sent[port]) > 0.01 * total for port in sent)
    assert moved > len(first) / 2


def _uplinks(run: Path) -> dict[str, dict[str, int]]:
    """Bytes that each edge switch sent by each of its equal-cost ports to aggregation switches."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for line in (run / "links.jsonl").read_text().splitlines():
        port = json.loads(line)
        if port["node"].startswith("edge") and port["peer"].startswith("agg"):
            found[port["node"]][port["port"]] = port["bytes"]
    return found


def test_a_torus_runs(tmp_path: Path) -> None:
    done = groundwire(
        "run", "topologies/torus-4x4.yaml", "--kernel", "virtual", "--out", tmp_path / "torus",
        "--set", "workload.operations=[{kind: all_reduce, size: 1MB}]",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_64_ranks_on_a_torus_of_three_dimensions(tmp_path: Path) -> None:
    """The spec as it is but for its sizes, which are 8 MB."""
    done = groundwire(
        "run", "topologies/torus-4x4x4.yaml", "--kernel", "virtual", "--out", tmp_path / "torus",
        "--json", "--set",
        "workload.operations=[{kind: all_reduce, size: 256KB}, {kind: all_to_all, size: 256KB}]",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["valid"] is True
    assert (result["summary"]["drops"], result["summary"]["retransmits"]) == (0, 0)
    assert len(list((tmp_path / "torus" / "capture").glob("*.pcap"))) == 6 * 64
    error = {row["kind"]: row["predicted"]["flow"]["error"] for row in result["collectives"]}
    # docs/prediction.md: 8% at worst.
    assert max(map(abs, error.values())) < 0.08


def test_a_deadlock_of_lossless_queues_is_reported_as_one(tmp_path: Path) -> None:
    out = tmp_path / "ring"
    done = groundwire("run", "topologies/ring-deadlock.yaml", "--kernel", "virtual", "--out", out)
    assert done.returncode == 1
    assert "deadlock of lossless queues" in done.stderr
    for switch in ("s0", "s1", "s2", "s3", "s4"):
        assert f"{switch}-eth" in done.stderr


def test_one_rank_runs_what_needs_no_other(tmp_path: Path) -> None:
    """Nothing leaves it, so nothing takes time, and no predictor is asked for more."""
    spec = tmp_path / "one.yaml"
    kinds = ("all_reduce", "all_to_all", "broadcast", "all_gather", "reduce_scatter", "reduce")
    operations = "".join(f"{{kind: {kind}, size: 1MB}}, " for kind in kinds)
    spec.write_text(
        "fabric: {kind: flat, hosts: 2}\npredict: [flow, alpha-beta, packet]\n"
        f"workload: {{kind: collectives, ranks: 1, operations: [{operations}{{kind: barrier}}]}}\n"
    )
    out = tmp_path / "out"
    done = groundwire("run", spec, "--kernel", "virtual", "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["valid"] is True
    assert [row["kind"] for row in result["collectives"]] == [*kinds, "barrier"]
    assert sum(row["duration_ns"] for row in result["collectives"]) < 10_000
    spec.write_text(spec.read_text().replace("kind: barrier", "kind: incast, size: 1MB"))
    refused = groundwire("predict", spec)
    assert refused.returncode == 2
    assert "at least 2 ranks: a rank sends to others" in " ".join(refused.stderr.split())
