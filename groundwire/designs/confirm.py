"""Confirmation: real ranks on emulated networks, for the winner, the baseline and points around."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.design.confirmed import Confirmation, ConfirmedRow, EmulatedPoint
from analysis.design.search import Found
from analysis.runs.run import read_json
from emulator.session import KernelKind
from groundwire.designs.emulated_point import emulation_of
from groundwire.studies.dask_engine import DaskEngine
from groundwire.studies.engine import Engine, JobEvent
from groundwire.studies.jobs import JOB_FILE, Job, emulation
from groundwire.studies.workers.worker import remove_parts
from topologies.spec.spec import Spec

CASES = "cases"


def confirm(
    found: Found,
    around: int,
    directory: Path,
    *,
    kernel: KernelKind = "virtual",
    engine: Engine | None = None,
    workers: int | None = None,
    progress: Callable[[JobEvent], None] = lambda event: None,
) -> Confirmation:
    """Emulate the winner, the baseline and `around` points around the winner, each once: runs that
    are done, by this or an earlier confirmation into `directory`, are kept. `engine` does the runs
    in place of Dask and its `workers` here.

    Raises NotEmulated, EngineError.
    """
    emulated = emulation_of(found, around)
    cases = directory / CASES
    cases.mkdir(exist_ok=True)
    remove_parts(cases)
    jobs = [emulation(spec, kernel, point.name) for point, spec in emulated.points]
    failures: dict[str, str] = {}

    def tell(event: JobEvent) -> None:
        if event.failure is not None:
            failures[event.job.key] = event.failure
        progress(event)

    left = {job.key: job for job in jobs if not (cases / job.key / JOB_FILE).exists()}
    if left:
        (engine or DaskEngine(workers=workers))(list(left.values()), cases, tell)
    rows = [
        _measured(point, spec, job, cases, failures)
        for (point, spec), job in zip(emulated.points, jobs, strict=True)
    ]
    return _beside(rows, found, emulated.rules)


def _measured(
    point: EmulatedPoint, spec: Spec, job: Job, cases: Path, failures: Mapping[str, str]
) -> ConfirmedRow:
    place = f"{CASES}/{job.key}"
    if not (cases / job.key / JOB_FILE).exists():
        failure = failures.get(job.key, "not done")
        return ConfirmedRow(point, place, 0.0, 0.0, failure=failure.splitlines()[0])
    result = read_json(cases / job.key / "result.json")
    measured, by_packets = _times(result, spec)
    valid = bool(result["valid"])
    return ConfirmedRow(point, place, 0.0, 0.0, measured, packet_ns=by_packets, valid=valid)


def _times(result: Mapping[str, Any], spec: Spec) -> tuple[float, float | None]:
    """The times of an iteration, measured and by packets: listed collectives count without the
    barriers between them."""
    if spec.workload.listed is None:
        rows = result["iterations"]
        found = [(row.get("predicted") or {}).get("packet", {}).get("duration_ns") for row in rows]
        by_packets = sum(found) / len(rows) if None not in found else None
        return sum(row["duration_ns"] for row in rows) / len(rows), by_packets
    rows = [row for row in result["collectives"] if row["kind"] != "barrier"]
    iterations = spec.workload.iterations
    found = [row["predicted"].get("packet", {}).get("duration_ns") for row in rows]
    by_packets = sum(found) / iterations if found and None not in found else None
    return sum(row["duration_ns"] for row in rows) / iterations, by_packets


def _beside(rows: list[ConfirmedRow], found: Found, rules: tuple[str, ...]) -> Confirmation:
    """The rows with their gains over the baseline, which is the second."""
    design = found.file.sections.design
    baseline = rows[1]
    complete = []
    for row in rows:
        point, of_baseline = row.point, baseline.point
        cheaper = full_cheaper = 1.0
        if design.objective == "time-x-cost" and point.cost and point.full_size_cost:
            cheaper = of_baseline.cost / point.cost
            full_cheaper = of_baseline.full_size_cost / point.full_size_cost
        gain = None
        if row.measured_ns is not None and baseline.measured_ns is not None:
            gain = baseline.measured_ns / row.measured_ns * cheaper
        complete.append(
            replace(
                row,
                predicted_gain=of_baseline.predicted_ns / point.predicted_ns * cheaper,
                full_size_gain=of_baseline.full_size_ns / point.full_size_ns * full_cheaper,
                measured_gain=gain,
            )
        )
    return Confirmation(
        tuple(complete), baseline.point.name, design.confirm.tolerance, rules, design.objective
    )


def confirmation_document(found: Confirmation) -> dict[str, Any]:
    """Plain data, for design.json."""
    return {
        "verdict": found.verdict,
        "refuted": bool(found.refutations),
        "objective": found.objective,
        "baseline": found.baseline,
        "tolerance": found.tolerance,
        "rules": list(found.rules),
        "points": [
            {
                "point": row.point.name,
                "run": row.directory,
                "predicted_ns": row.point.predicted_ns,
                "measured_ns": row.measured_ns,
                "packet_ns": row.packet_ns,
                "cost": row.point.cost,
                "full_size_gain": row.full_size_gain,
                "predicted_gain": row.predicted_gain,
                "measured_gain": row.measured_gain,
                "error": row.error,
                "valid": row.valid,
                "failure": row.failure,
            }
            for row in found.rows
        ],
    }
