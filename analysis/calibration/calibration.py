"""A calibration: predictors fitted to some collectives, judged on others, kept in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from analysis.calibration.fit import Fitted, LoadPredictor, duration_of, fit_predictor
from analysis.calibration.observations import CalibrationError, Observation, Split
from analysis.predict.interface import Predictor, load_predictor
from analysis.results.run_result import ratio_summary
from collectives.call import CollectiveError
from topologies.spec.document import read_json
from topologies.spec.errors import SpecError


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ErrorSummary(_Record):
    """`geomean` and `worst` as `ratio_summary` has them; None when nothing was predicted."""

    geomean: float | None
    worst: float | None
    count: int


class PredictorRecord(_Record):
    """One predictor's parameters and errors, before and after, where it was fitted and not."""

    parameters: dict[str, Fitted]
    train_uncalibrated: ErrorSummary
    train: ErrorSummary
    held_out_uncalibrated: ErrorSummary
    held_out: ErrorSummary

    @property
    def values(self) -> dict[str, float]:
        """The arguments of `load_predictor`."""
        return {name: parameter.value for name, parameter in self.parameters.items()}


class Calibration(_Record):
    """The file that `groundwire calibrate` writes and `groundwire predict --calibration` takes."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    runs: tuple[str, ...]
    rule: str
    predictors: dict[str, PredictorRecord]

    def load(self, name: str, load: LoadPredictor = load_predictor) -> Predictor:
        """The calibrated predictor; the uncalibrated one when it is not in here."""
        record = self.predictors.get(name)
        return load(name, None if record is None else record.values)

    def of(self, name: str) -> dict[str, float]:
        """A predictor's parameters. Raises CalibrationError when it was not calibrated."""
        if name not in self.predictors:
            raise CalibrationError(
                f"the calibration has no {name}, only {', '.join(self.predictors)}; "
                f"fit it with `groundwire calibrate --predictor {name}`"
            )
        return self.predictors[name].values

    def write(self, path: Path) -> None:
        path.write_text(self.model_dump_json(indent=1, by_alias=True) + "\n")


def calibrate(
    split: Split, predictors: Sequence[str], load: LoadPredictor = load_predictor
) -> Calibration:
    """Fit each predictor to the training collectives and judge it on the held-out ones.

    Raises CalibrationError when a predictor has nothing to fit, PredictorError when unknown.
    """
    runs = sorted({o.run for o in (*split.train, *split.held_out)})
    return Calibration(
        runs=tuple(runs),
        rule=split.rule,
        predictors={name: _record(name, split, load) for name in predictors},
    )


def _record(name: str, split: Split, load: LoadPredictor) -> PredictorRecord:
    parameters = fit_predictor(name, split.train, load)
    ideal = load(name, None)
    fitted = load(name, {key: p.value for key, p in parameters.items()})
    return PredictorRecord(
        parameters=parameters,
        train_uncalibrated=summarise(ideal, split.train),
        train=summarise(fitted, split.train),
        held_out_uncalibrated=summarise(ideal, split.held_out),
        held_out=summarise(fitted, split.held_out),
    )


def errors_of(
    predictor: Predictor, observations: Sequence[Observation]
) -> list[tuple[Observation, float]]:
    """predicted/measured - 1 of each observation that the predictor has an answer for."""
    predict = duration_of(predictor)
    asked: dict[tuple[int, object], float | None] = {}
    found = []
    for observation in observations:
        key = (id(observation.setting), observation.call)
        if key not in asked:
            try:
                asked[key] = predict(observation)
            except CollectiveError:
                asked[key] = None
        predicted = asked[key]
        if predicted is not None and predicted > 0:
            found.append((observation, predicted / observation.measured_ns - 1))
    return found


def summarise(predictor: Predictor, observations: Sequence[Observation]) -> ErrorSummary:
    summary = ratio_summary(error for _, error in errors_of(predictor, observations))
    return ErrorSummary.model_validate(summary)


def read_calibration(path: Path) -> Calibration:
    """Raises CalibrationError naming the file, the key and what is wrong with it."""
    try:
        content = read_json(path.read_bytes(), str(path))
        return Calibration.model_validate(content)
    except OSError as error:
        raise CalibrationError(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise CalibrationError(f"{path}: {where}: {first['msg']}") from None
    except SpecError as error:
        raise CalibrationError(f"{path}: not JSON: {error.problems[0]}") from None
