"""LIBRA's message model, its networks, and the solver against closed forms."""

from __future__ import annotations

from collections.abc import Callable
from math import log, prod
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.design.bandwidth_program import GAP, Infeasible, best_product, least_cost, least_time
from analysis.design.bounds import Bound
from analysis.design.comparison import equal_split
from analysis.design.models.demand import Demand, Traffic, Window
from analysis.design.models.messages import bytes_by_dimension, split_degrees
from analysis.design.search import Found
from analysis.design.sensitivity import sensitivities
from collectives.algorithms import algorithm
from collectives.kinds import Kind
from tests.design.design_files import found_in, listed

SHARES = {
    (4, 4): (0.8, 0.2),
    (8, 16): (0.88189, 0.11811),
    (2, 4, 16): (0.50394, 0.37795, 0.11811),
    (16, 8, 32): (0.93773, 0.05470, 0.00757),
    (4, 8, 4, 32): (0.75018, 0.21880, 0.02344, 0.00757),
}
GAINS = {(4, 4): 1.60, (8, 16): 1.76, (2, 4, 16): 1.51, (16, 8, 32): 2.81, (4, 8, 4, 32): 3.00}
"""Closed form of one all-reduce whose total bandwidth is given: shares as its bytes."""

READY = Path(__file__).resolve().parents[2] / "topologies" / "designs"

_SIZES = st.lists(st.sampled_from((2, 3, 4, 8, 16)), min_size=2, max_size=4)
_BYTES = st.floats(1e3, 1e9)


def _total(dimensions: int, most: float) -> Bound:
    return Bound("total", ("total",), "", (1.0,) * dimensions, high=most)


@pytest.mark.parametrize("sizes", list(SHARES), ids=str)
def test_the_solver_gives_the_closed_form(sizes: tuple[int, ...]) -> None:
    found = found_in(listed(sizes))
    total = sum(found.best.gbytes_per_s)
    assert total == pytest.approx(500, rel=1e-6)
    for rate, share in zip(found.best.gbytes_per_s, SHARES[sizes], strict=True):
        assert rate / total == pytest.approx(share, rel=1e-3, abs=5e-6)
    equal = equal_split(found)
    assert equal is not None
    assert equal.gain == pytest.approx(GAINS[sizes], abs=0.005)


@given(_SIZES, _BYTES, st.floats(1, 1e4))
@settings(max_examples=30, deadline=None)
def test_one_collective_s_optimum_is_bytes_over_the_total(
    sizes: list[int], size_bytes: float, total: float
) -> None:
    sent = bytes_by_dimension(Kind.ALL_REDUCE, size_bytes, sizes)
    demand = Demand(0.0, (Traffic("one", sent),))
    best = least_time(demand, [_total(len(sizes), total)], len(sizes))
    assert best.time_ns == pytest.approx(sum(sent) / total, rel=1e-5)
    (one,) = best.multipliers
    assert one.per_unit == pytest.approx(-sum(sent) / total**2, rel=1e-3)


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_no_other_bandwidths_are_better(data: st.DataObject) -> None:
    dimensions = data.draw(st.integers(2, 3))
    many = st.lists(_BYTES, min_size=dimensions, max_size=dimensions)
    traffic = tuple(
        Traffic(f"t{i}", tuple(data.draw(many)), window=data.draw(st.sampled_from((None, 0, 1, 2))))
        for i in range(data.draw(st.integers(1, 3)))
    )
    ends = ("forward", "backward", "backward")
    windows = tuple(Window(data.draw(st.floats(0, 1e7)), end) for end in ends)
    demand = Demand(5e6, traffic, windows)
    best = least_time(demand, [_total(dimensions, 100.0)], dimensions)
    assert best.gap <= GAP, "also where all of the traffic hides"
    assert sum(best.gbytes_per_s) <= 100 * (1 + 1e-6)
    assert best.time_ns == pytest.approx(demand.time_ns(best.gbytes_per_s))
    shares = data.draw(st.lists(st.floats(0.01, 1), min_size=dimensions, max_size=dimensions))
    other = [100 * share / sum(shares) for share in shares]
    assert best.time_ns <= demand.time_ns(other) * (1 + 1e-6)


def test_multipliers_are_what_a_little_more_is_worth() -> None:
    demand = Demand(
        1e6,
        (Traffic("a", (4e8, 1e8, 0.0)), Traffic("b", (0.0, 2e8, 3e8)), Traffic("c", (1e8,) * 3)),
    )

    def time_with(total: float, first: float) -> tuple[float, list[float]]:
        bounds = [
            _total(3, total),
            Bound("first", ("first",), "", (1.0, 0.0, 0.0), high=first),
            Bound("order", ("order",), "", (0.0, 1.0, -1.0), low=0.0),
        ]
        best = least_time(demand, bounds, 3)
        per_unit = {one.bound.name: one.per_unit for one in best.multipliers if one.bound}
        return best.time_ns, [per_unit["total"], per_unit["first"]]

    here, multipliers = time_with(500, 150)
    for index, (total, first) in enumerate(((500.5, 150), (500, 150.5))):
        there, _ = time_with(total, first)
        assert (there - here) / 0.5 == pytest.approx(multipliers[index], rel=0.02)
        assert multipliers[index] < 0


_LIMITS = {
    "time": ("total_bandwidth", "  constraints: {total_bandwidth: @GB/s}", 500.0),
    "time, by cost": ("cost", "  constraints: {cost: @}\n  prices: {host: 2000}", 50_000.0),
    "time, by a sum": (
        "d1",
        "  constraints: {total_bandwidth: 500GB/s, linear: [{sum: [d1], at_most: @GB/s}]}",
        40.0,
    ),
    "cost": (
        "time",
        "  objective: cost\n  constraints: {total_bandwidth: 500GB/s, time: @us}",
        1000.0,
    ),
    "product": (
        "total_bandwidth",
        "  objective: time-x-cost\n  constraints: {total_bandwidth: @GB/s}\n"
        "  prices: {host: 100000}",
        500.0,
    ),
}


@pytest.mark.parametrize("name", list(_LIMITS))
def test_a_sensitivity_is_what_one_percent_more_does_to_the_objective(name: str) -> None:
    constraint, more, limit = _LIMITS[name]

    def found(factor: float) -> Found:
        return found_in(listed((4, 4), more.replace("@", f"{limit * factor:.10g}")))

    _as_when_searched_again(constraint, found)


def test_a_product_that_must_be_fast_enough_hangs_on_the_time() -> None:
    text = (READY / "libra-4d.yaml").read_text().replace("equals: 500", "at_most: 500")
    limit = "  constraints:\n    time: @us\n"

    def found(factor: float) -> Found:
        with_time = limit.replace("@", f"{24_000 * factor:.10g}")
        return found_in(text.replace("  constraints:\n", with_time))

    assert found(1.0).best.time_ns == pytest.approx(24e6, rel=1e-5)
    _as_when_searched_again("time", found)


def _as_when_searched_again(constraint: str, found: Callable[[float], Found]) -> None:
    (one,) = [s for s in sensitivities(found(1.0)) if s.constraint == constraint]
    below, above = found(0.99).best.objective, found(1.01).best.objective
    change = log(above / below) / log(1.01 / 0.99)
    assert one.elasticity == pytest.approx(change, rel=0.02)
    assert one.elasticity < 0


def test_the_least_cost_and_the_least_product() -> None:
    sent = bytes_by_dimension(Kind.ALL_REDUCE, 1e9, (4, 8, 32))
    prices = (4.0, 17.0, 57.4)
    demand = Demand(2e6, (Traffic("one", sent),))
    cheapest = least_cost(demand, [], prices, 12e6)
    assert cheapest.time_ns == pytest.approx(12e6, rel=1e-5)
    assert cheapest.gbytes_per_s == pytest.approx([amount / 1e7 for amount in sent], rel=1e-3)
    spent = sum(p * amount for p, amount in zip(prices, sent, strict=True))
    assert cheapest.objective == pytest.approx(spent / 1e7, rel=1e-4)
    # With a fixed cost F, time t0 + k/c of the cost c of bandwidth: the product (t0 + k/c)(F + c)
    # is least at c = sqrt(k F / t0).
    fixed = 4000.0
    best = best_product(demand, [_total(3, 1e5)], prices, fixed)
    cost = sum(p * rate for p, rate in zip(prices, best.gbytes_per_s, strict=True))
    assert cost == pytest.approx((spent * fixed / 2e6) ** 0.5, rel=5e-3)
    with pytest.raises(Infeasible):
        least_cost(demand, [_total(3, 10.0)], prices, 2.1e6)


@pytest.mark.parametrize("kind", [k for k in Kind if k.traits.ends_together and k != "barrier"])
@given(sizes=st.sampled_from(((2, 4), (4, 2), (2, 2, 2), (3, 2))))
@settings(max_examples=4, deadline=None)
def test_the_bytes_are_those_that_programs_send(kind: Kind, sizes: tuple[int, ...]) -> None:
    ranks = prod(sizes)
    program = algorithm("hierarchical", dimensions=sizes).program(kind, ranks)
    elements = ranks * ranks * 64
    sent = [0.0] * len(sizes)
    for message in program.messages():
        dimension = program.phases[message.phase].dimension
        assert dimension is not None
        sent[dimension] += program.elements_of(message.blocks, elements) / ranks
    assert sent == pytest.approx(bytes_by_dimension(kind, elements, sizes))


@given(st.sampled_from(((4, 8, 4, 32), (16, 8, 32), (8, 128))), st.integers(0, 10))
def test_degrees_take_dimensions_from_the_innermost(sizes: tuple[int, ...], bits: int) -> None:
    inner = 2**bits
    whole = prod(sizes)
    parts = split_degrees((inner, whole // inner), sizes)
    assert parts is not None
    assert [prod(part) for part in parts] == [inner, whole // inner]
    assert tuple(a * b for a, b in zip(*parts, strict=True)) == sizes


def test_libra_s_communicators() -> None:
    assert split_degrees((128, 32), (4, 8, 4, 32)) == ((4, 8, 4, 1), (1, 1, 1, 32))
    assert split_degrees((16, 256), (4, 8, 4, 32)) == ((4, 4, 1, 1), (1, 2, 4, 32))
    assert split_degrees((3, 4), (4, 3)) is None
