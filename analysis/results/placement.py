"""The placement that was searched for a run, beside that of ranks in order."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from analysis.results.verdict import judge_run
from analysis.runs.run import Run, load_run
from topologies.units import format_time

KEY = "placement"
SEARCH = "placement.json"
"""The placements that were tried before the run, a file of its directory."""
IN_ORDER = "in-order"
"""Below the run directory, the run of the same spec with `placement: linear`; none where that was
chosen."""

Iterations = Callable[[Run], Sequence[Mapping[str, Any]]]
"""The rows of a run's iterations."""


def placement_section(
    run: Run, own: Sequence[Mapping[str, Any]], iterations: Iterations
) -> dict[str, Any] | None:
    """The section of a run whose placement was searched, and whose iterations are its `own`; None
    of others. Raises RunError for a damaged run in order."""
    file = run.directory / SEARCH
    if not file.exists():
        return None
    search = json.loads(file.read_text())
    tried, chosen = search["tried"], search["tried"][search["chosen"]]
    measured_ns = _mean_ns(own)
    beside = run.directory / IN_ORDER
    linear: dict[str, Any] = {"predicted_ns": tried[0]["predicted_ns"]}
    if chosen is tried[0]:
        linear |= {"measured_ns": measured_ns, "invalid_reasons": []}
    elif (beside / "environment.json").exists():
        in_order = load_run(beside)
        linear |= {
            "measured_ns": _mean_ns(iterations(in_order)),
            "invalid_reasons": judge_run(in_order, shared=False).verdict.reasons,
        }
    else:
        linear |= {"measured_ns": None, "invalid_reasons": ["it has not run"]}
    return {
        "predictor": search["predictor"],
        "chosen": chosen["name"],
        "hosts": chosen["hosts"],
        "predicted_ns": chosen["predicted_ns"],
        "measured_ns": measured_ns,
        "linear": linear,
        "predicted_gain": _gain(linear["predicted_ns"], chosen["predicted_ns"]),
        "gain": None if linear["invalid_reasons"] else _gain(linear["measured_ns"], measured_ns),
        "tried": [
            {key: each[key] for key in ("name", "busiest_link_ns", "predicted_ns")}
            for each in tried
        ],
    }


def placement_in_words(section: Mapping[str, Any]) -> str:
    """The section as a sentence, without its full stop."""
    predictor, linear = section["predictor"], section["linear"]
    if section["chosen"] == "linear":
        return (
            f"{predictor} expects no other of {len(section['tried'])} placements to be better than "
            "linear"
        )
    if section["gain"] is None:
        said = f"not comparable with linear: {'; '.join(linear['invalid_reasons'])}"
    else:
        said = (
            f"{format_time(section['measured_ns'])} an iteration, "
            f"{format_time(linear['measured_ns'])} by linear: {section['gain']:.3f} times as fast"
        )
    return (
        f"{section['chosen']}, of {len(section['tried'])} tried: {said} ({predictor} expected "
        f"{section['predicted_gain']:.3f}: {format_time(section['predicted_ns'])}, "
        f"{format_time(linear['predicted_ns'])})"
    )


def _mean_ns(iterations: Sequence[Mapping[str, Any]]) -> int:
    return round(fmean(each["duration_ns"] for each in iterations)) if iterations else 0


def _gain(before_ns: int, now_ns: int) -> float | None:
    return round(before_ns / now_ns, 6) if now_ns else None
