"""Predictions of all collectives of a run, those in flight together included."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from analysis.predict.added_up import Adapted
from analysis.predict.engines.wire import HEADER_BYTES
from analysis.predict.interface import Predictor, PredictorError, Setting
from analysis.predict.scenario import (
    Act,
    Due,
    GroupedCall,
    PostCall,
    Scenario,
    Until,
    WaitForCall,
)
from analysis.runs.collectives import ALIGNMENT, MeasuredCollective
from analysis.runs.records import CollectiveRecord
from collectives.call import CollectiveCall, CollectiveError
from collectives.schedule.gloo import GREETING_BYTES
from topologies.routing.segments import outer_bytes

_SET_OUT_NS = 10_500_000_000
"""The virtual kernel's clock when ranks set out."""

_TIMERS_NS = 64_000_000
"""Linux rounds timers of up to four seconds to steps of its clock that are no longer than this."""


def call_of(collective: MeasuredCollective) -> CollectiveCall:
    """The call that a predictor is asked about. Raises PredictorError."""
    for record in collective.by_rank.values():
        if record.unpredicted is not None:
            raise PredictorError(record.unpredicted)
    if collective.unknown:
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
    """Nanoseconds with what else is in flight, and on an idle fabric."""

    duration_ns: int
    alone_ns: int


def awaited_after_ns(collective: MeasuredCollective) -> int:
    """How long after its start the last rank came to wait for a collective that ends where it is
    awaited, of the ranks whose ends are its own; 0 where each rank's end is its own."""
    awaited = [record.end_ns - record.waited_ns for record in collective.ends if record.awaited]
    return max(0, max(awaited) - collective.start_ns) if awaited else 0


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


def clusters(collectives: Sequence[MeasuredCollective]) -> Iterator[list[int]]:
    """Places of collectives that were in flight together, directly or through others."""
    first = [min(record.start_ns for record in c.by_rank.values()) for c in collectives]
    found: list[int] = []
    end = 0
    for place in sorted(range(len(collectives)), key=lambda i: first[i]):
        if found and first[place] >= end:
            yield found
            found = []
        found.append(place)
        end = max(end, collectives[place].end_ns)
    if found:
        yield found


def as_posted(setting: Setting, collectives: Sequence[MeasuredCollective], scale: int) -> Scenario:
    """Collectives that every rank posts when it did in a run, whose times are `scale` times too
    long. A rank that waited before it posted the next one waits here as well for the collectives
    that were over then: one that takes longer than in the run delays the next ones by as much, and
    they do not get behind it. Where ranks met at a time, they do here, too, unless they come too
    late for it. Raises PredictorError."""
    calls = [GroupedCall(call_of(one), one.group) for one in collectives]
    acts: dict[int, Sequence[Act]] = {}
    begin = min(record.start_ns for c in collectives for record in c.by_rank.values())
    posts = {
        rank: sorted(
            (c.by_rank[rank].start_ns, i) for i, c in enumerate(collectives) if rank in c.ranks
        )
        for rank in sorted({rank for c in collectives for rank in c.ranks})
    }
    by_mpi = all(c.schedule.observed for c in collectives)  # whose collectives block
    at_times = _met_at_times(collectives, posts)
    for rank, own in posts.items():
        mine: list[Act] = []
        left: list[tuple[int, int]] = []
        for start_ns, place in own:
            over = [each for each in left if by_mpi or each[0] <= start_ns]
            if by_mpi or any(_awaited(collectives[one].by_rank[rank]) for _, one in over):
                for end_ns, before in sorted(over):
                    due_ns = start_ns if place in at_times else end_ns
                    mine += [WaitForCall(before), Due((due_ns - begin) / scale)]
                left = [each for each in left if each not in over]
            start_ns += _behind_connecting_ns(setting, rank, start_ns)
            mine += [Until((start_ns - begin) / scale), PostCall(place)]
            left.append((collectives[place].by_rank[rank].end_ns, place))
        acts[rank] = mine
    return Scenario(setting, calls, acts, begin_ns=(begin - _SET_OUT_NS) % _TIMERS_NS)


def _behind_connecting_ns(setting: Setting, rank: int, start_ns: int) -> int:
    """How long what a rank posts waits in its host's port for what made the last connection there,
    where it posts as soon as it has its group. Each rank connects to all before it in turn
    (gloo/context.cc), so that those of the last rank's host are the last to do so: they acknowledge
    the other end's answer, and send their number. The others acknowledge a number that comes."""
    joined_ns = setting.joined_ns.get(rank)
    host = setting.hosts[rank]
    if joined_ns is None or len(set(setting.hosts)) < 2:
        return 0
    headers = HEADER_BYTES + outer_bytes(setting.fabric)
    taken_bytes = headers
    if host == setting.hosts[-1]:
        taken_bytes += headers + GREETING_BYTES
    rate_bps = setting.fabric.links_of[host][0].rate_bps
    return max(0, joined_ns + taken_bytes * 8_000_000_000 // rate_bps - start_ns)


def _met_at_times(
    collectives: Sequence[MeasuredCollective], posts: Mapping[int, Sequence[tuple[int, int]]]
) -> set[int]:
    """Places of collectives that ranks posted at a time that they had agreed on, rather than so
    long after what came before: they aligned before, or posted it closer together than what came
    before had ended for them.
    Collectives that were still in flight then do not count, as nobody had waited for them."""
    ended: dict[int, list[int]] = defaultdict(list)
    aligned = {i for i, each in enumerate(collectives) if each.phase == ALIGNMENT}
    found = set()
    for rank, own in posts.items():
        over: list[int] = []
        found |= {after for (_, before), (_, after) in pairwise(own) if before in aligned}
        for start_ns, place in own:
            before = [end_ns for end_ns in over if end_ns <= start_ns]
            if before:
                ended[place].append(max(before))
            over.append(collectives[place].by_rank[rank].end_ns)
    for place, ends_ns in ended.items():
        starts_ns = [record.start_ns for record in collectives[place].by_rank.values()]
        if 2 * (max(starts_ns) - min(starts_ns)) < max(ends_ns) - min(ends_ns):
            found.add(place)
    return found


def _awaited(record: CollectiveRecord) -> bool:
    """Whether a rank waited for it, as far as is known: of what was found in captures, none begins
    before another is over."""
    return bool(record.waited_ns) or record.sends is not None


class RunPredictor:
    """A predictor asked about a run's collectives: each alone, and with what else is in flight."""

    def __init__(self, setting: Setting, predictor: Predictor | CollectiveError) -> None:
        self.setting = setting
        self._found = predictor if isinstance(predictor, CollectiveError) else Adapted(predictor)

    @property
    def simulator(self) -> Adapted:
        """The simulator that answers. Raises CollectiveError where there is none."""
        if isinstance(self._found, CollectiveError):
            raise self._found
        return self._found

    def alone(self, collective: MeasuredCollective) -> Answer | CollectiveError:
        """The answer on an idle fabric, or why there is none."""
        try:
            duration_ns = round(self.simulator.added_up.alone(self.setting, call_of(collective)))
        except CollectiveError as error:
            return error
        return Answer(duration_ns, duration_ns)

    def together(
        self,
        collectives: Sequence[MeasuredCollective],
        scale: int = 1,
        alignments: Sequence[MeasuredCollective] = (),
    ) -> list[Answer | CollectiveError]:
        """The answer for each, with the others in flight, at the times when they were posted.
        Connections remember the run's `alignments` as well."""
        found = [self.alone(collective) for collective in collectives]
        if isinstance(self._found, CollectiveError):
            return found
        if not self._found.knows_links:
            for place in _beside_other_jobs(collectives):
                found[place] = PredictorError(
                    "another job's collectives are in flight beside it, and this predictor does "
                    "not know which links they share"
                )
        # A collective whose messages nobody knows is left out of what is followed.
        known = [place for place, answer in enumerate(found) if isinstance(answer, Answer)]
        before = alignments if self.simulator.remembers else ()
        for numbers in self._parts([collectives[place] for place in known]):
            cluster = [known[number] for number in numbers]
            followed = [*(collectives[place] for place in cluster), *before]
            answers = self._simulated(followed, scale)[: len(cluster)]
            for place, one in zip(cluster, answers, strict=True):
                answer = found[place]
                assert isinstance(answer, Answer)
                found[place] = (
                    one if isinstance(one, CollectiveError) else replace(answer, duration_ns=one)
                )
        return [
            answer
            if isinstance(answer, CollectiveError)
            else replace(
                answer,
                duration_ns=max(answer.duration_ns, awaited_after_ns(collective) // scale),
            )
            for collective, answer in zip(collectives, found, strict=True)
        ]

    def _parts(self, collectives: Sequence[MeasuredCollective]) -> Iterable[list[int]]:
        """Places of what is simulated together: the whole run where connections remember. One that
        all its ranks post at once, with nothing else in flight, takes what it takes alone."""
        if collectives and self.simulator.remembers:
            return [list(range(len(collectives)))]
        return (
            cluster
            for cluster in clusters(collectives)
            if len(cluster) > 1 or _posted_apart(collectives[cluster[0]])
        )

    def _simulated(
        self, cluster: Sequence[MeasuredCollective], scale: int
    ) -> Sequence[int | CollectiveError]:
        """The duration of each, or why there is none."""
        try:
            timeline = self.simulator.run(as_posted(self.setting, cluster, scale))
        except CollectiveError as error:
            return [error] * len(cluster)
        return list(map(round, timeline.durations_ns()))
