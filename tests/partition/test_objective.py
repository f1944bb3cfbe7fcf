"""The objective of a split layer against brute force, and Munkres' algorithm on it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.models.partition.assignment import assigned, total_cost
from workloads.models.partition.network import Ints
from workloads.models.partition.objective import (
    EVERYWHERE,
    Bools,
    LayerCosts,
    crossings,
    kept,
    layer_cost,
    membership,
)


@st.composite
def layers(
    draw: st.DrawFn, by_weight: bool, units: int | None = None, workers: int | None = None
) -> tuple[LayerCosts, Ints]:
    """A tiny layer's costs, and the workers of its units."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    workers = workers or draw(st.integers(2, 3))
    neurons = draw(st.integers(1, 4))
    units = units or draw(st.integers(1, 4))
    energy = random.random((neurons, units)) * (random.random((neurons, units)) < 0.8)
    costs = LayerCosts(
        workers,
        energy,
        draw(st.sampled_from([0.0, 0.05, 0.3])),
        random.random(units) * draw(st.sampled_from([0.0, 0.3, 2.0])),
        by_weight,
    )
    everywhere = draw(st.booleans())
    sources = random.integers(EVERYWHERE if everywhere else 0, workers, units)
    return costs, sources


def assignments(costs: LayerCosts) -> Iterator[Ints]:
    """All that no worker's capacity forbids."""
    for chosen in product(range(costs.workers), repeat=costs.neurons):
        places = np.array(chosen)
        if np.bincount(places).max() <= costs.capacity:
            yield places


def cost_of(costs: LayerCosts, sources: Ints, places: Ints, mask: Bools) -> float:
    """The objective as its definition has it, of an assignment and of weights that stay."""
    total: float = 0.0
    crossed: set[tuple[int, int]] = set()
    for neuron, worker in enumerate(places.tolist()):
        for unit, source in enumerate(sources.tolist()):
            if not mask[neuron, unit]:
                total += float(costs.energy[neuron, unit])
                continue
            total += costs.sparsity
            if source in (worker, EVERYWHERE):
                continue
            if costs.by_weight:
                total += float(costs.crossing[unit]) / costs.capacity
            else:
                crossed.add((unit, worker))
    return total + sum(float(costs.crossing[unit]) for unit, _ in crossed)


def cheapest(costs: LayerCosts, sources: Ints, places: Ints) -> float:
    """Over all choices of weights that stay."""
    cells = costs.energy.size
    return min(
        cost_of(costs, sources, places, np.array(bits).reshape(costs.energy.shape))
        for bits in product((False, True), repeat=cells)
    )


def small(found: tuple[LayerCosts, Ints]) -> bool:
    return found[0].energy.size <= 9


@given(st.booleans().flatmap(layers).filter(small))
def test_pruning_is_the_best_of_all_prunings(found: tuple[LayerCosts, Ints]) -> None:
    costs, sources = found
    for places in list(assignments(costs))[:3]:
        least = cheapest(costs, sources, places)
        assert layer_cost(costs, sources, places) == pytest.approx(least, abs=1e-12)
        mask = kept(costs, sources, places)
        assert cost_of(costs, sources, places, mask) == pytest.approx(least, abs=1e-12)


@given(layers(by_weight=True))
def test_munkres_finds_the_best_of_all_assignments(found: tuple[LayerCosts, Ints]) -> None:
    costs, sources = found
    (places,) = assigned([costs], sources, sweeps=1)
    assert np.bincount(places).max() <= costs.capacity
    least = min(layer_cost(costs, sources, each) for each in assignments(costs))
    assert layer_cost(costs, sources, places) == pytest.approx(least, abs=1e-12)


@given(layers(by_weight=False))
def test_no_exchange_of_what_crosses_betters_activations(found: tuple[LayerCosts, Ints]) -> None:
    """With units that cross for several neurons Munkres is exact for what crosses as it is."""
    costs, sources = found
    (places,) = assigned([costs], sources, sweeps=1)
    there = (membership(sources, costs.workers) > 0) | crossings(costs, sources, places)

    def given_these(each: Ints) -> float:
        return float(np.where(there[each], costs.at_home, costs.energy).sum())

    least = min(given_these(each) for each in assignments(costs))
    assert given_these(places) <= least + 1e-12


@given(layers(by_weight=True), st.floats(1.0, 5.0))
def test_what_crosses_falls_as_it_costs_more(found: tuple[LayerCosts, Ints], factor: float) -> None:
    """A property of a global optimum: an exchange argument over the two optima."""
    costs, sources = found
    dearer = LayerCosts(
        costs.workers, costs.energy, costs.sparsity, costs.crossing * factor, costs.by_weight
    )
    crossing = []
    for each in (costs, dearer):
        (places,) = assigned([each], sources, sweeps=1)
        afar = membership(sources, each.workers)[places] == 0.0
        crossing.append((kept(each, sources, places) & afar) @ costs.crossing)
    assert crossing[1].sum() <= crossing[0].sum() + 1e-12


@given(st.data(), st.booleans())
def test_later_sweeps_never_raise_the_cost(data: st.DataObject, by_weight: bool) -> None:
    workers = data.draw(st.integers(2, 3))
    first, sources = data.draw(layers(by_weight, workers=workers))
    second, _ = data.draw(layers(by_weight, units=first.neurons, workers=workers))
    third, _ = data.draw(layers(by_weight, units=second.neurons, workers=workers))
    network = [first, second, third]
    reached = [
        total_cost(network, sources, assigned(network, sources, sweeps)) for sweeps in (1, 2, 3, 6)
    ]
    assert all(after <= before + 1e-12 for before, after in pairwise(reached))


@given(layers(by_weight=False))
def test_the_order_of_neurons_does_not_matter(found: tuple[LayerCosts, Ints]) -> None:
    costs, sources = found
    order = np.random.default_rng(costs.neurons).permutation(costs.neurons)
    other = LayerCosts(
        costs.workers, costs.energy[order], costs.sparsity, costs.crossing, costs.by_weight
    )
    for places in list(assignments(costs))[:5]:
        same = layer_cost(other, sources, places[order])
        assert same == pytest.approx(layer_cost(costs, sources, places), abs=1e-12)
