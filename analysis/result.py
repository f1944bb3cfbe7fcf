"""result.json: what was measured, with the predictions beside it and the verdict on top."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from analysis.collectives import Collective, collectives_of
from analysis.predictors.interface import (
    Predictor,
    PredictorError,
    Setting,
    Transport,
    load_predictor,
)
from analysis.predictors.run_predictions import RunPredictor
from analysis.run import RESULT_SCHEMA, Run, load_run
from analysis.verdict import verdict_of


def write_result(directory: Path) -> dict[str, Any]:
    """Build result.json of a run directory, write it there and return it. Raises RunError."""
    run = load_run(directory)
    result = build_result(run)
    # A half-written one, of a full disk or a kill, must not look like a result.
    unfinished = directory / "result.json.unfinished"
    unfinished.write_text(json.dumps(result, indent=1) + "\n")
    unfinished.replace(directory / "result.json")
    return result


def build_result(run: Run) -> dict[str, Any]:
    """result.json (docs/architecture.md has its keys) of a run. Times are in target units."""
    environment, scale = run.environment, run.environment.scale
    collectives = collectives_of(run)
    predicted = _predictions(run, collectives)
    verdict = verdict_of(run)
    rows = [_row(c, scale, p) for c, p in zip(collectives, predicted, strict=True)]
    return {
        "schema": RESULT_SCHEMA,
        "name": run.spec.name,
        "kernel": environment.kernel,
        "valid": verdict.valid,
        "invalid_reasons": verdict.reasons,
        "wall_s": environment.wall_s,
        "scale": scale,
        "collectives": rows,
        "iterations": _iterations(run, collectives, scale),
        "summary": {
            "error": {name: _summary(name, rows) for name in run.spec.predict},
            "drops": sum(link.drops for link in run.links),
            "ecn_marks": sum(link.ecn_marks for link in run.links),
            "pauses": sum(link.pauses for link in run.links),
            "retransmits": environment.retransmits,
        },
    }


def _row(
    collective: Collective, scale: int, predicted: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    duration_ns = collective.duration_ns // scale
    return {
        "id": collective.id,
        "kind": collective.kind,
        "phase": collective.phase,
        "group": collective.group,
        "size_bytes": collective.size_bytes,
        "ranks": len(collective.ranks),
        "iteration": collective.iteration,
        "start_ns": collective.start_ns // scale,
        "end_ns": collective.end_ns // scale,
        "duration_ns": duration_ns,
        "algbw_gbps": round(collective.algbw_gbps * scale, 6),
        "busbw_gbps": round(collective.busbw_gbps * scale, 6),
        "predicted": predicted,
    }


def setting_of(run: Run) -> Setting:
    """Where a run's collectives ran, as predictors are told."""
    transport = run.spec.transport
    return Setting(
        run.fabric,
        run.routes,
        run.hosts,
        Transport(transport.congestion_control, transport.rcvbuf_bytes, transport.sndbuf_bytes),
        run.spec.seed,
        {
            (log.rank, connection.peer): (connection.port, connection.peer_port)
            for log in run.ranks
            for connection in log.connections
            if connection.group == "default"
        },
    )


def _predictions(run: Run, collectives: Sequence[Collective]) -> list[dict[str, dict[str, Any]]]:
    """For each collective, predictor name -> its entry in result.json."""
    setting, scale = setting_of(run), run.environment.scale
    found: list[dict[str, dict[str, Any]]] = [{} for _ in collectives]
    for name in run.spec.predict:
        try:
            predictor: Predictor | PredictorError = load_predictor(name)
        except PredictorError as error:
            predictor = error
        for entry, collective, answer in zip(
            found,
            collectives,
            RunPredictor(setting, predictor).together(collectives, scale),
            strict=True,
        ):
            if isinstance(answer, PredictorError):
                entry[name] = {"duration_ns": None, "error": None, "reason": str(answer)}
                continue
            measured_ns = collective.duration_ns // scale
            entry[name] = {
                "duration_ns": answer.duration_ns,
                "error": round(answer.duration_ns / measured_ns - 1, 6) if measured_ns else None,
                "alone_ns": answer.alone_ns,
            }
    return found


def _iterations(run: Run, collectives: Sequence[Collective], scale: int) -> list[dict[str, int]]:
    """Per iteration: its duration, and the compute and exposed (blocked) time of the rank that has
    most of it. An iteration lasts from its first rank's start to its last one's end; where
    workloads log none (the collectives benchmark aligns in between), its collectives' sum."""
    found = []
    for index in sorted({c.iteration for c in collectives}):
        spans = [i for log in run.ranks for i in log.iterations if i.index == index]
        mine = [c for c in collectives if c.iteration == index]
        if spans:
            duration_ns = max(s.end_ns for s in spans) - min(s.start_ns for s in spans)
        else:
            duration_ns = sum(c.duration_ns for c in mine)
        computes = [
            sum(c.end_ns - c.start_ns for c in log.computes if c.iteration == index)
            for log in run.ranks
        ]
        exposed = [
            sum(c.by_rank[log.rank].waited_ns for c in mine if log.rank in c.by_rank)
            for log in run.ranks
        ]
        found.append(
            {
                "index": index,
                "duration_ns": duration_ns // scale,
                "compute_ns": max(computes) // scale,
                "exposed_comm_ns": max(exposed) // scale,
            }
        )
    return found


def _summary(name: str, rows: Sequence[dict[str, Any]]) -> dict[str, float | int | None]:
    errors = [row["predicted"][name]["error"] for row in rows]
    return error_summary(error for error in errors if error is not None and error > -1)


def error_summary(errors: Iterable[float]) -> dict[str, float | int | None]:
    """geomean = exp(mean(|ln(predicted/measured)|)) - 1; worst = the same of the worst one."""
    logs = [abs(math.log1p(error)) for error in errors]
    if not logs:
        return {"geomean": None, "worst": None, "count": 0}
    return {
        "geomean": round(math.expm1(sum(logs) / len(logs)), 6),
        "worst": round(math.expm1(max(logs)), 6),
        "count": len(logs),
    }
