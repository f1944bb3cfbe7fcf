"""The result.json of one workload: its measurements, with the predictions beside it and the
verdict on top. `result.py` builds it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.predict.interface import Predictor, load_predictor
from analysis.predict.planned_run import PredictedIteration
from analysis.predict.run_predictions import RunPredictor
from analysis.predict.setting import setting_of
from analysis.results.copies import copies_section
from analysis.results.gpus import gpu_section
from analysis.results.judged import exact_times, twin_of
from analysis.results.notes import notes_of, payload_checked
from analysis.results.placement import KEY as PLACEMENT
from analysis.results.placement import placement_section
from analysis.results.recovery import recovery_section
from analysis.results.retransmits import retransmits_of
from analysis.results.rows import rows_of
from analysis.results.verdict import JudgedRun
from analysis.runs.collectives import (
    MeasuredCollective,
    alignments_of,
    collectives_of,
    exposed_by_phase,
    groups_of_program,
    iterations_of,
    unseen_iterations,
)
from analysis.runs.copies import CopiesOf, copies_by_collective
from analysis.runs.records import GroupRecord
from analysis.runs.run import RESULT_SCHEMA, Run
from collectives.call import CollectiveError
from topologies.spec.queue_section import trims
from topologies.spec.spec import Spec

POSTING_TIMES, PORTS = "posting_times", "ports"
"""Knowledge of a prediction about the run that it is held against (`conditioned`): when collectives
were posted, and so which were in flight together; and the TCP ports of the ranks' connections,
which decide the paths that ECMP takes. `groundwire predict` knows the spec alone."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """The predictions beside a run's figures, as result.json has them: for each collective, by
    predictor, in the order of `collectives_of`; and by predictor the iterations, or why there are
    none."""

    collectives: Sequence[dict[str, dict[str, Any]]]
    iterations: Mapping[str, Sequence[PredictedIteration] | CollectiveError]


def assemble(run: Run, predictions: Predictions, judged: JudgedRun) -> dict[str, Any]:
    """result.json of a run with one workload, beside which these predictions stand."""
    environment, scale = run.environment, run.environment.scale
    collectives = collectives_of(run)
    twin = twin_of(run)
    exact = exact_times(run, twin) if twin is not None else {}
    groups = groups_of_program(run)
    copied = copies_by_collective(run)
    rows = [
        _row(c, scale, p, exact.get((c.group, c.id)), groups.get(c.group), len(run.ranks))
        | _copied_row(copied.get((c.group, c.id)))
        for c, p in zip(collectives, predictions.collectives, strict=True)
    ]
    iterations = _iterations(run, collectives, scale)
    _add_predictions(iterations, predictions.iterations)
    return {
        "schema": RESULT_SCHEMA,
        "name": run.spec.name,
        "kernel": environment.kernel,
        **({} if environment.simulated is None else {"network": "simulated"}),
        **scaled_payload(run.spec),
        "valid": judged.verdict.valid,
        "invalid_reasons": judged.verdict.reasons,
        "judged": _judged(judged),
        "payload_checked": payload_checked(run.spec),
        "notes": notes_of(run),
        "wall_s": environment.wall_s,
        "scale": scale,
        "collectives": rows,
        "iterations": iterations,
        "summary": summary_of(run, rows, iterations),
        **rows_of(run.spec, collectives, predictions.collectives),
    } | {
        name: section
        for name, section in (
            ("copies", copies_section(run)),
            ("gpus", gpu_section(run)),
            ("recovery", recovery_section(run)),
            (PLACEMENT, placement_section(run, iterations, _measured_iterations)),
        )
        if section is not None
    }


def scaled_payload(spec: Spec) -> dict[str, str]:
    """The share of large messages that was sent, where it is not all."""
    program = spec.workload.program
    scaled = program is not None and program.payload_share > 1
    return {"scale_payload": program.scale_payload} if program is not None and scaled else {}


def _measured_iterations(run: Run) -> list[dict[str, Any]]:
    return _iterations(run, collectives_of(run), run.environment.scale)


def summary_of(
    run: Run, rows: Sequence[dict[str, Any]], iterations: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """The errors of the predictions in these rows, and what the ports counted."""
    return (
        {
            "error": {name: _summary(name, rows) for name in run.spec.predict},
            "iteration_error": {name: _summary(name, iterations) for name in run.spec.predict},
            "drops": sum(link.drops for link in run.port_counters),
            "ecn_marks": sum(link.ecn_marks for link in run.port_counters),
            "pauses": sum(link.pauses for link in run.port_counters),
            "retransmits": retransmits_of(run),
            "unrouted": sum(run.environment.unrouted.values()),
        }
        | _trims(run)
        | _of_transport(run)
    )


def _trims(run: Run) -> dict[str, int]:
    """The counter of trimmed packets, on fabrics whose ports trim."""
    queues = (port.queue for link in run.fabric.links for port in (link.a, link.b))
    if not any(map(trims, queues)):
        return {}
    return {"trims": sum(link.trims for link in run.port_counters)}


def _of_transport(run: Run) -> dict[str, int]:
    """The counters of a transport's ends."""
    if run.environment.roce is not None:
        return run.environment.roce.model_dump()
    ends = [end for log in run.ranks for end in log.ends]
    if not ends:
        return {}
    return {"packets_sent": sum(e.sent for e in ends), "packets_again": sum(e.again for e in ends)}


def _judged(judged: JudgedRun) -> dict[str, Any] | None:
    if judged.times is None:
        return None
    return judged.times.as_dict() | {"outweighed": list(judged.outweighed)}


def _row(
    collective: MeasuredCollective,
    scale: int,
    predicted: dict[str, dict[str, Any]],
    exact_ns: int | None,
    group: GroupRecord | None,
    world: int,
) -> dict[str, Any]:
    duration_ns = collective.duration_ns // scale
    return (
        {
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
            "exact_ns": exact_ns,
            "algbw_gbps": _target_gbps(collective.algbw_gbps, scale),
            "busbw_gbps": _target_gbps(collective.busbw_gbps, scale),
            "predicted": predicted,
        }
        | _members_row(collective, group, world)
        | _program_row(collective)
        | _payload_row(collective)
    )


def _payload_row(collective: MeasuredCollective) -> dict[str, int]:
    """The size of the whole message, where a part of it was sent."""
    whole = [each.payload_bytes for each in collective.by_rank.values() if each.payload_bytes]
    return {"payload_bytes": max(whole)} if whole else {}


def _target_gbps(gbps: float | None, scale: int) -> float | None:
    return None if gbps is None else round(gbps * scale, 6)


def _members_row(
    collective: MeasuredCollective, group: GroupRecord | None, world: int
) -> dict[str, Any]:
    """The ranks that took part where these are not all, and what they have unlike."""
    row: dict[str, Any] = {}
    if len(collective.ranks) < world:
        row["members"] = list(collective.ranks)
    if group is not None and group.mesh is not None:
        row["mesh"] = group.mesh
    if collective.rank_sizes_bytes is not None:
        row["rank_sizes_bytes"] = list(collective.rank_sizes_bytes)
    return row


def _copied_row(copies: CopiesOf | None) -> dict[str, Any]:
    """The messages that were copies of memory, where some were."""
    return {} if copies is None else {"copies": copies.copies, "copied_bytes": copies.size_bytes}


def _program_row(collective: MeasuredCollective) -> dict[str, Any]:
    if collective.algorithm is None:
        return {}
    row: dict[str, Any] = {
        "algorithm": collective.algorithm,
        "chunks": len(collective.schedule.chunks),
    }
    return row | {"fell_back": True} if collective.fell_back else row


def predictors_of(run: Run) -> dict[str, RunPredictor]:
    """The spec's predictors, each told where the run took place."""
    setting = setting_of(run)
    found = {}
    for name in run.spec.predict:
        try:
            predictor: Predictor | CollectiveError = load_predictor(name)
        except CollectiveError as error:
            predictor = error
        found[name] = RunPredictor(setting, predictor)
    return found


def predictions_of(
    run: Run, collectives: Sequence[MeasuredCollective], predictors: Mapping[str, RunPredictor]
) -> list[dict[str, dict[str, Any]]]:
    """For each collective of a run, predictor name -> its entry in result.json: with all others in
    flight, those of other jobs included."""
    scale, alignments = run.environment.scale, alignments_of(run)
    found: list[dict[str, dict[str, Any]]] = [{} for _ in collectives]
    for name, predictor in predictors.items():
        answers = predictor.together(collectives, scale, alignments)
        for entry, collective, answer in zip(found, collectives, answers, strict=True):
            if isinstance(answer, CollectiveError):
                entry[name] = unanswered(answer)
                continue
            entry[name] = {
                "duration_ns": answer.duration_ns,
                "error": error_of(answer.duration_ns, collective.duration_ns // scale),
                "alone_ns": answer.alone_ns,
                "conditioned": [POSTING_TIMES, PORTS],
            }
    return found


def _add_predictions(
    iterations: Sequence[dict[str, Any]],
    predicted: Mapping[str, Sequence[PredictedIteration] | CollectiveError],
) -> None:
    """Put each predictor's iteration beside the measured ones."""
    for iteration in iterations:
        iteration["predicted"] = {}
        for name, answers in predicted.items():
            if isinstance(answers, CollectiveError):
                iteration["predicted"][name] = unanswered(answers)
                continue
            if iteration["index"] >= len(answers):
                iteration["predicted"][name] = unanswered("it has no such iteration")
                continue
            whole = answers[iteration["index"]]
            iteration["predicted"][name] = {
                "duration_ns": whole.duration_ns,
                "error": error_of(whole.duration_ns, iteration["duration_ns"]),
                "exposed_comm_ns": whole.exposed_comm_ns,
                "conditioned": [PORTS],
            }


def unanswered(why: object) -> dict[str, Any]:
    """A predictor's entry where it has no answer."""
    return {"duration_ns": None, "error": None, "reason": str(why)}


def error_of(predicted_ns: int, measured_ns: int) -> float | None:
    """predicted / measured - 1; None where nothing was measured."""
    return round(predicted_ns / measured_ns - 1, 6) if measured_ns else None


def _iterations(
    run: Run, collectives: Sequence[MeasuredCollective], scale: int
) -> list[dict[str, Any]]:
    """Per iteration: its duration, and the compute and exposed (blocked) time of the rank that has
    most of it; None for the latter where ranks may have waited for what nobody saw. An iteration
    lasts from its first rank's start to its last one's end; where workloads log none (the
    collectives benchmark aligns in between), its collectives' sum."""
    found = []
    unseen = unseen_iterations(run)
    for index in iterations_of(run, collectives):
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
        exposed_ns = max(sum(exposed_by_phase(log, index).values()) for log in run.ranks)
        if not spans:
            # A rank goes on after a collective has ended, by what waking it up takes.
            exposed_ns = min(exposed_ns, duration_ns)
        found.append(
            {
                "index": index,
                "duration_ns": duration_ns // scale,
                "compute_ns": max(computes) // scale,
                "exposed_comm_ns": None if index in unseen else exposed_ns // scale,
            }
        )
    return found


def _summary(name: str, rows: Sequence[dict[str, Any]]) -> dict[str, float | int | None]:
    errors = [row["predicted"][name]["error"] for row in rows]
    return error_summary(error for error in errors if error is not None and error > -1)


def error_summary(errors: Iterable[float]) -> dict[str, float | int | None]:
    """A summary of relative errors above -1: `mean` of their sizes, and the `largest` with its
    sign; then what `ratio_summary` says."""
    found = sorted(errors, key=lambda error: abs(error))
    mean = sum(abs(error) for error in found) / len(found) if found else None
    return {
        "mean": None if mean is None else round(mean, 6),
        "largest": round(found[-1], 6) if found else None,
        **ratio_summary(found),
    }


def ratio_summary(errors: Iterable[float]) -> dict[str, float | int | None]:
    """A summary of predicted/measured, half and double being as wrong as each other:
    geomean = exp(mean(|ln(predicted/measured)|)) - 1; worst = the same of the worst one."""
    logs = [abs(math.log1p(error)) for error in errors]
    if not logs:
        return {"geomean": None, "worst": None, "count": 0}
    return {
        "geomean": round(math.expm1(sum(logs) / len(logs)), 6),
        "worst": round(math.expm1(max(logs)), 6),
        "count": len(logs),
    }
