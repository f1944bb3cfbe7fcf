"""Predictions of all collectives of a run, those in flight together included."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace

from analysis.predict.engines.joint_programs import GroupedCall
from analysis.predict.interface import Predictor, PredictorError, Setting, model_of
from analysis.predict.link_load import LinkLoad, LoadOfCalls, LoadsLinks
from analysis.predict.overlap import InFlight, overlapped_durations_ns
from analysis.predict.together import (
    FollowsRuns,
    PredictsTogether,
    as_posted,
    clusters,
    known_over_ns,
)
from analysis.runs.collectives import MeasuredCollective
from collectives.call import CollectiveCall, CollectiveError


def call_of(collective: MeasuredCollective) -> CollectiveCall:
    """The call that a predictor is asked about. Raises PredictorError."""
    for record in collective.by_rank.values():
        if record.unpredicted is not None:
            raise PredictorError(record.unpredicted)
    if collective.uneven:
        raise PredictorError("its ranks send each other unequal parts, which the log does not tell")
    return CollectiveCall(
        collective.kind,
        collective.size_bytes,
        collective.ranks,
        collective.element_bytes,
        collective.root,
        collective.degree,
        collective.peer,
        collective.shift,
        collective.schedule,
        collective.id,
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """Nanoseconds with what else is in flight, and on an idle fabric; `model` names the one that
    answered, for predictors that choose one by the collective."""

    duration_ns: int
    alone_ns: int
    model: str | None = None


def awaited_after_ns(collective: MeasuredCollective) -> int:
    """How long after its start the last rank came to wait for a collective that ends where it is
    awaited; 0 where each rank's end is its own."""
    awaited = [
        record.end_ns - record.waited_ns for record in collective.by_rank.values() if record.awaited
    ]
    return max(0, max(awaited) - collective.start_ns) if awaited else 0


def _knows_exchanges(predictor: object) -> bool:
    """Whether a predictor follows messages as they were seen, by no algorithm of Gloo's or ours."""
    return bool(getattr(predictor, "knows_exchanges", False))


def _knows_hosts(predictor: object) -> bool:
    """Whether a predictor knows of messages within a host, which no link carries."""
    return bool(getattr(predictor, "knows_hosts", False))


def _posted_apart(collective: MeasuredCollective) -> bool:
    """Whether its ranks posted it at times that differ: what those exchange that came first is over
    when the last one comes. Where messages were read off a wire, nobody knows when ranks came."""
    starts = [record.start_ns for record in collective.by_rank.values()]
    return not collective.schedule.observed and max(starts) > min(starts)


def _beside_other_jobs(collectives: Sequence[MeasuredCollective]) -> Iterable[int]:
    """Places of those that were in flight together with some of another job."""
    for cluster in clusters(collectives):
        if len({collectives[place].job for place in cluster}) > 1:
            yield from cluster


class RunPredictor:
    """A predictor asked about a run's collectives: once for each distinct call, then overlapped."""

    def __init__(self, setting: Setting, predictor: Predictor | CollectiveError) -> None:
        self._setting = setting
        self._predictor = predictor
        self._asked: dict[CollectiveCall, int | CollectiveError] = {}
        self._models: dict[CollectiveCall, str | None] = {}
        self._loads: dict[CollectiveCall, LinkLoad] = {}
        self._load_of = LoadOfCalls(setting, predictor)

    @property
    def source(self) -> Predictor | CollectiveError:
        """The predictor that answers, or why there are none."""
        return self._predictor

    def alone(self, collective: MeasuredCollective) -> int | CollectiveError:
        """Nanoseconds on an idle fabric, or why there is no answer."""
        if isinstance(self._predictor, CollectiveError):
            return self._predictor
        try:
            call = call_of(collective)
            if call not in self._asked:
                self._asked[call] = self._ask(self._predictor, call)
        except CollectiveError as error:
            return error
        return self._asked[call]

    def of_call(self, call: CollectiveCall) -> float:
        """Nanoseconds of a call on an idle fabric. Raises CollectiveError."""
        if isinstance(self._predictor, CollectiveError):
            raise self._predictor
        if call not in self._asked:
            self._asked[call] = self._ask(self._predictor, call)
        answer = self._asked[call]
        if isinstance(answer, CollectiveError):
            raise answer
        return answer

    def _ask(self, predictor: Predictor, call: CollectiveCall) -> int | CollectiveError:
        if self._share_a_host(call) and not _knows_hosts(predictor):
            return PredictorError("ranks of it share a host; what these exchange is not predicted")
        if call.schedule.observed and not _knows_exchanges(predictor):
            return PredictorError(
                "its messages are not announced as Gloo's are, and this predictor knows no others"
            )
        try:
            return round(predictor.predict(self._setting, call))
        except CollectiveError as error:
            return error

    def _share_a_host(self, call: CollectiveCall) -> bool:
        hosts = [self._setting.hosts[rank] for rank in call.ranks]
        return len(set(hosts)) < len(hosts)

    def together(
        self, collectives: Sequence[MeasuredCollective], scale: int = 1
    ) -> list[Answer | CollectiveError]:
        """The answer for each, with the others in flight, at the times when they were posted.

        Those that the predictor follows message by message are; others are priced by how long they
        load the links.
        """
        found: list[Answer | CollectiveError] = []
        for collective in collectives:
            alone = self.alone(collective)
            found.append(
                alone
                if isinstance(alone, CollectiveError)
                else Answer(alone, alone, self._model(collective))
            )
        if not isinstance(self._predictor, LoadsLinks | FollowsRuns):
            for place in _beside_other_jobs(collectives):
                found[place] = PredictorError(
                    "another job's collectives are in flight beside it, and this predictor does "
                    "not know which links they share"
                )
        followed: set[int] = set()
        # What nobody knows the messages of is left out of what is followed.
        known = [place for place, answer in enumerate(found) if isinstance(answer, Answer)]
        for numbers in self._followed_at_once([collectives[place] for place in known]):
            cluster = [known[number] for number in numbers]
            for place, one in zip(
                cluster, self._followed([collectives[i] for i in cluster], scale), strict=False
            ):
                followed.add(place)
                answer = found[place]
                if isinstance(answer, Answer):
                    found[place] = replace(answer, duration_ns=round(one[0]), model=one[1])
        self._add_up(collectives, found, followed, scale)
        return [
            answer
            if isinstance(answer, CollectiveError)
            else replace(
                answer,
                duration_ns=max(answer.duration_ns, awaited_after_ns(collective) // scale),
            )
            for collective, answer in zip(collectives, found, strict=True)
        ]

    def _add_up(
        self,
        collectives: Sequence[MeasuredCollective],
        found: list[Answer | CollectiveError],
        followed: Set[int],
        scale: int,
    ) -> None:
        """Price those that were not followed by how long they load the links."""
        places, posted = [], []
        over = known_over_ns(collectives)
        for place, (one, answer) in enumerate(zip(collectives, found, strict=True)):
            if isinstance(answer, Answer) and place not in followed:
                load = self._load(one, answer.alone_ns)
                takes_worker = one.schedule.queue(one.shape.kind) is not None
                start_ns, alone_ns = one.start_ns // scale, float(answer.alone_ns)
                places.append(place)
                known_ns = over[place]
                over_ns = None if known_ns is None else known_ns // scale
                posted.append(InFlight(one.group, start_ns, alone_ns, load, takes_worker, over_ns))
        try:
            durations = overlapped_durations_ns(posted)
        except PredictorError as error:
            for place in places:
                found[place] = error
            return
        for place, duration_ns in zip(places, durations, strict=True):
            answer = found[place]
            assert isinstance(answer, Answer)
            found[place] = replace(answer, duration_ns=round(duration_ns))

    def _followed_at_once(self, collectives: Sequence[MeasuredCollective]) -> Iterable[list[int]]:
        """Places of what is followed together: the whole run where connections remember."""
        if isinstance(self._predictor, FollowsRuns) and collectives:
            return [list(range(len(collectives)))]
        return (
            cluster
            for cluster in clusters(collectives)
            if len(cluster) > 1 or _posted_apart(collectives[cluster[0]])
        )

    def _followed(
        self, cluster: Sequence[MeasuredCollective], scale: int
    ) -> list[tuple[float, str | None]]:
        """Duration and model of each of a cluster that is followed message by message; nothing for
        others, and where there are too many messages."""
        predictor = self._predictor
        if not isinstance(predictor, PredictsTogether):
            return []
        try:
            calls = [GroupedCall(call_of(one), one.group) for one in cluster]
            unknown = any(self._share_a_host(each.call) for each in calls)
            if unknown and not _knows_hosts(predictor):
                return []
            seen = any(each.call.schedule.observed for each in calls)
            if seen and not _knows_exchanges(predictor):
                return []
            silent = all(each.call.schedule.sends_nothing(each.call.shape) for each in calls)
            if silent or not predictor.follows(self._setting, calls):
                return []
            joint = as_posted(cluster, calls, scale, self._setting.seed)
            model = predictor.run_together(self._setting, joint)
            return [(duration, model) for duration in joint.durations_ns()]
        except CollectiveError:
            return []

    def _model(self, collective: MeasuredCollective) -> str | None:
        call = call_of(collective)
        if call not in self._models:
            assert not isinstance(self._predictor, CollectiveError)
            self._models[call] = model_of(self._predictor, self._setting, call)
        return self._models[call]

    def _load(self, collective: MeasuredCollective, alone_ns: int) -> LinkLoad:
        call = call_of(collective)
        if call not in self._loads:
            self._loads[call] = self._load_of.of(call, alone_ns)
        return self._loads[call]
