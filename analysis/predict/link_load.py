"""The links that transfers keep busy, and how much those that run together slow each other down.

A transfer has each of its links busy for a part of the time that it takes alone. Where the parts of
all that run add up to more than one, they progress that much slower (processor sharing).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.predict.engines.wire import Floats, Ints


@dataclass(frozen=True, eq=False, slots=True)
class LinkLoad:
    """`links` are numbers, each once; `shares` has for each the part of a transfer's time alone in
    which it is busy, from 0 to 1."""

    links: Ints
    shares: Floats

    @classmethod
    def of_ports(cls, ranks: Sequence[int], share: float) -> LinkLoad:
        """The load of the ranks' own ports, all alike. A port has its rank's number."""
        links = np.array(sorted(ranks), dtype=np.int64)
        return cls(links, np.full(len(links), share))


class LinkLoads:
    """The loads of many transfers, some of which run at a time."""

    def __init__(self, loads: Sequence[LinkLoad]) -> None:
        none = LinkLoad(np.zeros(0, dtype=np.int64), np.zeros(0))
        self._links = np.concatenate([load.links for load in (none, *loads)])
        self._shares = np.concatenate([load.shares for load in (none, *loads)])
        self._count = np.array([len(load.links) for load in loads], dtype=np.int64)
        self._first = np.cumsum(self._count) - self._count

    def slowdowns(self, running: Ints) -> Floats:
        """By how much each of the transfers with these numbers is slowed down by the others of
        them that take the same links."""
        count = self._count[running]
        own = np.cumsum(count) - count
        entries = np.arange(count.sum()) + np.repeat(self._first[running] - own, count)
        links = self._links[entries]
        load = np.bincount(links, self._shares[entries], 1)[links]
        found = np.ones(len(running))
        some = count > 0
        if some.any():
            found[some] = np.maximum(1.0, np.maximum.reduceat(load, own[some]))
        return found
