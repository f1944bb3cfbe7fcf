"""The analysis of variance, against what it must be whatever the numbers are."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.studies.cases import pareto_front
from analysis.studies.variance import Factor, analyse_variance

_LEVELS = ("low", "middle", "high")


def _grid(sizes: list[int], repetitions: int = 1) -> list[tuple[str, ...]]:
    axes = [_LEVELS[:size] for size in sizes]
    return [case for case in itertools.product(*axes) for _ in range(repetitions)]


def _factors(cases: list[tuple[str, ...]]) -> list[Factor]:
    return [
        Factor(f"f{index}", tuple(case[index] for case in cases)) for index in range(len(cases[0]))
    ]


@given(
    sizes=st.lists(st.integers(2, 3), min_size=1, max_size=4),
    seed=st.integers(0, 10**6),
    kept=st.floats(0.3, 1),
    scale=st.sampled_from([1e-3, 1.0, 1e9]),
)
@settings(deadline=None, max_examples=60)
def test_sums_of_squares_add_up_to_the_total(
    sizes: list[int], seed: int, kept: float, scale: float
) -> None:
    """Also where cases are missing, so that the design is not balanced."""
    drawn = random.Random(seed)
    cases = [case for case in _grid(sizes, 2) if drawn.random() <= kept] or _grid(sizes)
    response = [scale * (5 + drawn.random()) for _ in cases]
    found = analyse_variance(_factors(cases), response)
    mean = sum(response) / len(response)
    total = sum((value - mean) ** 2 for value in response)
    assert found.total == pytest.approx(total, rel=1e-6)
    parts = sum(term.sum_of_squares for term in found.terms) + found.rest
    assert parts == pytest.approx(found.total, rel=1e-6, abs=1e-12 * scale**2)
    freedom = sum(term.degrees_of_freedom for term in found.terms)
    assert freedom + found.rest_degrees_of_freedom == len(cases) - 1


@given(
    effects=st.lists(
        st.lists(st.integers(-1000, 1000), min_size=2, max_size=3), min_size=1, max_size=4
    ),
    repetitions=st.integers(1, 3),
)
@settings(deadline=None, max_examples=60)
def test_an_additive_response_has_its_effects_and_nothing_else(
    effects: list[list[int]], repetitions: int
) -> None:
    """The sum of squares of each factor is the number of cases times the mean square of its levels'
    effects."""
    cases = _grid([len(levels) for levels in effects], repetitions)
    response = [
        10_000.0 + sum(levels[_LEVELS.index(case[i])] for i, levels in enumerate(effects))
        for case in cases
    ]
    found = analyse_variance(_factors(cases), response)
    assert found.balanced
    tiny = 1e-9 * len(cases) * 1e8
    for index, levels in enumerate(effects):
        mean = sum(levels) / len(levels)
        expected = len(cases) * sum((level - mean) ** 2 for level in levels) / len(levels)
        term = found.main(f"f{index}")
        assert term.sum_of_squares == pytest.approx(expected, rel=1e-9, abs=tiny)
        assert term.degrees_of_freedom == len(levels) - 1
    for term in found.terms:
        if len(term.names) == 2:
            assert term.sum_of_squares == pytest.approx(0, abs=tiny)
    assert found.rest == pytest.approx(0, abs=tiny)


def test_a_response_that_only_two_factors_decide_together_is_their_interaction() -> None:
    cases = _grid([2, 2, 2])
    response = [1.0 if case[0] == case[1] else 0.0 for case in cases]
    found = analyse_variance(_factors(cases), response)
    assert found.by_share[0].names == ("f0", "f1")
    assert found.by_share[0].share == pytest.approx(1)


def test_a_three_way_effect_is_in_what_is_left() -> None:
    cases = _grid([2, 2, 2])
    response = [float(sum(level == "low" for level in case) % 2) for case in cases]
    found = analyse_variance(_factors(cases), response)
    assert found.rest_share == pytest.approx(1)


def test_factors_that_change_together_are_told_to_be_one() -> None:
    """The second of them has no degrees of freedom of its own, and the design is not balanced."""
    levels = ("a", "a", "b", "b")
    found = analyse_variance([Factor("x", levels), Factor("y", levels)], [1.0, 2.0, 3.0, 4.0])
    assert found.main("x").sum_of_squares == pytest.approx(4)
    assert found.main("y").degrees_of_freedom == 0
    assert found.main("y").aliased == 1
    assert not found.balanced


def test_a_quantity_is_a_line_through_its_values() -> None:
    """Time inversely proportional to a rate is no line; its logarithm over the rate's is."""
    rates = tuple(10.0**power for power in range(5))
    times = [math.log(1 / rate) for rate in rates]
    found = analyse_variance([Factor("rate", rates, logarithmic=True)], times)
    assert found.main("rate").share == pytest.approx(1)
    assert found.main("rate").degrees_of_freedom == 1
    straight = analyse_variance([Factor("rate", rates)], times)
    assert 0.3 < straight.main("rate").share < 0.9


def test_a_factor_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="x: 1 levels for 2 observations"):
        analyse_variance([Factor("x", ("a",))], [1.0, 2.0])


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30))
def test_the_front_is_what_nothing_beats(points: list[tuple[int, int]]) -> None:
    front = set(pareto_front([(float(x), float(y)) for x, y in points]))
    for position, (x, y) in enumerate(points):
        beaten = any(a <= x and b <= y and (a, b) != (x, y) for a, b in points)
        assert (position in front) == (not beaten)
