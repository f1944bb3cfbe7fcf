"""The outcomes of a study's jobs, read from their directories."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.results.rows import row_responses
from analysis.runs.run import read_json
from analysis.studies.cases import Case, StudyCases
from groundwire.studies.jobs import JOB_FILE, PREDICTION, Job
from groundwire.studies.planning import PlannedCase, StudyPlan


def is_done(job: Job, cases: Path) -> bool:
    """Whether the directory of a job is there: it appears when it is complete."""
    return (cases / job.key / JOB_FILE).exists()


def collect(plan: StudyPlan, cases: Path, failures: Mapping[str, str]) -> StudyCases:
    """A study with all outcomes that there are; `failures` says by job why there is none."""
    file = plan.file
    return StudyCases(
        file.sections.name,
        tuple(factor.described for factor in file.factors),
        tuple(_case(planned, cases, failures) for planned in plan.cases),
        tuple(dict.fromkeys(file.sections.responses)),
        file.predictor,
        file.limits,
    )


def _case(planned: PlannedCase, cases: Path, failures: Mapping[str, str]) -> Case:
    case = Case(
        planned.number,
        planned.key,
        planned.levels,
        planned.seed,
        planned.ranks,
        planned.how,
        cost=planned.cost,
    )
    predicted = _prediction(planned.predicted, cases)
    duration_ns = None if predicted is None else predicted.get("duration_ns")
    case = replace(case, predicted_ns=duration_ns)
    if planned.emulated is not None:
        job = planned.emulated
        if not is_done(job, cases):
            return replace(case, failure=failures.get(job.key, "not done"))
        result = read_json(cases / job.key / "result.json")
        machine = None
        if job.kernel == "native":
            machine = json.loads((cases / job.key / JOB_FILE).read_text())["machine"]
        return replace(
            case, responses=_measured(result), valid=bool(result["valid"]), machine=machine
        )
    if predicted is None:
        return replace(case, failure=failures.get(planned.predicted.key, "not done"))
    if duration_ns is None:
        return replace(case, failure=str(predicted["reason"]))
    responses = {
        "iteration_ns": duration_ns,
        "compute_ns": predicted["compute_ns"],
        "exposed_ns": predicted["exposed_comm_ns"],
    }
    return replace(case, responses=responses)


def _prediction(job: Job, cases: Path) -> dict[str, Any] | None:
    if not is_done(job, cases):
        return None
    found: dict[str, Any] = json.loads((cases / job.key / PREDICTION).read_text())
    return found


def _measured(result: Mapping[str, Any]) -> dict[str, float | None]:
    iterations, summary = result["iterations"], result["summary"]
    number = max(1, len(iterations))
    collectives_ns = sum(row["duration_ns"] for row in result["collectives"]) // number
    return {
        "iteration_ns": _mean([i["duration_ns"] for i in iterations]),
        "compute_ns": _mean([i["compute_ns"] for i in iterations]),
        "exposed_ns": _mean(
            [i["exposed_comm_ns"] for i in iterations if i["exposed_comm_ns"] is not None]
        ),
        "collectives_ns": collectives_ns,
        **{name: summary[name] for name in ("drops", "ecn_marks", "pauses", "retransmits")},
        **row_responses(result),
    }


def _mean(values: list[int]) -> int | None:
    return sum(values) // len(values) if values else None
