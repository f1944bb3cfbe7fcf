"""The times that a spec's collectives will take, without running them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from analysis.calibration.calibration import read_calibration
from analysis.predict.interface import Predictor, Setting, load_predictor, model_of
from analysis.predict.iteration import PredictedIteration, predict_iteration
from analysis.predict.setting import setting_of_spec
from analysis.predict.together import FollowsRuns
from analysis.predict.whole_run import PredictedRun, predict_run
from collectives.call import CollectiveCall, CollectiveError
from collectives.schedule.gloo import GLOO
from groundwire.pipeline import SpecLike, resolve
from groundwire.shared_forecast import mean_iteration
from topologies.spec.spec import Spec
from workloads.models.planned import PlannedCall, planned_calls


@dataclass(frozen=True, slots=True)
class ForecastAnswer:
    """A predictor's answer: nanoseconds, or why there are none. `model` names the model that gave
    it, for predictors that choose one by the collective. `start_ns` is when its last rank posts it,
    from the iteration's begin, by predictors that follow whole runs."""

    duration_ns: int | None
    reason: str | None = None
    model: str | None = None
    start_ns: int | None = None

    @property
    def end_ns(self) -> int | None:
        """When its last rank has completed it."""
        if self.start_ns is None or self.duration_ns is None:
            return None
        return self.start_ns + self.duration_ns

    def as_dict(self) -> dict[str, object]:
        """Plain data, without what is not there."""
        extra = {
            "reason": self.reason,
            "model": self.model,
            "start_ns": self.start_ns,
            "end_ns": self.end_ns,
        }
        return {"duration_ns": self.duration_ns} | {k: v for k, v in extra.items() if v is not None}


@dataclass(frozen=True, slots=True)
class ForecastCollective:
    """A collective of one iteration with every predictor's answer, by the predictor's name."""

    name: str
    call: CollectiveCall
    predicted: Mapping[str, ForecastAnswer]


@dataclass(frozen=True, slots=True)
class Forecast:
    """The collectives of one iteration of a spec, in order of posting.

    Each is predicted alone on the fabric, from the spec and nothing else. `ignores` says of each
    predictor what its model leaves out.
    """

    spec: Spec
    collectives: tuple[ForecastCollective, ...]
    iterations: Mapping[str, PredictedIteration | str]
    """By predictor: the whole iteration with its overlaps, or why it is not predicted."""
    ignores: Mapping[str, str]

    @property
    def predictors(self) -> tuple[str, ...]:
        return tuple(self.ignores)

    def one_after_another_ns(self, predictor: str) -> int | None:
        """The collectives' sum; None when one of them has no answer."""
        known = [c.predicted[predictor].duration_ns for c in self.collectives]
        present = [duration for duration in known if duration is not None]
        return sum(present) if len(present) == len(known) else None

    def refusals(self) -> tuple[str, ...]:
        """Why there is no answer, each reason once."""
        return tuple(
            dict.fromkeys(
                f"{name}: {answer.reason}"
                for collective in self.collectives
                for name, answer in collective.predicted.items()
                if answer.reason is not None
            )
        )


def predict(
    spec: SpecLike,
    overrides: Mapping[str, object] | None = None,
    *,
    predictors: Sequence[str] | None = None,
    calibration: str | Path | None = None,
    setting: Setting | None = None,
) -> Forecast:
    """Predict every collective of one iteration of a spec, each alone on the fabric, and the
    iteration as a whole.

    `predictors` are names (default: the spec's); `calibration` is a file of `groundwire calibrate`.
    ECMP choices depend on a run's ports, so here they are drawn from the spec's seed, unless
    `setting` knows them (`groundwire.connected`). Raises SpecError, PredictorError,
    CalibrationError.
    """
    resolved = resolve(spec, overrides)
    names = tuple(predictors or resolved.predict)
    known = None if calibration is None else read_calibration(Path(calibration))
    loaded: dict[str, Predictor] = {
        name: load_predictor(name) if known is None else known.load(name) for name in names
    }
    setting = setting or setting_of_spec(resolved)
    priced = {name: _Priced(one, setting) for name, one in loaded.items()}
    whole = {
        name: _whole(resolved, setting, one)
        for name, one in loaded.items()
        if isinstance(one, FollowsRuns)
    }
    collectives = tuple(
        ForecastCollective(
            planned.name,
            planned.call,
            {
                name: _answer_of_run(whole[name], planned)
                if name in whole
                else _answer(one, setting, planned.call)
                for name, one in priced.items()
            },
        )
        for planned in planned_calls(resolved)
    )
    iterations = {
        name: _mean_of_run(whole[name]) if name in whole else _iteration(resolved, setting, one)
        for name, one in priced.items()
    }
    ignores = {name: one.ignores for name, one in loaded.items()}
    return Forecast(resolved, collectives, iterations, ignores)


def predict_whole(spec: Spec, predictor: str) -> PredictedIteration:
    """One iteration of a spec as a whole, by a predictor of this name; for workloads, too, whose
    collectives are not predicted one by one.

    Collectives in flight together share their links by their times alone. Followed message by
    message, as `predict` does where a predictor can, 1,024 ranks take 10 GB; sizes that are to be
    compared need one way for all. Raises PredictorError, CollectiveError.

    Of several jobs it is the mean of all iterations of all of them, beside each other.
    """
    if spec.jobs:
        return mean_iteration(spec, predictor)
    setting, one = setting_of_spec(spec), load_predictor(predictor)
    return predict_iteration(
        spec, setting, lambda call: one.predict(setting, call), one, follow=False
    )


@dataclass
class _Priced:
    """A predictor's answers, each call's worked out once: many layers have collectives alike."""

    predictor: Predictor
    setting: Setting
    _known: dict[tuple[CollectiveCall, str, int], float | CollectiveError] = field(
        default_factory=dict
    )

    def __call__(self, call: CollectiveCall) -> float:
        """Nanoseconds. Raises CollectiveError."""
        # Plans that are equal are one object (`collectives.settings`).
        key = replace(call, schedule=GLOO), call.name, id(call.schedule)
        if key not in self._known:
            try:
                self._known[key] = self.predictor.predict(self.setting, call)
            except CollectiveError as error:
                self._known[key] = error
        found = self._known[key]
        if isinstance(found, CollectiveError):
            raise found
        return found


def _whole(spec: Spec, setting: Setting, predictor: FollowsRuns) -> PredictedRun | str:
    try:
        return predict_run(spec, setting, predictor)
    except CollectiveError as error:
        return str(error)


def _answer_of_run(whole: PredictedRun | str, planned: PlannedCall) -> ForecastAnswer:
    """The mean over the run's iterations: connections carry over from one to the next."""
    if isinstance(whole, str):
        return ForecastAnswer(None, whole)
    keys = [
        (f"i{iteration}.{planned.name}", planned.call.ranks)
        for iteration in range(len(whole.iterations))
    ]
    takes = sum(whole.collectives[key] for key in keys) / len(keys)
    starts = sum(whole.starts_ns[key] for key in keys) / len(keys)
    return ForecastAnswer(round(takes), start_ns=round(starts))


def _mean_of_run(whole: PredictedRun | str) -> PredictedIteration | str:
    if isinstance(whole, str):
        return whole
    count = len(whole.iterations)
    return PredictedIteration(
        round(sum(one.duration_ns for one in whole.iterations) / count),
        round(sum(one.compute_ns for one in whole.iterations) / count),
        round(sum(one.exposed_comm_ns for one in whole.iterations) / count),
    )


def _iteration(spec: Spec, setting: Setting, priced: _Priced) -> PredictedIteration | str:
    try:
        return predict_iteration(spec, setting, priced, priced.predictor)
    except CollectiveError as error:
        return str(error)


def _answer(priced: _Priced, setting: Setting, call: CollectiveCall) -> ForecastAnswer:
    predictor = priced.predictor
    try:
        duration_ns = round(priced(call))
    except CollectiveError as error:
        return ForecastAnswer(None, str(error))
    return ForecastAnswer(duration_ns, model=model_of(predictor, setting, call))
