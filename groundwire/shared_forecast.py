"""The times that jobs on one fabric will take, without running them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis.calibration.calibration import read_calibration
from analysis.predict.interface import Predictor, load_predictor
from analysis.predict.planned_run import (
    JobToPredict,
    PredictedIteration,
    PredictedJob,
    jobs_of,
    mean_of,
    predict_run,
)
from analysis.predict.setting import setting_of_spec
from collectives.call import CollectiveError
from topologies.spec.spec import Spec


@dataclass(frozen=True, slots=True)
class JobForecast:
    """A predictor's word on a job: nanoseconds from its start to its end beside the others, and
    with the others idle; or why there is none."""

    job: str
    predictor: str
    duration_ns: int | None = None
    alone_ns: int | None = None
    reason: str | None = None

    @property
    def slowdown(self) -> float | None:
        """How many times as long it takes beside the others."""
        if self.duration_ns is None or not self.alone_ns:
            return None
        return self.duration_ns / self.alone_ns

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"slowdown": self.slowdown}


def predict_shared(
    spec: Spec, *, predictors: Sequence[str] | None = None, calibration: Path | None = None
) -> tuple[JobForecast, ...]:
    """Predict the jobs of a spec of several. ECMP choices depend on a run's ports, so they are
    drawn from the spec's seed. Raises PredictorError, CalibrationError."""
    known = None if calibration is None else read_calibration(calibration)
    jobs = jobs_of(spec)
    found = []
    for name in predictors or spec.predict:
        predictor = load_predictor(name) if known is None else known.load(name)
        together = _asked(jobs, spec, predictor)
        if isinstance(together, CollectiveError):
            found += [JobForecast(job.name, name, reason=str(together)) for job in jobs]
            continue
        for job in jobs:
            alone = _asked([job], spec, predictor)
            by_itself = None if isinstance(alone, CollectiveError) else alone[job.name].duration_ns
            found.append(JobForecast(job.name, name, together[job.name].duration_ns, by_itself))
    return tuple(found)


def mean_iteration(spec: Spec, predictor: str) -> PredictedIteration:
    """The mean of all iterations of a spec's jobs. Raises PredictorError, CollectiveError."""
    predicted = predict_run(jobs_of(spec), setting_of_spec(spec), load_predictor(predictor))
    return mean_of([iteration for job in predicted.values() for iteration in job.iterations])


def _asked(
    jobs: Sequence[JobToPredict], spec: Spec, predictor: Predictor
) -> Mapping[str, PredictedJob] | CollectiveError:
    try:
        return predict_run(jobs, setting_of_spec(spec), predictor)
    except CollectiveError as error:
        return error
