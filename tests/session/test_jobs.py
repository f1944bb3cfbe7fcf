"""Several jobs on one fabric in the virtual kernel: as measured, predicted, repeated and failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis.results.result import write_result
from analysis.runs.run import load_run
from tests.session.command import groundwire, result_of
from topologies.spec.jobs.flows import FlowsWorkload
from workloads.models.flow_sizes import flows_of

_SPEC = """
name: shared
fabric:
  kind: leaf-spine
  leaves: 2
  spines: 2
  hosts_per_leaf: 2
  link: {rate: 10Gbps, delay: 1us, mtu: 9000}
  links: {leaf-spine: {rate: 5Gbps}}
transport: {initial_window: 1000}
jobs:
  - name: left
    placement: {0: h0, 1: h2}
    workload:
      {kind: collectives, ranks: 2, iterations: 2, operations: [{kind: all_reduce, size: 1MB}]}
  - name: right
    start: 500us
    workload: {kind: dlrm, ranks: 2, iterations: 1, batch_size: 64, sparse_features: 8}
predict: [flow]
"""
_CRASH = """
import os, sys, time
time.sleep(0.002)
print("about to fail", file=sys.stderr, flush=True)
sys.exit(3) if os.environ["RANK"] == "1" else time.sleep(100)
"""


def _run(directory: Path, name: str, *more: str, code: int = 0) -> Path:
    out = directory / name
    done = groundwire("run", directory / "spec.yaml", "--kernel", "virtual", "--out", out, *more)
    assert done.returncode == code, done.stderr
    return out


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("jobs")
    (home / "spec.yaml").write_text(_SPEC)
    return home


@pytest.fixture(scope="module")
def shared(home: Path) -> Path:
    return _run(home, "shared", "--alone")


def _job(directory: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(j for j in result_of(directory)["jobs"] if j["name"] == name)
    return found


def test_jobs_begin_when_they_should(shared: Path) -> None:
    begun = {job["name"]: job["begun_ns"] for job in result_of(shared)["jobs"]}
    assert begun["left"] == pytest.approx(0, abs=5)  # to read a clock takes a nanosecond
    assert begun["right"] == pytest.approx(500_000, abs=5)


def test_rows_say_whose_they_are(shared: Path) -> None:
    result = result_of(shared)
    assert result["valid"] is True
    assert {row["job"] for row in result["collectives"]} == {"left", "right"}
    assert [row["index"] for row in result["iterations"] if row["job"] == "left"] == [0, 1]
    for name in ("left", "right"):
        own = result_of(shared / "jobs" / name)
        mine = [row for row in result["collectives"] if row["job"] == name]
        assert mine == [{"job": name} | row for row in own["collectives"]]


def test_a_job_has_a_run_directory_of_its_own(shared: Path) -> None:
    run = load_run(shared)
    assert [job.name for job in run.jobs] == ["left", "right"]
    for name, hosts in (("left", ["h0", "h2"]), ("right", ["h1", "h3"])):
        own = load_run(shared / "jobs" / name)
        assert list(own.hosts) == hosts and [log.rank for log in own.ranks] == [0, 1]
        assert {path.stem for path in own.captures} == {f"{host}-eth0" for host in hosts}
        for file in ("report.html", "trace.json"):
            assert (own.directory / file).stat().st_size > 1000
    text = (shared / "report.html").read_text()
    assert "left" in text and "right" in text
    done = groundwire("report", shared / "jobs" / "left", "--format", "md")
    assert done.returncode == 0 and "all_reduce" in done.stdout


def _ports(directory: Path) -> list[object]:
    logs = sorted((directory / "jobs").glob("*/ranks/*.jsonl"))
    lines = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    return [line for line in lines if line["event"] == "connection"]


def test_alone_it_takes_the_same_paths_and_less_time(shared: Path) -> None:
    result = result_of(shared)
    for name in ("left", "right"):
        assert _ports(shared) == _ports(shared / "alone" / name)
        job = _job(shared, name)
        assert job["alone"]["same_paths"] is True
        assert job["slowdown"] == pytest.approx(job["duration_ns"] / job["alone"]["duration_ns"])
        predicted = job["predicted"]["flow"]
        assert predicted["slowdown"] == pytest.approx(job["slowdown"], rel=0.08)
        assert abs(predicted["error"]) < 0.08
    slowdowns = [job["slowdown"] for job in result["jobs"]]
    assert max(slowdowns) > 1.05
    shares = [1 / slowdown for slowdown in slowdowns]
    jain = sum(shares) ** 2 / (2 * sum(share**2 for share in shares))
    assert result["fairness"] == pytest.approx(jain, abs=1e-6)


def test_a_run_in_which_the_first_job_is_idle_has_a_result(shared: Path) -> None:
    result = write_result(load_run(shared / "alone" / "right"))
    (job,) = result["jobs"]
    assert job["name"] == "right" and job["begun_ns"] == pytest.approx(500_000, abs=5)
    assert {row["job"] for row in result["collectives"]} == {"right"}
    assert result["shared_links"] == [] and job["predicted"]["flow"]["slowdown"] == 1.0


def test_shared_links_are_named_with_who_waited(shared: Path) -> None:
    """Both jobs have a host under either leaf: whatever the paths, they meet between leaves only if
    they chose the same spine, and nowhere else."""
    links = result_of(shared)["shared_links"]
    ends = {(link["node"], link["peer"]) for link in links}
    assert ends and all(not {"h0", "h1", "h2", "h3"} & set(pair) for pair in ends)
    for link in links:
        assert set(link["bytes"]) == {"left", "right"} and link["rate_bps"] == 5_000_000_000
        # A ring of two sends what it reduces and what it gathers: 1 MB each way, and headers.
        assert 2_000_000 <= link["bytes"]["left"] <= 2_000_000 * 1.02
    assert any(wait["waited_ns"] > 1000 for link in links for wait in link["waits"])


def test_a_report_shows_slow_downs_and_shared_links(shared: Path) -> None:
    links = result_of(shared)["shared_links"]
    done = groundwire("report", shared, "--json")
    assert done.returncode == 0, done.stderr
    for name, tables in json.loads(done.stdout).items():
        rows = {(row["node"], row["peer"]): row for row in tables["shared_links"]}
        assert len(rows) == len(links)
        for link in links:
            row = rows[link["node"], link["peer"]]
            assert row["bytes"] == link["bytes"][name]
            assert row["bytes"] + row["bytes_of_others"] == sum(link["bytes"].values())
            waits = [wait for wait in link["waits"] if wait["job"] == name]
            assert row["waited_ns"] == sum(wait["waited_ns"] for wait in waits)
    page = groundwire("report", shared, "--format", "md").stdout
    assert page.count("| slow-down | ") == 2 and "### Links shared with other jobs" in page
    assert "Links shared with other jobs" in (shared / "report.html").read_text()


def test_alone_needs_several_jobs(home: Path) -> None:
    out = home / "one"
    spec = home / "spec.yaml"
    done = groundwire("run", spec, "--alone", "--set", "jobs.0.repeat=0", "--out", out)
    assert done.returncode == 2 and "expected several jobs" in done.stderr
    assert not out.exists()


def test_two_runs_are_the_same_to_the_bit(home: Path, shared: Path) -> None:
    again = _run(home, "again")
    for name in ("left", "right"):
        own, before = (result_of(each / "jobs" / name) for each in (again, shared))
        assert own["collectives"] == before["collectives"]
        assert own["iterations"] == before["iterations"]
    for log in sorted((shared / "jobs").glob("*/ranks/*.jsonl")):
        assert (again / log.relative_to(shared)).read_bytes() == log.read_bytes()


def test_a_job_that_fails_ends_alone(tmp_path: Path) -> None:
    (tmp_path / "crash.py").write_text(_CRASH)
    start, _ = _SPEC.split("  - name: right")
    program = "{kind: command, argv: [python, crash.py], ranks: 2}"
    flows = "{kind: flows, ranks: 2, sizes: storage, rate: 1Gbps, duration: 5ms, pattern: random}"
    (tmp_path / "spec.yaml").write_text(
        f"{start}  - {{name: right, workload: {program}}}\n"
        f"  - {{name: noise, placement: {{0: h1, 1: h3}}, workload: {flows}}}\n"
    )
    out = tmp_path / "out"
    done = groundwire("run", tmp_path / "spec.yaml", "--kernel", "virtual", "--out", out)
    assert done.returncode == 1
    assert "job right: rank 1 on h3 exited with status 3" in done.stdout
    assert "about to fail" in done.stdout
    whole = result_of(out)
    assert whole["valid"] is False and whole["invalid_reasons"][0].startswith(
        "job failed: job right"
    )
    failed = _job(out, "right")["failed"]
    assert failed["rank"] == 1 and failed["at_ns"] == pytest.approx(2_000_000, abs=100_000)
    every = result_of(out)["collectives"]
    rows = [row for row in every if row["job"] == "left"]
    assert [row.get("after_failure_of") for row in rows] == [None, ["right"]]
    assert (out / "jobs" / "right" / "ranks" / "001.err").read_text() == "about to fail\n"
    # Background traffic beside it, also at the hosts of the job that failed, goes on to its end.
    drawn = flows_of(FlowsWorkload.model_validate(yaml.safe_load(flows)))
    noise = {row["id"]: row for row in every if row["job"] == "noise"}
    assert set(noise) == {f"i0.flow.{flow.number}" for flow in drawn} and len(drawn) > 10
    first = min(row["start_ns"] for row in noise.values()) - drawn[0].at_ns
    for flow in drawn:
        row = noise[f"i0.flow.{flow.number}"]
        assert row["kind"] == "send_recv" and row["size_bytes"] == flow.size_bytes
        # To post one takes some nanoseconds, which push those after it.
        assert row["start_ns"] - first == pytest.approx(flow.at_ns, abs=1000)
        assert row["duration_ns"] >= flow.size_bytes * 8 / 5  # of the link between leaves
    assert max(row["start_ns"] - first for row in noise.values()) > 3_000_000
