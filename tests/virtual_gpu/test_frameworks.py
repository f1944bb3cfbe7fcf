"""Training frameworks on virtual GPUs: each script of testing/training, unchanged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from analysis.exporters.kineto import write_kineto
from analysis.runs.kernels import read_kernels
from analysis.runs.run import load_run
from testing.training_programs import HERE, PROGRAMS, missing
from tests.exec.programs import execute
from tests.session.command import result_of

TRACE_ANALYSIS = os.environ.get("GROUNDWIRE_TRACE_ANALYSIS")
"""A virtual environment with HolisticTraceAnalysis."""
_ANALYSE = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
shares = analysis.get_temporal_breakdown(visualize=False)
print(len(shares), len(analysis.get_profiler_steps()))
kinds, _ = analysis.get_gpu_kernel_breakdown(visualize=False)
print(*sorted(kinds.kernel_type))
traces = [analysis.t.get_trace(rank) for rank in range(len(shares))]
print(sum(trace[trace.stream == 7]["dur"].sum() for trace in traces))
"""
ENVIRONMENT = os.environ.get("GROUNDWIRE_FRAMEWORKS")
"""A virtual environment with torch and frameworks; without one, this Python's is looked at."""


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_framework_trains_unchanged(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = PROGRAMS[name]
    python = sys.executable if ENVIRONMENT is None else f"{ENVIRONMENT}/bin/python"
    lacks = missing(python, program.packages)
    if lacks:
        pytest.skip(f"{python} lacks {', '.join(lacks)} (GROUNDWIRE_FRAMEWORKS names another)")
    torchrun = str(Path(python).with_name("torchrun"))
    if program.before is not None:
        subprocess.run([python, str(HERE / program.before)], cwd=tmp_path, check=True)
    (tmp_path / "servers.yaml").write_text(program.fabric())
    options = ("--gpus-per-host", str(program.gpus), "--device", "h100", "--out", "run")
    environment = (*program.options, "-x", "HF_HUB_OFFLINE=1", "--")
    argv = [torchrun, *program.argv()[1:]]
    done = execute(tmp_path, "servers.yaml", *options, *environment, *argv, timeout_s=3000)
    assert done.returncode == 0, done.stderr[-3000:]
    result = result_of(tmp_path / "run")
    assert result["valid"] and len(result["iterations"]) >= 3
    used = result["gpus"]["ranks"]
    assert len(used) == program.servers * program.gpus
    assert all(0 < gpu["mfu"] < 1 and gpu["peak_reserved_bytes"] > 1 << 20 for gpu in used)
    assert len(result["collectives"]) > 10
    if program.peak_gib is not None:
        peak_bytes = max(gpu["peak_reserved_bytes"] for gpu in used)
        assert peak_bytes / 2**30 == pytest.approx(program.peak_gib, rel=0.05)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.skipif(TRACE_ANALYSIS is None, reason="GROUNDWIRE_TRACE_ANALYSIS names no environment")
def test_holistic_trace_analysis_reads_the_profiles(tmp_path: Path) -> None:
    program = PROGRAMS["torch-ddp"]
    (tmp_path / "servers.yaml").write_text(program.fabric())
    options = ("--gpus-per-host", str(program.gpus), "--device", "h100", "--out", "run")
    done = execute(tmp_path, "servers.yaml", *options, "--", *program.argv(), timeout_s=3000)
    assert done.returncode == 0, done.stderr[-3000:]
    run = load_run(tmp_path / "run")
    write_kineto(tmp_path / "profiles", run)
    analysed = subprocess.run(
        [f"{TRACE_ANALYSIS}/bin/python", "-c", _ANALYSE, "profiles"],
        cwd=tmp_path,
        env=os.environ | {"HTA_DISABLE_NS_ROUNDING": "1", "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=True,
    )
    ranks, kinds, kernels_us = analysed.stdout.splitlines()[-3:]
    assert ranks.split() == [str(len(run.ranks)), str(len(run.ranks[0].iterations))]
    assert {"COMPUTATION", "COMMUNICATION", "MEMORY"} <= set(kinds.split())
    kernels = [each for log in run.ranks for each in read_kernels(run, log.rank)]
    own_us = sum(each.end_ns - each.start_ns for each in kernels if each.stream == 0) / 1e3
    assert float(kernels_us) == pytest.approx(own_us, rel=1e-4)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_two_runs_are_the_same_byte_for_byte(tmp_path: Path) -> None:
    program = PROGRAMS["torch-fsdp2"]
    (tmp_path / "servers.yaml").write_text(program.fabric())
    for name in ("one", "two"):
        options = ("--gpus-per-host", str(program.gpus), "--device", "h100", "--out", name)
        done = execute(tmp_path, "servers.yaml", *options, "--", *program.argv(), timeout_s=3000)
        assert done.returncode == 0, done.stderr[-3000:]
    compared = 0
    for one in sorted((tmp_path / "one").rglob("*")):
        if one.is_file() and one.suffix in (".jsonl", ".pcap", ".out", ".csv"):
            two = tmp_path / "two" / one.relative_to(tmp_path / "one")
            assert one.read_bytes() == two.read_bytes(), one
            compared += 1
    assert compared > 10
    results = [result_of(tmp_path / name) for name in ("one", "two")]
    for key in ("collectives", "iterations", "gpus", "summary"):
        assert results[0][key] == results[1][key]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_training_goes_on_where_packets_are_lost(tmp_path: Path) -> None:
    program = PROGRAMS["torch-ddp"]
    lost = {"kind": "loss", "link": "h0-rail0", "at": "0s", "value": "1%"}
    spec = yaml.safe_load(program.fabric()) | {"faults": [lost]}
    (tmp_path / "servers.yaml").write_text(yaml.safe_dump(spec))
    options = ("--gpus-per-host", str(program.gpus), "--device", "h100", "--out", "run")
    done = execute(tmp_path, "servers.yaml", *options, "--", *program.argv(), timeout_s=3000)
    assert done.returncode == 0, done.stderr[-3000:]
    result = result_of(tmp_path / "run")
    assert result["valid"] and len(result["iterations"]) >= 3
    ports = (tmp_path / "run/links.jsonl").read_text().splitlines()
    assert sum(json.loads(line)["drops"] for line in ports) > 10
