"""Runs held against predictors, and where the gaps come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from analysis.calibration.calibration import read_calibration
from analysis.calibration.external import CorrectedResults, file_of_run
from analysis.compare.comparison import Comparison
from analysis.compare.comparison import compare as compare_run
from analysis.compare.decomposition import Decomposition, decompose
from analysis.predict.interface import Predictor, available_predictors, load_predictor
from analysis.runs.run import Run, load_run


@dataclass(frozen=True)
class ComparedRun:
    """A run beside its predictions, and what each collective's time is made of."""

    run: Run
    comparison: Comparison
    parts: tuple[Decomposition, ...]


def compare(
    runs: Run | str | Path | Sequence[Run | str | Path],
    *,
    predictors: Sequence[str] | None = None,
    external: Mapping[str, Mapping[str, str]] | None = None,
    calibration: str | Path | None = None,
) -> tuple[ComparedRun, ...]:
    """Hold every collective of runs against predictors.

    `predictors` are names (default: those of each run's spec). `external` adds other simulators'
    results: a name of your own -> `{"format": "csv", "path": "times.csv"}`. `calibration` is a file
    of `groundwire calibrate`. Raises RunError, SpecError, PredictorError, CalibrationError.
    """
    known = None if calibration is None else read_calibration(Path(calibration))
    sources = external or {}

    def load(name: str, run: Run) -> Predictor:
        if name in sources:
            file = file_of_run(Path(sources[name]["path"]), run.spec.name)
            results = load_predictor("external", {**sources[name], "path": file})
            if known is None or name not in known.predictors:
                return results
            return CorrectedResults(name, {None: results}, **known.of(name))
        return load_predictor(name) if known is None else known.load(name)

    given = [runs] if isinstance(runs, Run | str | Path) else runs
    compared = []
    for each in given:
        run = each if isinstance(each, Run) else load_run(each)
        names = list(predictors or [n for n in run.spec.predict if n in available_predictors()])
        names += [name for name in sources if name not in names]
        compared.append(
            ComparedRun(run, compare_run(run, names, partial(load, run=run)), tuple(decompose(run)))
        )
    return tuple(compared)
