"""A run divided among several kernels is the run that one kernel makes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from analysis.pcap import read_pcap
from tests.session.command import ROOT, groundwire, result_of
from tests.session.leftovers import left_by

# One path between any two hosts: other random numbers make no difference.
_SPEC = """
name: divided
fabric:
  {kind: leaf-spine, leaves: 2, spines: 1, hosts_per_leaf: 2,
   link: {rate: 100Gbps, delay: 1us, mtu: 9000}, queue: {kind: lossless, xoff: 64KB, xon: 48KB}}
workload:
  kind: collectives
  ranks: 4
  operations: [{kind: all_reduce, size: 2MB}, {kind: incast, size: 2MB}]
compute: {device: none}
counters: {interval: 3us}
predict: [alpha-beta]
"""


def _run(directory: Path, kernels: int) -> Path:
    spec, out = directory / "divided.yaml", directory / f"run-{kernels}"
    spec.write_text(_SPEC)
    done = groundwire(
        "run", spec, "--kernel", "virtual", "--set", f"virtual.kernels={kernels}", "--out", out
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r"fabric up|iteration \d+ of 1,|all ranks done", done.stderr) == [
        "fabric up", "iteration 1 of 1,", "all ranks done",
    ]  # fmt: skip
    return out


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("divided")
    return _run(directory, 1), _run(directory, 2)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_it_takes_as_long_and_is_as_right(runs: tuple[Path, Path]) -> None:
    alone, divided = (result_of(run) for run in runs)
    assert divided["valid"] and divided["summary"]["retransmits"] == 0
    took = [[c["duration_ns"] for c in result["collectives"]] for result in (alone, divided)]
    assert took[1] == pytest.approx(took[0], rel=0.01)
    for rank in range(4):
        events = _lines(runs[1] / "ranks" / f"{rank:03d}.jsonl")
        checks = [event["ok"] for event in events if event["event"] == "check"]
        assert checks == [True] * len(divided["collectives"])


def test_every_port_counts_what_it_counts_in_one_kernel(runs: tuple[Path, Path]) -> None:
    alone, divided = (_lines(run / "links.jsonl") for run in runs)
    for one, same in zip(alone, divided, strict=True):
        for key in ("link", "port", "node", "peer", "rate_bps", "delay_ns"):
            assert same[key] == one[key]
        # Connections come and go with a few packets more or less.
        assert same["packets"] == pytest.approx(one["packets"], abs=20)
        assert same["drops"] == same["lost_outside_queue"] == 0
    # Lossless links pause across the cut and elsewhere.
    assert sum(line["pauses"] for line in divided) == pytest.approx(
        sum(line["pauses"] for line in alone), rel=0.1
    )
    assert sum(line["pauses"] for line in alone) > 10


def test_every_host_is_captured_and_every_port_sampled(runs: tuple[Path, Path]) -> None:
    samples = [{line["port"] for line in _lines(run / "queues.jsonl")} for run in runs]
    assert samples[0] == samples[1] == {line["port"] for line in _lines(runs[0] / "links.jsonl")}
    indices = [json.loads((run / "capture" / "index.json").read_text()) for run in runs]
    assert indices[0]["clock_offset_ns"] == indices[1]["clock_offset_ns"]
    files = [[capture["file"] for capture in index["captures"]] for index in indices]
    assert files[0] == files[1] == [f"h{n}-eth0.pcap" for n in range(4)]
    for file in files[0]:
        payload = [int(read_pcap(run / "capture" / file).payload_bytes.sum()) for run in runs]
        assert payload[0] > 4_000_000
        assert payload[1] == pytest.approx(payload[0], abs=10_000)


def test_it_says_that_it_was_divided_and_leaves_nothing_else(runs: tuple[Path, Path]) -> None:
    environments = [json.loads((run / "environment.json").read_text()) for run in runs]
    assert "kernels" not in environments[0]
    assert environments[1]["kernels"] == 2
    said = ["divided among 2" in (run / "report.html").read_text() for run in runs]
    assert said == [False, True]
    assert all(environments[1]["stops"][name] > 0 for name in environments[0]["stops"])
    names = [sorted(str(path.relative_to(run)) for path in run.rglob("*")) for run in runs]
    assert names[0] == names[1]


def test_a_rank_that_fails_in_any_kernel_ends_all_with_its_words(tmp_path: Path) -> None:
    """Ranks in the other kernel fail a few us later, as their connections close."""
    ignored = shutil.ignore_patterns(".*", "runs", "__pycache__", "*.egg-info", "tests", "docs")
    clone = Path(shutil.copytree(ROOT, tmp_path / "clone", ignore=ignored))
    program = clone / "workloads" / "rank.py"
    before = "        compute = Compute(plan.compute, log)\n"
    text = program.read_text()
    assert text.count(before) == 1
    fail = "        if plan.rank == 3:\n            raise RuntimeError('told to fail')\n"
    program.write_text(text.replace(before, before + fail))
    spec = tmp_path / "divided.yaml"
    spec.write_text(_SPEC)
    command = [sys.executable, "-m", "emulator.cli", "run", spec, "--kernel", "virtual"]
    process = subprocess.Popen(
        [*command, "--set", "virtual.kernels=2", "--out", tmp_path / "run"],
        cwd=clone, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        _, said = process.communicate(timeout=280)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "the experiment failed in the virtual kernel: rank 3 " in said
    assert "RuntimeError: told to fail" in said
    assert not (tmp_path / "run" / "result.json").exists()
    assert left_by(process.pid) == []
