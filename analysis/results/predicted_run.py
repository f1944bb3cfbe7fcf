"""The predictions of a run: of its parts together, and of each with the others idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.predict.interface import PredictorError
from analysis.predict.planned_run import (
    JobToPredict,
    PredictedIteration,
    PredictedJob,
    jobs_of,
    predict_run,
)
from analysis.predict.run_predictions import RunPredictor
from analysis.results.run_result import (
    PORTS,
    Predictions,
    error_of,
    predictions_of,
    predictors_of,
    unanswered,
)
from analysis.runs.collectives import collectives_of
from analysis.runs.run import Run
from collectives.call import CollectiveError


class PredictedRun:
    """The spec's predictors, asked about a run. A part's name is empty where it is the only one."""

    def __init__(self, run: Run) -> None:
        merged, predictors = collectives_of(run), predictors_of(run)
        entries = predictions_of(run, merged, predictors)
        self._entries = {(c.group, c.id): e for c, e in zip(merged, entries, strict=True)}
        self._failed = [job.name for job in run.jobs if job.failed is not None]
        self._jobs = [
            JobToPredict(job.name, own.spec, job.first, job.start_ns) for job, own in run.finished
        ]
        if not run.jobs:
            self._jobs = jobs_of(run.spec)
        self.together = {name: self._all(predictor) for name, predictor in predictors.items()}
        self._alone = {name: self._each(predictor) for name, predictor in predictors.items()}

    def _all(self, predictor: RunPredictor) -> Mapping[str, PredictedJob] | CollectiveError:
        if self._failed:
            failed = self._failed[0]
            return PredictorError(f"job {failed} failed; until when it sent is not predicted")
        return _predict(self._jobs, predictor)

    def _each(self, predictor: RunPredictor) -> dict[str, PredictedJob | CollectiveError]:
        found: dict[str, PredictedJob | CollectiveError] = {}
        for job in self._jobs:
            if job.name:
                answer = _predict([job], predictor)
                found[job.name] = answer[job.name] if isinstance(answer, Mapping) else answer
        return found

    def of(self, part: str, own: Run) -> Predictions:
        """The predictions beside a part's figures."""
        place = f"{part}/" if part else ""
        collectives = [self._entries[place + c.group, c.id] for c in collectives_of(own)]
        iterations = {name: self._iterations(name, part) for name in self.together}
        return Predictions(collectives, iterations)

    def _iterations(
        self, predictor: str, part: str
    ) -> Sequence[PredictedIteration] | CollectiveError:
        answer = self.together[predictor]
        return answer if isinstance(answer, CollectiveError) else answer[part].iterations

    def entry(self, predictor: str, job: str, measured_ns: int) -> dict[str, Any]:
        """A predictor's word on how long a job took, beside the others and alone."""
        together, alone = self.together[predictor], self._alone[predictor].get(job)
        if isinstance(together, CollectiveError):
            return unanswered(together)
        duration_ns = together[job].duration_ns
        entry = {
            "duration_ns": duration_ns,
            "error": error_of(duration_ns, measured_ns),
            "conditioned": [PORTS],
        }
        if isinstance(alone, PredictedJob) and alone.duration_ns:
            entry["alone_ns"] = alone.duration_ns
            entry["slowdown"] = round(duration_ns / alone.duration_ns, 6)
        return entry


def _predict(
    jobs: Sequence[JobToPredict], predictor: RunPredictor
) -> Mapping[str, PredictedJob] | CollectiveError:
    try:
        return predict_run(jobs, predictor.setting, predictor.simulator)
    except CollectiveError as error:
        return error
