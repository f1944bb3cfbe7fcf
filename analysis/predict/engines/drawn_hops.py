"""The next hops that switches take for flows whose ports are not known: drawn, by a seed."""

from __future__ import annotations

from collections.abc import Callable

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
        self._seed = seed

    def __call__(self, node: Ints, source: Ints, destination: Ints, count: Ints) -> Ints:
        return _among(_drawn(self._seed, node, source, destination), count)


class ChosenNextHop:
    """A pseudo-random next hop where the kernel does not hash to equal ones. `choose` gives the
    place of a drawn number (64 bits) among a node's next hops for a destination; where it gives
    None the next hop is `HashedNextHop`'s."""

    def __init__(self, seed: int, choose: Callable[[int, int, int], int | None]) -> None:
        self._seed, self._choose = seed, choose

    def __call__(self, node: Ints, source: Ints, destination: Ints, count: Ints) -> Ints:
        drawn = _drawn(self._seed, node, source, destination)
        found = _among(drawn, count)
        for row in np.flatnonzero(count > 1).tolist():
            place = self._choose(int(node[row]), int(destination[row]), int(drawn[row]))
            if place is not None:
                found[row] = place
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


def _among(drawn: npt.NDArray[np.uint64], count: Ints) -> Ints:
    """The place of each drawn number among so many that are equal."""
    found: Ints = (drawn % count.astype(np.uint64)).astype(np.int64)
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
