"""Partitioned inference on real ranks, in the virtual kernel, beside its predictions."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.decode.run_capture import load_capture
from analysis.runs.run import Run, load_run
from tests.session.command import ROOT, groundwire

SPEC = """
name: split
fabric: {kind: flat, hosts: 4, link: {rate: 10Gbps, delay: 1us}}
workload:
  kind: partitioned_inference
  ranks: 4
  iterations: 2
  batch_size: 256
  network: {kind: mlp}
predict: [alpha-beta, flow]
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    directory = tmp_path_factory.mktemp("partition")
    (directory / "spec.yaml").write_text(SPEC)
    blocks = "{kind: block-diagonal, blocks: 4}"
    wanted = {
        "everything": {"partition.crossing_cost": "0"},
        "pruned": {"partition.crossing_cost": "1"},
        "blocks": {"partition.crossing_cost": "0.1", "network": blocks},
    }
    found = {}
    for name, keys in wanted.items():
        sets = [w for key, value in keys.items() for w in ("--set", f"workload.{key}={value}")]
        out = directory / name
        spec = directory / "spec.yaml"
        done = groundwire("run", spec, *sets, "--kernel", "virtual", "--out", out)
        assert done.returncode == 0, done.stderr
        assert "accuracy" in done.stdout
        found[name] = load_run(out)
    return found


def test_every_message_and_every_output_is_checked(runs: dict[str, Run]) -> None:
    for run in runs.values():
        for log in run.ranks:
            arrived = [c for c in log.collectives if c.kind == "send_recv" and c.ranks is not None]
            received = [c for c in arrived if c.ranks is not None and c.ranks[1] == log.rank]
            assert log.checks == len(received) + 2


def test_hidden_blocks_are_inferred_without_a_message(runs: dict[str, Run]) -> None:
    run = runs["blocks"]
    assert run.result["collectives"] == []
    row = run.result["partition"]
    assert (row["bytes_across"], row["messages"]) == (0, 0)
    assert row["accuracy"] == 1.0
    # Nothing is waited for, and a rank sleeps to the nanosecond after for each of its kernels.
    for iteration in run.result["iterations"]:
        computed = iteration["predicted"]["flow"]["duration_ns"]
        assert 0 <= iteration["duration_ns"] - computed <= 3


def test_latency_falls_with_the_bytes_across(runs: dict[str, Run]) -> None:
    everything, pruned = runs["everything"].result, runs["pruned"].result
    assert pruned["partition"]["bytes_across"] < everything["partition"]["bytes_across"] / 3
    assert pruned["partition"]["accuracy"] > everything["partition"]["accuracy"] - 0.02
    before, after = (r["iterations"][1]["duration_ns"] for r in (everything, pruned))
    assert after < before / 2
    # No faster than the busiest port allows.
    for run in (runs["everything"], runs["pruned"]):
        sent = [0] * 4
        for row in run.result["collectives"]:
            if row["iteration"] == 1:
                sent[int(row["id"].split(".")[2].split("to")[0])] += row["size_bytes"]
        assert run.result["iterations"][1]["duration_ns"] > max(sent) * 8 / 10


def test_the_iteration_is_predicted(runs: dict[str, Run]) -> None:
    for name in ("everything", "pruned"):
        warm = runs[name].result["iterations"][1]
        assert abs(warm["predicted"]["flow"]["error"]) < 0.08, (name, warm)
        for row in runs[name].result["collectives"]:
            assert row["predicted"]["flow"]["duration_ns"] > 0


def test_every_byte_is_attributed(runs: dict[str, Run]) -> None:
    for name in ("everything", "pruned"):
        capture = load_capture(runs[name])
        assert capture is not None
        attribution = capture.attribution
        assert attribution.unattributed_bytes == 0
        payload = sum(
            found.data_bytes
            for found in attribution.by_collective()
            if found.collective is not None and found.collective.kind == "send_recv"
        )
        assert payload == 2 * runs[name].result["partition"]["bytes_across"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "fewer", "shorter", "lost"),
    [
        ("mlp-4", 4.5, 2.5, 0.0),
        ("mlp-8", 3.0, 1.5, 0.0),
        ("cnn-4", 4.0, 1.5, 0.01),
        ("cnn-8", 3.0, 1.5, 0.005),
    ],
)
def test_on_4_and_8_workers_latency_falls_with_the_bytes(
    name: str, fewer: float, shorter: float, lost: float, tmp_path: Path
) -> None:
    """The ratios that benchmarks/results has for lambda = 1 beside 0: bytes across, latency,
    accuracy. With 8 workers ECMP draws the paths, and latencies with them: half of the bytes'
    factor is asked."""
    found = []
    for cost in ("0", "1"):
        sets = [f"workload.partition.crossing_cost={cost}", "workload.iterations=2"]
        words = [word for one in sets for word in ("--set", one)]
        spec = ROOT / "topologies" / f"partition-{name}.yaml"
        done = groundwire("run", spec, *words, "--kernel", "virtual", "--out", tmp_path / cost)
        assert done.returncode == 0, done.stderr
        found.append(load_run(tmp_path / cost).result)
    everything, pruned = found
    before, after = everything["partition"], pruned["partition"]
    assert before["bytes_across"] > fewer * after["bytes_across"]
    assert after["accuracy"] >= before["accuracy"] - lost
    latencies = [result["iterations"][1]["duration_ns"] for result in found]
    assert latencies[0] > shorter * latencies[1]
