"""A network split over workers: the neurons of each worker, and the activations that cross."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from workloads.models.partition.network import Ints, Network
from workloads.models.partition.objective import EVERYWHERE, Bools, membership


@dataclass(frozen=True, eq=False)
class SplitNetwork:
    """`network` is the whole, pruned one in its own order. `places` has the worker of each unit at
    each border between layers: the inputs, and what each layer gives. `masks` (units out, units in)
    are the weights of each layer that stay."""

    network: Network
    workers: int
    places: tuple[Ints, ...]
    masks: tuple[Bools, ...]

    @cached_property
    def needs(self) -> tuple[Bools, ...]:
        """For each layer (workers, units in): whether a worker's neurons need a unit."""
        return tuple(
            membership(place, self.workers) @ mask.astype(np.float64) > 0.0
            for place, mask in zip(self.places[1:], self.masks, strict=True)
        )

    def neurons(self, layer: int, worker: int) -> Ints:
        """Those of a worker."""
        return np.flatnonzero(self.places[layer + 1] == worker)

    def own(self, layer: int, worker: int) -> Ints:
        """The units that a worker needs and has."""
        place = self.places[layer]
        here = (place == worker) | (place == EVERYWHERE)
        return np.flatnonzero(self.needs[layer][worker] & here)

    def crossing(self, layer: int, source: int, destination: int) -> Ints:
        """The units that a worker needs of another one."""
        there = self.places[layer] == source
        return np.flatnonzero(self.needs[layer][destination] & there)

    @property
    def crossing_elements(self) -> int:
        """Elements that cross for each sample, of all layers."""
        return sum(
            int((need & (membership(place, self.workers) == 0.0)).sum()) * layer.features_in
            for layer, need, place in zip(
                self.network.layers, self.needs, self.places, strict=False
            )
        )

    @property
    def most_crossing_elements(self) -> int:
        """The same if every worker needed everything."""
        return sum(
            int((place != EVERYWHERE).sum()) * (self.workers - 1) * layer.features_in
            for layer, place in zip(self.network.layers, self.places, strict=False)
        )
