"""The next hops that switches take for flows whose ports are not known: drawn, by a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from analysis.predict.engines.wire import Ints
from topologies.routing.ecmp_hash import select

HopChoice = Callable[[Ints, Ints, Ints, Ints], Ints]
"""(node, source host, destination host, number of equal next hops) -> which; arrays of indices."""


def first_next_hop(node: Ints, source: Ints, destination: Ints, count: Ints) -> Ints:
    """Always the first of the equal-cost next hops: enough where all of them cost the same."""
    return np.zeros_like(count)


class HashedNextHop:
    """A pseudo-random next hop per pair and node, as a hash of the flow's addresses and ports
    gives.

    Which flows collide in a run depends on its ports; this draws from the same distribution, the
    same way for the same seed (splitmix64's finaliser, Steele et al., OOPSLA 2014).
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, node: Ints, source: Ints, destination: Ints, count: Ints) -> Ints:
        drawn = _drawn(self._seed, node, source, destination)
        found: Ints = (drawn % count.astype(np.uint64)).astype(np.int64)
        return found


class WeightedNextHop:
    """A pseudo-random next hop by weights, as the kernel's thresholds give each its share
    (`topologies.routing.ecmp_hash.select`). `weights` has those of a node's next hops for a
    destination; where they are equal, it is `HashedNextHop`'s."""

    def __init__(self, seed: int, weights: Callable[[int, int], Sequence[int]]) -> None:
        self._seed, self._weights = seed, weights

    def __call__(self, node: Ints, source: Ints, destination: Ints, count: Ints) -> Ints:
        drawn = _drawn(self._seed, node, source, destination)
        found: Ints = (drawn % count.astype(np.uint64)).astype(np.int64)
        for row in np.flatnonzero(count > 1).tolist():
            weights = self._weights(int(node[row]), int(destination[row]))
            if min(weights) < max(weights):
                found[row] = select(int(drawn[row]) >> 33, weights)
        return found


class BucketNextHop:
    """The next hop of a pseudo-random bucket. `hops` has, of a node and a destination, the place
    among the equal next hops that each bucket names; None where they are hashed."""

    def __init__(self, seed: int, hops: Callable[[int, int], Sequence[int] | None]) -> None:
        self._seed, self._hops = seed, hops

    def __call__(self, node: Ints, source: Ints, destination: Ints, count: Ints) -> Ints:
        drawn = _drawn(self._seed, node, source, destination)
        found: Ints = (drawn % count.astype(np.uint64)).astype(np.int64)
        for row in np.flatnonzero(count > 1).tolist():
            buckets = self._hops(int(node[row]), int(destination[row]))
            if buckets is not None:
                found[row] = buckets[int(drawn[row]) % len(buckets)]
        return found


class SaidNextHop:
    """The next hop that a packet says (routing `source`), whose number is a drawn one of its pair,
    and further by its entropy value. `strides` are of each node's digit."""

    def __init__(self, seed: int, value: int, strides: Ints) -> None:
        self._seed, self._value, self._strides = seed, value, strides

    def __call__(self, node: Ints, source: Ints, destination: Ints, count: Ints) -> Ints:
        drawn = _drawn(self._seed, source, destination)
        number = (drawn & np.uint64(0x3FFF)).astype(np.int64) + self._value
        found: Ints = number // self._strides[node] % count
        return found


def _drawn(seed: int, *words: Ints) -> npt.NDArray[np.uint64]:
    """A number for each row of words."""
    mixed = np.full(words[0].shape, seed, dtype=np.uint64)
    for word in words:
        mixed = splitmix64(mixed ^ word.astype(np.uint64))
    return mixed


def splitmix64(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64, of each number."""
    z = value + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed
