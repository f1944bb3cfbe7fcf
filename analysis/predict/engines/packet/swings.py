"""How much collectives swing that go the same way when they are alone, beside others."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence, Set
from itertools import pairwise
from statistics import mean

from analysis.predict.scenario import Timeline
from collectives.kinds import Kind

_LEAST = 3
"""Fewer collectives say nothing of how much they swing."""

_RANGE_PER_DEVIATION = 2 / math.sqrt(math.pi)
"""The mean difference of two draws of a normal distribution by its standard deviation: 1.128, d2 of
control charts for pairs (Shewhart 1931; Montgomery, Introduction to Statistical Quality Control,
appendix VI)."""


def swings_ns(
    timeline: Timeline, leapt: Set[int], whole: Set[int]
) -> tuple[list[float], frozenset[int]]:
    """The standard deviation of each call's duration, by those like it: calls of one kind, size,
    group and ranks, of which some were leapt over, so that they are known to take equally long when
    they are alone; and messages. Those that were followed since the first leap differ, one from the
    next, by what contention does; the mean of these differences tells the deviation. It is 0 where
    too few tell, or nothing was leapt over. Beside it are
    the calls whose swings add up to that of an iteration: those that were followed, without
    messages, which mostly wait for them.

    `leapt` has the calls that were leapt over at least in part, `whole` those without a rest.
    """
    found = [0.0] * len(timeline.calls)
    if not leapt:
        return found, frozenset()
    posted_ns = [max(posted.values(), default=math.inf) for posted in timeline.posted_ns]
    begun_ns = min(posted_ns[number] for number in leapt)
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for number, grouped in enumerate(timeline.calls):
        call = grouped.call
        alike[grouped.group, call.kind, call.size_bytes, call.ranks].append(number)
    durations_ns, add_up = timeline.measured_ns(), []
    for (_, kind, *_), numbers in alike.items():
        followed = [each for each in numbers if each not in whole and posted_ns[each] > begun_ns]
        is_message = kind == Kind.SEND_RECV
        if len(followed) < _LEAST or (leapt.isdisjoint(numbers) and not is_message):
            continue
        followed.sort(key=posted_ns.__getitem__)
        ranges = [abs(durations_ns[a] - durations_ns[b]) for a, b in pairwise(followed)]
        for number in numbers:
            found[number] = mean(ranges) / _RANGE_PER_DEVIATION
        add_up += [] if is_message else followed
    return found, frozenset(add_up)


def leapt_calls(
    owners: Sequence[int], leaps: Sequence[tuple[int, int]]
) -> tuple[set[int], set[int]]:
    """The calls that were leapt over in part or whole, and those that were whole. `owners` has the
    call of each message; of each leap there is a message, and how many it went over."""
    over: dict[int, int] = defaultdict(int)
    for message, messages in leaps:
        over[owners[message]] += messages
    left = dict.fromkeys(over, 0)
    for owner in owners:
        if owner in left:
            left[owner] += 1
    return set(over), {call for call, count in left.items() if over[call] >= count}
