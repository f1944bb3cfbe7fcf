"""Max-min fair rates against a linear programme, and what fairness means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from analysis.predict.engines.max_min import max_min_rates, pad_paths


@st.composite
def _networks(draw: st.DrawFn) -> tuple[np.ndarray, list[tuple[int, ...]]]:
    links = draw(st.integers(1, 6))
    capacity = draw(st.lists(st.floats(0.5, 20), min_size=links, max_size=links))
    path = st.lists(st.integers(0, links - 1), min_size=1, max_size=links, unique=True)
    flows = draw(st.lists(path.map(tuple), min_size=1, max_size=9))
    return np.array(capacity), flows


def _by_linear_programmes(capacity: np.ndarray, flows: list[tuple[int, ...]]) -> np.ndarray:
    """Raise the lowest rate as far as a linear programme can, fix what cannot rise, repeat."""
    count = len(flows)
    usage = np.zeros((len(capacity), count))
    for flow, path in enumerate(flows):
        usage[list(path), flow] = 1
    fixed: dict[int, float] = {}
    while len(fixed) < count:
        free = [f for f in range(count) if f not in fixed]
        lowest = _highest(usage, capacity, fixed, 0.0, count)
        stuck = [
            f
            for f in free
            if _highest(usage, capacity, fixed, lowest * (1 - 1e-7), f) <= lowest * (1 + 1e-4)
        ]
        assert stuck
        fixed |= dict.fromkeys(stuck, lowest)
    return np.array([fixed[f] for f in range(count)])


def _highest(
    usage: np.ndarray, capacity: np.ndarray, fixed: dict[int, float], floor: float, variable: int
) -> float:
    """The largest a flow's rate can be; of the variable after the last flow: the lowest free
    rate.
    """
    count = usage.shape[1]
    free = [f for f in range(count) if f not in fixed]
    lowest_is_lowest = np.zeros((len(free), count + 1))
    lowest_is_lowest[:, -1] = 1
    lowest_is_lowest[np.arange(len(free)), free] = -1
    rows = np.vstack([np.hstack([usage, np.zeros((len(capacity), 1))]), lowest_is_lowest])
    limits = np.concatenate([capacity * (1 + 1e-9), np.zeros(len(free))])
    bounds = [(fixed[f], fixed[f]) if f in fixed else (floor, None) for f in range(count)]
    found = linprog(-np.eye(count + 1)[variable], rows, limits, bounds=[*bounds, (0, None)])
    assert found.status == 0 and found.fun is not None
    return float(-found.fun)


@settings(max_examples=40, deadline=None)
@given(_networks())
def test_rates_are_those_of_linear_programmes(
    network: tuple[np.ndarray, list[tuple[int, ...]]],
) -> None:
    capacity, flows = network
    rates = max_min_rates(capacity, pad_paths(flows, len(capacity)))
    assert rates == pytest.approx(_by_linear_programmes(capacity, flows), rel=1e-3)


@given(_networks())
def test_no_link_is_over_full_and_every_flow_has_a_full_one_where_it_is_among_the_fastest(
    network: tuple[np.ndarray, list[tuple[int, ...]]],
) -> None:
    """This is the bottleneck criterion, which holds for max-min fair rates and for no others."""
    capacity, flows = network
    rates = max_min_rates(capacity, pad_paths(flows, len(capacity)))
    load = np.zeros(len(capacity))
    for path, rate in zip(flows, rates, strict=True):
        load[list(path)] += rate
    assert np.all(load <= capacity * (1 + 1e-9))
    for path, rate in zip(flows, rates, strict=True):
        assert any(
            load[link] >= capacity[link] * (1 - 1e-9)
            and all(r <= rate * (1 + 1e-9) for p, r in zip(flows, rates, strict=True) if link in p)
            for link in path
        )


def test_flows_without_links_are_not_limited() -> None:
    rates = max_min_rates(np.array([8.0]), pad_paths([(0,), (), (0,)], 1))
    assert rates.tolist() == [4.0, np.inf, 4.0]
