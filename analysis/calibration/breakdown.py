"""Held-out errors of a predictor by fabric, kind and size."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from analysis.calibration.calibration import ErrorSummary, errors_of
from analysis.calibration.observations import Split
from analysis.predict.interface import Predictor
from analysis.results.run_result import ratio_summary


@dataclass(frozen=True)
class BreakdownRow:
    """`errors` has the signed error by size (the geometric mean over iterations)."""

    fabric: str
    kind: str
    errors: dict[int, float]
    summary: ErrorSummary


@dataclass(frozen=True)
class Breakdown:
    """All held-out sizes and a row per fabric and kind, then one per fabric and one for all."""

    sizes: tuple[int, ...]
    rows: tuple[BreakdownRow, ...]


ALL = "all"


def break_down(predictor: Predictor, split: Split) -> Breakdown:
    """Errors of `predictor` on the held-out collectives of `split`."""
    found = errors_of(predictor, split.held_out)
    groups: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    for observation, error in found:
        entry = (observation.call.size_bytes, error)
        groups[observation.fabric, observation.call.kind].append(entry)
        groups[observation.fabric, ALL].append(entry)
        groups[ALL, ALL].append(entry)
    rows = tuple(
        BreakdownRow(fabric, kind, _by_size(entries), _summary(entries))
        for (fabric, kind), entries in sorted(groups.items(), key=lambda g: _order(*g[0]))
    )
    return Breakdown(tuple(sorted({o.call.size_bytes for o, _ in found})), rows)


def _order(fabric: str, kind: str) -> tuple[bool, str, bool, str]:
    return fabric == ALL, fabric, kind == ALL, kind


def _by_size(entries: list[tuple[int, float]]) -> dict[int, float]:
    sizes: dict[int, list[float]] = defaultdict(list)
    for size, error in entries:
        sizes[size].append(float(np.log1p(error)))
    return {size: float(np.expm1(np.mean(logs))) for size, logs in sizes.items()}


def _summary(entries: list[tuple[int, float]]) -> ErrorSummary:
    return ErrorSummary.model_validate(ratio_summary(error for _, error in entries))
