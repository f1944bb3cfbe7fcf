"""Neurons to workers at the least cost, layer by layer, by Munkres' algorithm.

Source: Munkres, Algorithms for the assignment and transportation problems, J. SIAM 5 (1957), as
scipy.optimize.linear_sum_assignment has it (Crouse 2016). A worker is as many columns of the matrix
as it takes neurons. That the assignments of a layer's neighbours are given makes each neuron's cost
its own, which Munkres needs; the objective is told in `objective.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workloads.models.partition.network import Floats, Ints
from workloads.models.partition.objective import (
    EVERYWHERE,
    LayerCosts,
    crossings,
    layer_cost,
    membership,
)

_MOST_ROUNDS = 50
"""Rounds of alternating between an assignment and what crosses; each one lowers the cost."""


def assigned(costs: Sequence[LayerCosts], inputs: Ints, sweeps: int) -> list[Ints]:
    """The worker of each neuron, by layer. `inputs` are the workers of the network's inputs.

    The first sweep goes through the layers forwards and knows what lies before each; later ones
    know what lies behind it, too, and never raise the cost.
    """
    places: list[Ints] = []
    for sweep in range(sweeps):
        for number, layer in enumerate(costs):
            sources = places[number - 1] if number else inputs
            if not sweep:
                places.append(_best(layer, sources, None, None))
                continue
            behind = None
            if number + 1 < len(costs):
                behind = _outgoing(costs[number + 1], places[number + 1])
            places[number] = _best(layer, sources, behind, places[number])
    return places


def total_cost(costs: Sequence[LayerCosts], inputs: Ints, places: Sequence[Ints]) -> float:
    """The objective over all layers."""
    return sum(
        layer_cost(layer, sources, own)
        for layer, sources, own in zip(costs, [inputs, *places[:-1]], places, strict=True)
    )


def contiguous(costs: Sequence[LayerCosts]) -> list[Ints]:
    """Neurons in order, as evenly as can be: how a matrix is cut that nobody looks into."""
    return [np.arange(layer.neurons) * layer.workers // layer.neurons for layer in costs]


def _best(costs: LayerCosts, sources: Ints, behind: Floats | None, before: Ints | None) -> Ints:
    """The worker of each neuron of a layer; `behind` (neurons, workers) is what the next layer
    pays, `before` an assignment that is not to be made worse."""
    more = np.zeros((costs.neurons, costs.workers)) if behind is None else behind
    at_home = membership(sources, costs.workers)
    by_weight = costs.at_home @ at_home.T + costs.from_afar @ (1.0 - at_home).T
    best = _munkres(by_weight + more, costs.capacity)
    if costs.by_weight:
        return best
    candidates = [best] if before is None else [best, before]
    reached = [_alternated(costs, sources, more, at_home, one) for one in candidates]
    return min(reached, key=lambda pair: pair[0])[1]


def _alternated(
    costs: LayerCosts, sources: Ints, more: Floats, at_home: Floats, places: Ints
) -> tuple[float, Ints]:
    """Given what crosses, Munkres finds the best assignment, and given an assignment, the best of
    what crosses is known: in turn, until nothing is gained. The cost and the assignment."""
    neurons = np.arange(costs.neurons)
    cost = layer_cost(costs, sources, places) + more[neurons, places].sum()
    for _ in range(_MOST_ROUNDS):
        there = np.maximum(at_home, crossings(costs, sources, places))
        matrix = costs.at_home @ there.T + costs.energy @ (1.0 - there).T + more
        tried = _munkres(matrix, costs.capacity)
        reached = layer_cost(costs, sources, tried) + more[neurons, tried].sum()
        if reached >= cost - 1e-15:
            break
        cost, places = reached, tried
    return float(cost), places


def _outgoing(costs: LayerCosts, places: Ints) -> Floats:
    """(units, workers): what a layer pays for a unit when it comes from a worker, pruned at its
    best."""
    on = membership(places, costs.workers)
    here = on @ costs.at_home
    if costs.by_weight:
        afar = on @ costs.from_afar
    else:
        afar = np.minimum(on @ costs.energy, here + costs.crossing)
    found: Floats = (afar.sum(axis=0) - afar + here).T
    return found


def _munkres(matrix: Floats, capacity: int) -> Ints:
    """The column of each row, each at most `capacity` times, at the least sum."""
    # Not on top: ranks import what is here, and are told their split (`split_file.py`).
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(np.repeat(matrix, capacity, axis=1))
    found = np.full(len(matrix), EVERYWHERE)
    found[rows] = columns // capacity
    return found
