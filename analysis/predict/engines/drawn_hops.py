"""The next hops that switches take for flows whose ports are not known: drawn, by a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from analysis.predict.engines.wire import Ints

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
        self._seed = np.uint64(seed)

    def __call__(self, node: Ints, source: Ints, destination: Ints, count: Ints) -> Ints:
        found: Ints = (self._drawn(node, source, destination) % count.astype(np.uint64)).astype(
            np.int64
        )
        return found

    def _drawn(self, node: Ints, source: Ints, destination: Ints) -> npt.NDArray[np.uint64]:
        mixed = np.full(node.shape, self._seed, dtype=np.uint64)
        for word in (node, source, destination):
            mixed = splitmix64(mixed ^ word.astype(np.uint64))
        return mixed


class BucketNextHop(HashedNextHop):
    """The next hop of a pseudo-random bucket. `hops` has, of a node and a destination, the place
    among the equal next hops that each bucket names; None where they are hashed."""

    def __init__(self, seed: int, hops: Callable[[int, int], Sequence[int] | None]) -> None:
        super().__init__(seed)
        self._hops = hops

    def __call__(self, node: Ints, source: Ints, destination: Ints, count: Ints) -> Ints:
        found = super().__call__(node, source, destination, count)
        drawn = self._drawn(node, source, destination).tolist()
        for row in np.flatnonzero(count > 1).tolist():
            buckets = self._hops(int(node[row]), int(destination[row]))
            if buckets is not None:
                found[row] = buckets[drawn[row] % len(buckets)]
        return found


class SaidNextHop:
    """The next hop that a packet says (routing `source`), whose number is a drawn one of its pair,
    and further by its entropy value. `strides` are of each node's digit."""

    def __init__(self, seed: int, value: int, strides: Ints) -> None:
        self._seed, self._value, self._strides = np.uint64(seed), value, strides

    def __call__(self, node: Ints, source: Ints, destination: Ints, count: Ints) -> Ints:
        mixed = np.full(node.shape, self._seed, dtype=np.uint64)
        for word in (source, destination):
            mixed = splitmix64(mixed ^ word.astype(np.uint64))
        number = (mixed & np.uint64(0x3FFF)).astype(np.int64) + self._value
        found: Ints = number // self._strides[node] % count
        return found


def splitmix64(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64, of each number."""
    z = value + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed
