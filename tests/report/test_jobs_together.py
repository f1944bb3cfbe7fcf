"""A run of two jobs as one: one trace on one clock, one title, one fabric that says whose bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from analysis.report.finish import finish_run
from analysis.results.result import write_result
from analysis.runs.run import Run, load_run
from analysis.view import view_document
from tests.report.synthetic_run import make_run
from topologies.spec.spec import parse_spec

_SPEC = """
name: beside
fabric: {kind: flat, hosts: 4}
jobs:
  - {name: left, workload: {kind: dlrm, ranks: 2, iterations: 2}}
  - {name: right, workload: {kind: dlrm, ranks: 2, iterations: 2}}
predict: [alpha-beta]
"""
_HOSTS = {"left": ["h0", "h1"], "right": ["h2", "h3"]}


def _run_of_jobs(directory: Path) -> Run:
    spec = parse_spec(_SPEC)
    for name, hosts in _HOSTS.items():
        place = make_run(directory / "jobs" / name, "kind: flat, hosts: 4", ranks=2)
        environment = json.loads((place / "environment.json").read_text())
        (place / "spec.yaml").write_text(spec.parts[name].to_yaml())
        (place / "environment.json").write_text(json.dumps(environment | {"hosts": hosts}))
    (directory / "spec.yaml").write_text(spec.to_yaml())
    (directory / "links.jsonl").write_bytes((place / "links.jsonl").read_bytes())
    jobs = [{"name": name, "hosts": hosts, "retransmits": 0} for name, hosts in _HOSTS.items()]
    whole = {"hosts": ["h0", "h1", "h2", "h3"], "jobs": jobs, "origin_ns": 10_000_000_000}
    (directory / "environment.json").write_text(json.dumps(environment | whole))
    run = load_run(directory)
    assert run.jobs
    return run


def _slices(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((e["pid"], e["tid"], e["name"], e["dur"]) for e in events if e["ph"] == "X")


def test_the_trace_has_every_job_and_the_title_is_the_specs(tmp_path: Path) -> None:
    run = _run_of_jobs(tmp_path / "run")
    write_result(run)
    finished = finish_run(run)
    assert finished.traces[0] == tmp_path / "run" / "trace.json"
    assert len(finished.traces) == 3
    traces = [json.loads(path.read_text())["traceEvents"] for path in finished.traces]
    names = [e["args"]["name"] for e in traces[0] if e["name"] == "process_name"]
    assert names == [
        "left: rank 0 (h0)", "left: rank 1 (h1)", "right: rank 0 (h0)", "right: rank 1 (h1)",
    ]  # fmt: skip
    own = [_slices(trace) for trace in traces[1:]]
    moved = [(pid + 2, tid + 2_000, name, dur) for pid, tid, name, dur in own[1]]
    assert _slices(traces[0]) == sorted([*own[0], *moved])
    assert min(e["ts"] for e in traces[0] if e["ph"] == "X") == 0
    assert finished.report is not None
    assert "<h1>beside</h1>" in finished.report.read_text()


def test_the_view_says_whose_bytes_a_shared_link_carried(tmp_path: Path) -> None:
    run = _run_of_jobs(tmp_path / "run")
    write_result(run)
    path = tmp_path / "run" / "result.json"
    result = json.loads(path.read_text())
    link = run.port_counters[0]
    bytes_by_job = {"left": 7_000, "right": 9_000}
    told = {"link": link.link, "node": link.node, "peer": link.peer, "bytes": bytes_by_job}
    path.write_text(json.dumps(result | {"shared_links": [told | {"rate_bps": 1, "waits": []}]}))
    document = view_document(load_run(tmp_path / "run"), "run")
    assert document.ports[0].by_job == bytes_by_job
    assert all(not port.by_job for port in document.ports[1:])
    assert len(document.ranks) == 4
