"""Predictors that follow collectives in flight together, and what they are asked."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from analysis.predict.engines.acts import Act, Due, PostCall, Until, WaitForCall
from analysis.predict.engines.joint_programs import GroupedCall, JointPrograms
from analysis.predict.interface import Setting
from analysis.runs.collectives import MeasuredCollective
from analysis.runs.records import CollectiveRecord


@runtime_checkable
class PredictsTogether(Protocol):
    """A predictor that runs what all ranks do, message by message."""

    def follows(self, setting: Setting, calls: Sequence[GroupedCall]) -> bool:
        """Whether this predictor runs them, rather than have what it says of each added up."""
        ...

    def run_together(self, setting: Setting, joint: JointPrograms) -> str | None:
        """Run it; the name of the model that did, for predictors that have several. Raises
        PredictorError."""
        ...


@runtime_checkable
class FollowsRuns(Protocol):
    """A predictor whose connections remember what they have carried."""

    def follow_run(self, setting: Setting, joint: JointPrograms) -> None:
        """Run everything. Raises PredictorError."""
        ...


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


def known_over_ns(collectives: Sequence[MeasuredCollective]) -> list[int | None]:
    """The time, for each collective, when its group's next one was posted that found it over; None
    where there is no such. Posting times say so much: ranks that wait for one before they post the
    next post that when the first is over."""
    starts: dict[tuple[str, str], list[int]] = defaultdict(list)
    for one in collectives:
        starts[one.job, one.group].append(one.start_ns)
    for own in starts.values():
        own.sort()
    found: list[int | None] = []
    for one in collectives:
        own = starts[one.job, one.group]
        place = bisect_left(own, one.end_ns)
        found.append(own[place] if place < len(own) else None)
    return found


def as_posted(
    collectives: Sequence[MeasuredCollective],
    calls: Sequence[GroupedCall],
    scale: int,
    seed: int,
) -> JointPrograms:
    """Collectives that every rank posts when it did in a run, whose times are `scale` times too
    long. Where a rank waited before it posted the next one, it waits here as well for what was over
    then: what takes longer than in the run has the next ones posted by as much later, and not get
    behind it."""
    acts: dict[int, list[Act]] = {}
    begin = min(record.start_ns for c in collectives for record in c.by_rank.values())
    posts = {
        rank: sorted(
            (c.by_rank[rank].start_ns, i) for i, c in enumerate(collectives) if rank in c.ranks
        )
        for rank in sorted({rank for c in collectives for rank in c.ranks})
    }
    by_mpi = all(c.schedule.observed for c in collectives)  # whose collectives block
    for rank, own in posts.items():
        acts[rank] = []
        left: list[tuple[int, int]] = []
        for start_ns, place in own:
            over = [each for each in left if by_mpi or each[0] <= start_ns]
            if by_mpi or any(_awaited(collectives[one].by_rank[rank]) for _, one in over):
                for end_ns, before in sorted(over):
                    acts[rank] += [WaitForCall(before), Due((end_ns - begin) / scale)]
                left = [each for each in left if each not in over]
            acts[rank] += [Until((start_ns - begin) / scale), PostCall(place)]
            left.append((collectives[place].by_rank[rank].end_ns, place))
    return JointPrograms(calls, acts, seed)


def _awaited(record: CollectiveRecord) -> bool:
    """Whether a rank waited for it, as far as is known: of what was found in captures, none begins
    before another is over."""
    return bool(record.waited_ns) or record.sends is not None
