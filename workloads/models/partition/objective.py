"""The cost of a split, by layer: pruned weights against computing and units that cross.

Source: our reconstruction. The abstract of RePurpose (arXiv 2008.08289; AAAI 2023 37(6):6640) has a
layer-wise objective of the Frobenius norm of the reconstruction error, the l0 norm of the weights
and a cost of communication, and neurons assigned by Munkres' algorithm without retraining. Its
formulas are not known here. These are ours:

    error     a weight from unit j to neuron i that is pruned adds e[i, j] = |w[i, j]|^2 E[x[j]^2],
              as a share of the sum of e over the layer. This takes units as uncorrelated.
    sparsity  a weight that stays costs `sparsity_cost` / (number of weights of the layer)
    crossing  unit j on worker l costs for each other worker k that needs it `crossing_cost` times
              its share of what crosses when every worker needs every unit

A convolution's weight is a whole kernel, from channel to channel. With `prune: activations` a unit
crosses to a worker, or no weight from it to the worker's neurons stays. With `prune: weights`
each of these weights pays for itself: a neuron's share of the unit's crossing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workloads.models.partition.network import Floats, Ints, Layer

Bools = npt.NDArray[np.bool_]

_DIGITS = 12
"""Energies are rounded: what machines' last bits decide must not decide between neurons."""
EVERYWHERE = -1
"""The worker of a unit that all workers have."""


@dataclass(frozen=True, eq=False)
class LayerCosts:
    """A layer's costs over `workers`. `energy` (neurons, units in) is the error that pruning a
    weight adds. `sparsity` is the cost of a kept weight. `crossing` (units in,) is the cost of a
    unit for each worker that it crosses to. `by_weight` says whether weights pay for that one by
    one."""

    workers: int
    energy: Floats
    sparsity: float
    crossing: Floats
    by_weight: bool

    @classmethod
    def of(
        cls,
        layer: Layer,
        taken: Floats,
        workers: int,
        sparsity_cost: float,
        crossing_cost: float,
        by_weight: bool,
    ) -> LayerCosts:
        """`taken` (samples, units, features) is what the layer takes of typical inputs."""
        squares = (taken**2).mean(axis=0)
        if layer.kind == "dense":
            energy = np.einsum("ijf,jf->ij", layer.weights**2, squares)
        else:
            energy = (layer.weights**2).sum(axis=2) * squares.mean(axis=1)
        whole = energy.sum() or 1.0
        neurons, units = energy.shape
        return cls(
            workers,
            np.round(energy / whole, _DIGITS),
            sparsity_cost / (neurons * units),
            np.full(units, crossing_cost / (units * max(1, workers - 1))),
            by_weight,
        )

    @property
    def neurons(self) -> int:
        return int(self.energy.shape[0])

    @property
    def capacity(self) -> int:
        """The most neurons of a worker."""
        return -(-self.neurons // self.workers)

    @property
    def at_home(self) -> Floats:
        """(neurons, units): what a weight costs whose unit needs not cross."""
        return np.minimum(self.energy, self.sparsity)

    @property
    def from_afar(self) -> Floats:
        """(neurons, units): what a weight costs whose unit must cross for it alone."""
        return np.minimum(self.energy, self.sparsity + self.crossing / self.capacity)


def membership(places: Ints, workers: int) -> Floats:
    """(workers, units): 1 where a unit is on a worker; units that are everywhere are on all."""
    on = places[None, :] == np.arange(workers)[:, None]
    found: Floats = (on | (places == EVERYWHERE)[None, :]).astype(np.float64)
    return found


def crossings(costs: LayerCosts, sources: Ints, places: Ints) -> Bools:
    """(workers, units): whether a unit crosses to a worker, at its best. `sources` are the workers
    of the units, `places` those of the neurons."""
    at_home, on = membership(sources, costs.workers), membership(places, costs.workers)
    if costs.by_weight:
        bound = costs.sparsity + costs.crossing / costs.capacity
        needed = on @ (costs.energy > bound).astype(np.float64) > 0.0
    else:
        needed = on @ (costs.energy - costs.at_home) > costs.crossing
    found: Bools = needed & (at_home == 0.0)
    return found


def kept(costs: LayerCosts, sources: Ints, places: Ints) -> Bools:
    """(neurons, units): which weights stay, at the least cost."""
    at_home = membership(sources, costs.workers)[places] > 0.0
    worth = costs.energy > costs.sparsity
    if costs.by_weight:
        bound = costs.sparsity + costs.crossing / costs.capacity
        return np.where(at_home, worth, costs.energy > bound)
    return worth & (at_home | crossings(costs, sources, places)[places])


def layer_cost(costs: LayerCosts, sources: Ints, places: Ints) -> float:
    """The objective of a layer, pruned at its best for this assignment."""
    at_home = membership(sources, costs.workers)[places] > 0.0
    if costs.by_weight:
        return float(np.where(at_home, costs.at_home, costs.from_afar).sum())
    crossing = crossings(costs, sources, places)
    stay = at_home | crossing[places]
    weights = np.where(stay, costs.at_home, costs.energy).sum()
    return float(weights + (crossing * costs.crossing).sum())
