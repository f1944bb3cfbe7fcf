"""Predictions of all-to-alls whose ranks send each other unequal parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.predict.interface import PredictorError, load_predictor
from analysis.predict.models.packet import Packet
from collectives.call import CollectiveCall
from collectives.schedule.uneven import UnevenAllToAll
from tests.predict.settings import make_setting

_RANKS, _PART = 4, 40_000


def _call(parts: list[list[int]]) -> CollectiveCall:
    largest = max(map(sum, parts))
    schedule = UnevenAllToAll(tuple(map(tuple, parts)))
    return CollectiveCall("all_to_all", largest, tuple(range(len(parts))), schedule=schedule)


@pytest.mark.parametrize("name", ["packet", "flow", "alpha-beta"])
@pytest.mark.parametrize("part", [0, 8, _PART])
def test_equal_parts_take_what_the_even_one_takes(name: str, part: int) -> None:
    setting, predictor = make_setting("leaf-spine"), load_predictor(name)
    uneven = _call([[part] * _RANKS] * _RANKS)
    even = CollectiveCall("all_to_all", part * _RANKS, tuple(range(_RANKS)))
    found, expected = (predictor.predict(setting, each) for each in (uneven, even))
    # alpha-beta has a closed form of the even one, which rounds no message up.
    assert found == pytest.approx(expected, rel=0.02 if name == "alpha-beta" else 0, abs=1e-6)


@pytest.mark.parametrize("name", ["packet", "flow"])
def test_the_port_that_takes_most_says_how_long(name: str) -> None:
    """Rank 0 is sent all that there is: three parts of 1 MB by its port of 100 Gb/s, with 2% of
    headers at an MTU of 9,000 at most; what it sends are preambles."""
    setting = make_setting("flat")
    call = _call([[0] * _RANKS, *([[1_000_000, 0, 0, 0]] * (_RANKS - 1))])
    line_ns = 3 * 1_000_000 * 8 / 100
    found = load_predictor(name).predict(setting, call)
    assert line_ns < found < 1.02 * line_ns + 20_000


def test_what_a_member_keeps_counts_for_nothing() -> None:
    parts = np.arange(1, 1 + _RANKS * _RANKS).reshape(_RANKS, _RANKS) * 1000
    kept = parts + np.diag([10**6] * _RANKS)
    setting = make_setting("flat")
    found = [Packet().predict(setting, _call(each.tolist())) for each in (parts, kept)]
    assert found[0] == found[1]
    call = _call(parts.tolist())
    sent = sum(int(post.size_bytes.sum()) for post in call.posts())
    assert sent == parts.sum() - np.trace(parts)
    assert call.schedule.count(call.shape) == _RANKS * (_RANKS - 1)


@pytest.mark.parametrize(
    ("name", "says"), [("textbook", "closed form"), ("astra-analytical", "ASTRA-sim")]
)
def test_closed_forms_of_the_size_refuse_it(name: str, says: str) -> None:
    call = replace(_call([[1, 2], [3, 4]]), size_bytes=7)
    with pytest.raises(PredictorError, match=f"{says}.*unequal parts|unequal parts.*{says}"):
        load_predictor(name).predict(make_setting("flat"), call)
