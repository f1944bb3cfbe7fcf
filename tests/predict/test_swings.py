"""By how much collectives swing that are followed beside leaps, and how far off they may be."""

from __future__ import annotations

import math

import pytest

from analysis.predict.engines.packet.swings import leapt_calls, swings_ns
from analysis.predict.scenario import GroupedCall, Timeline
from collectives.call import CollectiveCall


def _timeline(kind: str, durations_ns: list[float]) -> Timeline:
    """Calls of two ranks, one each microsecond."""
    call = CollectiveCall(kind, 4096, (0, 1))
    begun = [1000.0 * number for number in range(len(durations_ns))]
    return Timeline(
        [GroupedCall(call, "")] * len(durations_ns),
        [dict.fromkeys((0, 1), at) for at in begun],
        [
            dict.fromkeys((0, 1), at + duration)
            for at, duration in zip(begun, durations_ns, strict=True)
        ],
    )


def test_those_that_were_followed_since_the_first_leap_tell_the_swing() -> None:
    """Differences of 20 and 40 ns are 30 in the mean, of which a deviation is 30 / 1.128."""
    found = swings_ns(_timeline("all_reduce", [900, 100, 100, 120, 80]), {1, 2}, {1})
    assert found == [0, 0, *[pytest.approx(30 * math.sqrt(math.pi) / 2)] * 3]


@pytest.mark.parametrize(
    ("kind", "leapt", "why"),
    [
        ("all_reduce", set[int](), "nothing was leapt over, so that all is exact"),
        ("send_recv", {0}, "messages mostly wait"),
        ("all_reduce", {3}, "one alone says nothing"),
    ],
)
def test_nothing_is_said_of_swings(kind: str, leapt: set[int], why: str) -> None:
    assert not any(swings_ns(_timeline(kind, [100, 140, 90, 130, 100]), leapt, leapt)), why


def test_a_call_is_leapt_over_whole_where_its_leaps_went_over_all_its_messages() -> None:
    owners = [0, 0, 0, 1, 1, 2]
    assert leapt_calls(owners, [(0, 1), (0, 2), (3, 1)]) == ({0, 1}, {0})


def test_leaps_add_up_and_swings_do_by_their_squares() -> None:
    one = _timeline("all_reduce", [100, 100])
    assert one.error_ns([0, 1]) is None
    other = Timeline(
        one.calls, one.posted_ns, one.completed_ns, errors_ns=[10, 5], swings_ns=[30, 40]
    )
    assert other.error_ns([0, 1]) == 15 + 3 * 50
    assert other.error_ns([1]) == 5 + 3 * 40
