"""By how much collectives swing that are followed beside leaps, and how far off they may be."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from analysis.predict.engines.packet.swings import leapt_calls, swings_ns
from analysis.predict.scenario import GroupedCall, Timeline
from collectives.call import CollectiveCall


def _timeline(kind: str, durations_ns: list[float]) -> Timeline:
    """Calls of two ranks, one each microsecond."""
    call = CollectiveCall(kind, 4096, (0, 1))
    begun = [1000.0 * number for number in range(len(durations_ns))]
    ended = [at + duration for at, duration in zip(begun, durations_ns, strict=True)]
    posted, completed = ([dict.fromkeys((0, 1), at) for at in each] for each in (begun, ended))
    return Timeline([GroupedCall(call, "")] * len(begun), posted, completed, completed)


def test_those_that_were_followed_since_the_first_leap_tell_the_swing() -> None:
    """Differences of 20 and 40 ns are 30 in the mean, of which a deviation is 30 / 1.128."""
    found, add_up = swings_ns(_timeline("all_reduce", [900, 100, 100, 120, 80]), {1, 2}, {1})
    assert found == [pytest.approx(30 * math.sqrt(math.pi) / 2)] * 5
    assert add_up == {2, 3, 4}


def test_messages_swing_and_wait_for_what_adds_up() -> None:
    found, add_up = swings_ns(_timeline("send_recv", [100, 140, 90, 130, 100]), {0}, {0})
    assert all(found)
    assert not add_up


@pytest.mark.parametrize(
    ("leapt", "why"),
    [
        (set[int](), "nothing was leapt over, so that all is exact"),
        ({3}, "one alone says nothing"),
    ],
)
def test_nothing_is_said_of_swings(leapt: set[int], why: str) -> None:
    found, add_up = swings_ns(_timeline("all_reduce", [100, 140, 90, 130, 100]), leapt, leapt)
    assert not any(found), why
    assert not add_up


def test_a_call_is_leapt_over_whole_where_its_leaps_went_over_all_its_messages() -> None:
    owners = [0, 0, 0, 1, 1, 2]
    assert leapt_calls(owners, [(0, 1), (0, 2), (3, 1)]) == ({0, 1}, {0})


def test_leaps_add_up_and_swings_do_by_their_squares() -> None:
    one = _timeline("all_reduce", [100, 100, 100])
    assert one.error_ns(0) is None
    other = replace(one, errors_ns=[10, 5, 1], swings_ns=[30, 40, 70], add_up={0, 1})
    assert other.error_together_ns([0, 1, 2]) == 16 + 3 * 50
    assert [other.error_ns(number) for number in range(3)] == [100, 125, 211]
