"""A calibration's tables as Markdown, for a document: errors against the bar, cells, misses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.calibration.breakdown import ALL, break_down
from analysis.calibration.calibration import Calibration, ErrorSummary, errors_of, summarise
from analysis.calibration.fit import LoadPredictor
from analysis.calibration.observations import CalibrationError, Observation, Split
from analysis.compare.decomposition import PARTS, decompose
from analysis.predict.interface import load_predictor
from analysis.runs.collectives import collectives_of
from analysis.runs.run import Run
from topologies.units import format_size

BEGIN = "<!-- begin: groundwire calibrate -->"
END = "<!-- end: groundwire calibrate -->"

UNCONTENDED = "flat"
"""The fabric of the suite on which messages share hosts' ports only."""

_MOST_MISSES = 12


@dataclass(frozen=True, slots=True)
class AcceptanceLimit:
    """The bar of held-out errors of a calibrated predictor; None: not judged."""

    predictor: str
    fabric: str
    geomean: float | None
    worst: float | None


ACCEPTANCE_LIMITS = (
    AcceptanceLimit("flow", ALL, 0.03, 0.08),
    AcceptanceLimit("alpha-beta", UNCONTENDED, 0.05, None),
)


def render(
    calibration: Calibration,
    split: Split,
    runs: Mapping[str, Run],
    load: LoadPredictor = load_predictor,
) -> str:
    """Markdown of the held-out errors. `runs` (by name) says what the misses are made of."""
    parts = [
        f"Fitted to {_count(split.train)}, judged on {_count(split.held_out)} "
        f"({calibration.rule}).",
        _acceptance(calibration, split, load),
    ]
    for name in calibration.predictors:
        parts.append(f"Held out, calibrated `{name}`, signed error (uncalibrated in brackets):")
        parts.append(_cells(calibration, name, split, load))
    for bar in ACCEPTANCE_LIMITS:
        if bar.worst is not None and bar.predictor in calibration.predictors:
            parts += _misses(calibration, bar.predictor, bar.worst, split, runs)
    parts.append("Fitted parameters, with 95% intervals:")
    parts.append(_parameters(calibration))
    return "\n\n".join(parts) + "\n"


def insert(document: Path, tables: str) -> None:
    """Put the tables between the marks of a document, or make a document of them.

    Raises CalibrationError when the file is there without the marks.
    """
    before, after = text_around_tables(document) if document.exists() else ("", "\n")
    document.write_text(f"{before}{BEGIN}\n{tables}{END}{after}", encoding="utf-8")


def text_around_tables(document: Path) -> tuple[str, str]:
    """The text before and after the marks. Raises CalibrationError when they are not there."""
    try:
        before, begin, rest = document.read_text(encoding="utf-8").partition(BEGIN)
    except UnicodeDecodeError as error:
        raise CalibrationError(f"{document}: not a text file: {error.reason}") from error
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise CalibrationError(f"{document}: no lines {BEGIN} and {END} to put the tables between")
    return before, after


def _acceptance(calibration: Calibration, split: Split, load: LoadPredictor) -> str:
    rows = []
    judged = {bar.predictor for bar in ACCEPTANCE_LIMITS}
    others = [
        AcceptanceLimit(name, ALL, None, None)
        for name in calibration.predictors
        if name not in judged
    ]
    for bar in (*ACCEPTANCE_LIMITS, *others):
        if bar.predictor not in calibration.predictors:
            continue
        where = [o for o in split.held_out if bar.fabric in (ALL, o.fabric)]
        if not where:
            continue
        ideal_one = load(bar.predictor, None)
        fitted_one = calibration.load(bar.predictor, load)
        before, after = summarise(ideal_one, where), summarise(fitted_one, where)
        limits = [
            f"{limit:.0%} {name}"
            for name, limit in (("geomean", bar.geomean), ("worst", bar.worst))
            if limit is not None
        ]
        of = f"`{bar.predictor}`, {'everything' if bar.fabric == ALL else bar.fabric}"
        verdicts = [
            f"{name} {'met' if value <= limit else '**missed**'}"
            for name, value, limit in (
                ("geomean", after.geomean, bar.geomean),
                ("worst", after.worst, bar.worst),
            )
            if value is not None and limit is not None
        ]
        cells = [f"{of} ({after.count})", ", ".join(limits), _pair(before), _pair(after)]
        rows.append([*cells, ", ".join(verdicts)])
        if bar.fabric == ALL:
            for kind in sorted({o.call.kind for o in where}):
                of_kind = [o for o in where if o.call.kind == kind]
                ideal, calibrated = (summarise(one, of_kind) for one in (ideal_one, fitted_one))
                if calibrated.count:
                    of = f"- {kind} ({calibrated.count})"
                    rows.append([of, "", _pair(ideal), _pair(calibrated), ""])
    headings = ["held out", "bar", "uncalibrated geomean / worst", "calibrated geomean / worst", ""]
    return _table(headings, rows)


def _cells(calibration: Calibration, name: str, split: Split, load: LoadPredictor) -> str:
    after = break_down(calibration.load(name, load), split)
    before = break_down(load(name, None), split)
    ideal = {(row.fabric, row.kind): row.errors for row in before.rows}
    rows = []
    for row in after.rows:
        if ALL in (row.fabric, row.kind):
            continue
        cells = [
            _cell(row.errors.get(size), ideal[row.fabric, row.kind].get(size))
            for size in after.sizes
        ]
        rows.append([row.fabric, row.kind, *cells])
    return _table(["fabric", "kind", *map(format_size, after.sizes)], rows)


def _cell(fitted: float | None, ideal: float | None) -> str:
    if fitted is None or ideal is None:
        return ""
    text = f"{fitted * 100:+.1f} ({ideal * 100:+.1f})"
    return f"**{text}**" if abs(fitted) > 0.08 else text


def _misses(
    calibration: Calibration, name: str, worst: float, split: Split, runs: Mapping[str, Run]
) -> list[str]:
    """The parts of the collectives that are further off than the bar."""
    found = errors_of(calibration.load(name), split.held_out)
    far = [(max(1 + error, 1 / (1 + error)) - 1, o, error) for o, error in found]
    missed = sorted((entry for entry in far if entry[0] > worst), key=lambda entry: -entry[0])
    if not missed:
        return [f"No held-out collective is further than {worst:.0%} from calibrated `{name}`."]
    rows: dict[tuple[str, str, str], list[str]] = {}
    for _, observation, error in missed:
        call = observation.call
        key = (observation.fabric, call.kind, format_size(call.size_bytes))
        if key not in rows and len(rows) < _MOST_MISSES:
            rows[key] = [*key, f"{error:+.1%}", *_shares(runs[observation.run], call.name)]
    return [
        f"Missed: {len(missed)} held-out collectives are further than {worst:.0%} from calibrated "
        f"`{name}`. The parts of the worst of a kind and size, as shares of the measured time "
        "(uncalibrated; other below zero means that the run was faster than fair sharing):",
        _table(["fabric", "kind", "size", "error", *(n for n, _ in PARTS)], list(rows.values())),
    ]


def _shares(run: Run, id: str) -> list[str]:
    """The parts of a run's collective, as shares of what was measured."""
    (part,) = decompose(run, [c for c in collectives_of(run) if c.id == id])
    values = [getattr(part, key) for _, key in PARTS]
    return ["-" if ns is None else f"{ns / part.measured_ns:+.1%}" for ns in values]


def _parameters(calibration: Calibration) -> str:
    rows = []
    for name, record in calibration.predictors.items():
        for parameter, fitted in record.parameters.items():
            interval = f"{fitted.low:.4g} .. {fitted.high:.4g}"
            note = f"kept: {fitted.fixed}" if fitted.fixed else interval
            rows.append([f"`{name}`", parameter, f"{fitted.value:.4g}", note])
    return _table(["predictor", "parameter", "value", "interval"], rows)


def _pair(summary: ErrorSummary) -> str:
    if summary.geomean is None or summary.worst is None:
        return "-"
    return f"{summary.geomean:.1%} / {summary.worst:.1%}"


def _count(observations: Sequence[Observation]) -> str:
    return f"{len(observations)} collectives of {len({o.run for o in observations})} runs"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
