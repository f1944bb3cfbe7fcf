"""The times that a spec's collectives, or its jobs, will take, without running them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from analysis.calibration.calibration import read_calibration
from analysis.predict.added_up import Adapted, AddedUp
from analysis.predict.flow_times import FlowTime
from analysis.predict.interface import Setting, load_predictor
from analysis.predict.models.packet import Packet
from analysis.predict.placement_search import placed
from analysis.predict.planned_run import (
    JobToPredict,
    PredictedIteration,
    PredictedJob,
    jobs_of,
    mean_of,
    planned_scenario,
    predict_run,
    predict_workload,
)
from analysis.predict.setting import setting_of_spec
from analysis.predict.simulator import Progress, Simulator
from collectives.call import CollectiveCall, CollectiveError
from groundwire.pipeline import SpecLike, resolve
from topologies.spec.spec import Spec
from workloads.models.planned import PlannedCall, planned_calls

DRAWS_OF_90_PERCENT = 19
"""As many draws as have the next one between their least and their largest in 18 of 20 cases."""


@dataclass(frozen=True, slots=True)
class ForecastAnswer:
    """A predictor's answer: nanoseconds, or why there are none. `start_ns` is when its
    last rank posts it, from the iteration's begin, by predictors that follow whole runs."""

    duration_ns: int | None
    reason: str | None = None
    start_ns: int | None = None
    interval_ns: tuple[int, int] | None = None
    """The least and the largest answer over draws of paths, where they were asked for."""
    error_ns: int | None = None
    """How far off it may be, by predictors that leap."""

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
            "start_ns": self.start_ns,
            "end_ns": self.end_ns,
            "interval_ns": self.interval_ns,
            "error_ns": self.error_ns,
        }
        return {"duration_ns": self.duration_ns} | {k: v for k, v in extra.items() if v is not None}


@dataclass(frozen=True, slots=True)
class ForecastCollective:
    """A collective of one iteration with every predictor's answer, by the predictor's name."""

    name: str
    call: CollectiveCall
    predicted: Mapping[str, ForecastAnswer]


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


@dataclass(frozen=True, slots=True, repr=False)
class Forecast:
    """The collectives of one iteration of a spec, in order of posting; of a spec of several jobs
    each of these, by every predictor.

    A collective is predicted alone on the fabric, from the spec and nothing else. `ignores` says of
    each predictor what its model leaves out.
    """

    spec: Spec
    collectives: tuple[ForecastCollective, ...]
    iterations: Mapping[str, PredictedIteration | str]
    """By predictor: the whole iteration with its overlaps, or why it is not predicted."""
    ignores: Mapping[str, str]
    jobs: tuple[JobForecast, ...] = ()
    iteration_intervals_ns: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By predictor: the least and the largest iteration over draws of paths, where they were
    asked for."""

    def __repr__(self) -> str:
        """A line: the name, how much is predicted, and the whole by each predictor."""
        if self.jobs:
            wholes = [(f"{j.job} by {j.predictor}", j.duration_ns) for j in self.jobs]
            what = f"{len({j.job for j in self.jobs})} jobs"
        else:
            found = self.iterations.items()
            wholes = [(n, None if isinstance(w, str) else w.duration_ns) for n, w in found]
            what = f"{len(self.collectives)} collectives, an iteration"
        times = (
            f"{name} {'no answer' if ns is None else f'{ns / 1000:,.2f} us'}" for name, ns in wholes
        )
        return f"<Forecast {self.spec.name}: {what}: {', '.join(times)}>"

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
    draws: int = 0,
    progress: Progress | None = None,
) -> Forecast:
    """Predict every collective of one iteration of a spec, each alone on the fabric, and the
    iteration as a whole; of a spec of several jobs how long each takes, beside the others and
    alone. With `placement: optimize` the ranks' hosts are searched first.

    `predictors` are names (default: the spec's); `calibration` is a file of `groundwire calibrate`.
    ECMP choices depend on a run's ports, so here they are drawn from the spec's seed, unless
    `setting` knows them (`groundwire.connected`). With `draws` they are drawn that many times more,
    and each answer has the interval from the least to the largest of these: another draw, such as
    a run's, lies in it in (draws - 1) of (draws + 1) cases (order statistics of exchangeable draws;
    Wilks 1941). `progress` is called some times a second by a predictor that takes long, with the
    time in the run and the share of its messages that have come. Raises SpecError, PredictorError,
    CalibrationError.
    """
    resolved = placed(resolve(spec, overrides))
    names = tuple(predictors or resolved.predict)
    known = None if calibration is None else read_calibration(Path(calibration))
    loaded = {name: load_predictor(name) if known is None else known.load(name) for name in names}
    for each in loaded.values():
        if isinstance(each, Simulator):
            each.progress = progress
    asked = {name: Adapted(each) for name, each in loaded.items()}
    setting = setting or setting_of_spec(resolved)
    found = _forecast(resolved, setting, asked)
    drawn = [
        _forecast(resolved, replace(setting, draw=draw), asked) for draw in range(1, draws + 1)
    ]
    return _with_intervals(found, drawn) if drawn else found


def flow_times(
    spec: SpecLike,
    overrides: Mapping[str, object] | None = None,
    *,
    setting: Setting | None = None,
    progress: Progress | None = None,
) -> list[FlowTime]:
    """When each message of a spec's collectives is sent and received, in all iterations, by
    `packet`, in the order in which they come; without those by which ranks agree when to begin.
    `setting` and `progress` are as in `predict`. Raises SpecError, PredictorError.
    """
    resolved = placed(resolve(spec, overrides))
    packet = Packet(keeps_flows=True)
    packet.progress = progress
    asked = setting or setting_of_spec(resolved)
    scenario, own = planned_scenario(jobs_of(resolved), asked)
    packet.run(scenario)
    return [flow for flow in packet.flows if flow.call in own]


def _with_intervals(found: Forecast, drawn: Sequence[Forecast]) -> Forecast:
    collectives = []
    for place, collective in enumerate(found.collectives):
        answers = {}
        for name, answer in collective.predicted.items():
            times = [one.collectives[place].predicted[name].duration_ns for one in drawn]
            answers[name] = replace(answer, interval_ns=_interval(times))
        collectives.append(replace(collective, predicted=answers))
    intervals = {}
    for name in found.iterations:
        wholes = [one.iterations[name] for one in drawn]
        interval = _interval([None if isinstance(w, str) else w.duration_ns for w in wholes])
        if interval is not None:
            intervals[name] = interval
    return replace(found, collectives=tuple(collectives), iteration_intervals_ns=intervals)


def _interval(times_ns: Sequence[int | None]) -> tuple[int, int] | None:
    known = [time for time in times_ns if time is not None]
    return (min(known), max(known)) if known and len(known) == len(times_ns) else None


def _forecast(resolved: Spec, setting: Setting, asked: Mapping[str, Adapted]) -> Forecast:
    ignores = {name: one.ignores for name, one in asked.items()}
    if resolved.jobs:
        jobs = (job for one in asked.values() for job in _job_forecasts(resolved, setting, one))
        return Forecast(resolved, (), {}, ignores, tuple(jobs))
    whole = {name: _whole(resolved, setting, one) for name, one in asked.items()}
    collectives = tuple(
        ForecastCollective(
            planned.name,
            planned.call,
            {
                name: _answer_of_run(whole[name], planned)
                if one.remembers
                else _answer(one, setting, planned.call)
                for name, one in asked.items()
            },
        )
        for planned in planned_calls(resolved)
    )
    iterations = {
        name: found if isinstance(found, str) else mean_of(found.iterations)
        for name, found in whole.items()
    }
    return Forecast(resolved, collectives, iterations, ignores)


def predict_whole(spec: Spec, predictor: str) -> PredictedIteration:
    """One iteration of a spec as a whole, by a predictor of this name; for workloads, too, whose
    collectives are not predicted one by one.

    Collectives in flight together share their links by their times alone. Followed message by
    message, as `predict` does where a predictor can, 1,024 ranks take 10 GB; sizes that are to be
    compared need one way for all. Raises PredictorError, CollectiveError.

    It is the mean of all iterations of all jobs, beside each other, where there are several.
    """
    spec = placed(spec)
    one = load_predictor(predictor)
    asked = one if spec.jobs else AddedUp(one)
    found = predict_run(jobs_of(spec), setting_of_spec(spec), asked)
    return mean_of([iteration for job in found.values() for iteration in job.iterations])


def _job_forecasts(spec: Spec, setting: Setting, asked: Adapted) -> Iterator[JobForecast]:
    """A predictor's word on each job of a spec."""

    def predicted(jobs: Sequence[JobToPredict]) -> Mapping[str, PredictedJob] | CollectiveError:
        try:
            return predict_run(jobs, setting, asked)
        except CollectiveError as error:
            return error

    jobs = jobs_of(spec)
    together = predicted(jobs)
    for job in jobs:
        if isinstance(together, CollectiveError):
            yield JobForecast(job.name, asked.name, reason=str(together))
            continue
        alone = predicted([job])
        by_itself = None if isinstance(alone, CollectiveError) else alone[job.name].duration_ns
        yield JobForecast(job.name, asked.name, together[job.name].duration_ns, by_itself)


def _whole(spec: Spec, setting: Setting, asked: Adapted) -> PredictedJob | str:
    try:
        return predict_workload(spec, setting, asked)
    except CollectiveError as error:
        return str(error)


def _answer_of_run(whole: PredictedJob | str, planned: PlannedCall) -> ForecastAnswer:
    """The mean over the run's iterations: connections carry over from one to the next."""
    if isinstance(whole, str):
        return ForecastAnswer(None, whole)
    found = [
        whole.collectives[iteration, planned.name, planned.call.ranks]
        for iteration in range(len(whole.iterations))
    ]
    takes = sum(one.duration_ns for one in found) / len(found)
    starts = sum(one.start_ns for one in found) / len(found)
    errors = [one.error_ns for one in found if one.error_ns is not None]
    error_ns = round(sum(errors) / len(found)) if errors else None
    return ForecastAnswer(round(takes), start_ns=round(starts), error_ns=error_ns)


def _answer(asked: Adapted, setting: Setting, call: CollectiveCall) -> ForecastAnswer:
    try:
        duration_ns = asked.added_up.alone(setting, call)
    except CollectiveError as error:
        return ForecastAnswer(None, str(error))
    return ForecastAnswer(round(duration_ns))
