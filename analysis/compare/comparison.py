"""Every collective of a run against every predictor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from analysis.predict.interface import Predictor, load_predictor
from analysis.predict.models.external import IsToldWhatIsAsked
from analysis.predict.run_predictions import Answer, RunPredictor
from analysis.predict.setting import setting_of
from analysis.results.result import error_summary
from analysis.runs.collectives import MeasuredCollective, alignments_of, collectives_of
from analysis.runs.run import Run


@dataclass(frozen=True)
class Row:
    """One collective: predicted nanoseconds and error (predicted/measured - 1) by predictor.

    Predictions count what else was in flight.

    A predictor without an answer is in `refusals`, with its reason.
    """

    collective: MeasuredCollective
    measured_ns: int
    predicted_ns: dict[str, int] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)

    def error(self, predictor: str) -> float | None:
        """None where there is no prediction, or nothing was measured."""
        predicted_ns = self.predicted_ns.get(predictor)
        if predicted_ns is None or predicted_ns <= 0 or self.measured_ns <= 0:
            return None
        return predicted_ns / self.measured_ns - 1


@dataclass(frozen=True)
class CollectiveErrors:
    """Collectives of one kind and size: their count, mean measured time, and errors."""

    kind: str
    size_bytes: int
    ranks: int
    count: int
    measured_ns: float
    errors: dict[str, dict[str, float | int | None]]
    """By predictor: geomean, worst and count as result.json defines them."""
    bias: dict[str, float | None]
    """By predictor: the signed mean error; above 0 the predictor is too slow."""


@dataclass(frozen=True)
class Comparison:
    """A run's collectives against predictors."""

    run: Run
    predictors: tuple[str, ...]
    rows: tuple[Row, ...]

    def groups(self) -> tuple[CollectiveErrors, ...]:
        """By kind (and algorithm of programs), size and number of ranks."""
        members: dict[tuple[str, int, int], list[Row]] = defaultdict(list)
        for row in self.rows:
            c = row.collective
            members[c.label, c.size_bytes, len(c.ranks)].append(row)
        return tuple(self._group(*key, rows) for key, rows in sorted(members.items()))

    def _group(self, kind: str, size_bytes: int, ranks: int, rows: list[Row]) -> CollectiveErrors:
        errors = {name: self._errors(name, rows) for name in self.predictors}
        return CollectiveErrors(
            kind,
            size_bytes,
            ranks,
            len(rows),
            sum(row.measured_ns for row in rows) / len(rows),
            {name: error_summary(of_one) for name, of_one in errors.items()},
            {n: sum(of_one) / len(of_one) if of_one else None for n, of_one in errors.items()},
        )

    def summary(self) -> dict[str, dict[str, float | int | None]]:
        """By predictor, over all collectives."""
        return {name: error_summary(self._errors(name, self.rows)) for name in self.predictors}

    @staticmethod
    def _errors(name: str, rows: Sequence[Row]) -> list[float]:
        return [error for row in rows if (error := row.error(name)) is not None]


def compare(
    run: Run, predictors: Sequence[str], load: Callable[[str], Predictor] = load_predictor
) -> Comparison:
    """Predict every collective of a run. Raises PredictorError for an unknown predictor.

    `load` makes a predictor of a name: that of a calibration, or of other simulators' results.
    """
    setting, scale = setting_of(run), run.environment.scale
    collectives = collectives_of(run)
    rows = [Row(c, c.duration_ns // scale) for c in collectives]
    for name in predictors:
        predictor = load(name)
        if isinstance(predictor, IsToldWhatIsAsked):
            predictor.expect((c.kind, c.size_bytes) for c in collectives)
        answers = RunPredictor(setting, predictor).together(collectives, scale, alignments_of(run))
        for row, answer in zip(rows, answers, strict=True):
            if isinstance(answer, Answer):
                row.predicted_ns[name] = answer.duration_ns
            else:
                row.refusals[name] = str(answer)
    return Comparison(run, tuple(predictors), tuple(rows))
