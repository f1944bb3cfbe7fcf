"""Paths under ideal ECMP: every equal-cost set shares its traffic evenly, so it acts as one link.

From a set of nodes that all carry the same share, the links to the next nodes are one bundle with
the sum of their rates. This is exact where bundles are equal or disjoint, as in Clos fabrics.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from analysis.predict.engines.paths import Paths
from analysis.predict.engines.wire import Floats, Ints
from analysis.predict.interface import PredictorError


class SpreadPaths:
    """Path matrices whose columns are single links or bundles; numbered behind the links."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        setting = paths.setting
        self._routes = setting.routes
        self._links = setting.fabric.links
        self._ends = paths.ends
        self._bundles: dict[frozenset[int], int] = {}
        self._rates: list[float] = []
        self._first_links: list[int] = []

    @property
    def first_links(self) -> Ints:
        """By link and bundle, the link itself, or the first one of a bundle, for all of which it
        stands."""
        return np.array([*range(self.paths.links), *self._first_links], dtype=np.int64)

    def follow(self, source: npt.ArrayLike, destination: npt.ArrayLike) -> tuple[Ints, Floats]:
        """(path matrix, rate in bits per second of every link and bundle) of pairs of ranks.

        Rows are filled up with the number of links and bundles. Raises PredictorError where
        equal-cost sets are too irregular to share evenly.
        """
        rows = [
            self._path(self._ends[a], self._ends[b])
            for a, b in zip(
                np.asarray(source).tolist(), np.asarray(destination).tolist(), strict=True
            )
        ]
        rates = np.concatenate([self.paths.rate_bps, np.array(self._rates)])
        matrix = np.full((len(rows), max(map(len, rows), default=0)), len(rates), dtype=np.int64)
        for i, row in enumerate(rows):
            matrix[i, : len(row)] = row
        return matrix, rates

    def _path(self, source: str, destination: str) -> tuple[int, ...]:
        path: list[int] = []
        nodes: tuple[str, ...] = (source,)
        while nodes != (destination,):
            step = [
                (2 * hop.link + (0 if self._links[hop.link].a.node == node else 1), hop.node)
                for node in nodes
                for hop in self._routes.next_hops(node, destination)
            ]
            links = frozenset(link for link, _ in step)
            if len({self.paths.rate_bps[link] for link in links}) > 1 or len(step) % len(nodes):
                raise PredictorError(f"equal-cost links out of {', '.join(nodes)} are not alike")
            path.append(next(iter(links)) if len(links) == 1 else self._bundle(links))
            nodes = tuple(sorted({node for _, node in step}))
            if len(path) > len(self._links):
                raise PredictorError(f"routes from {source} to {destination} loop")
        return tuple(path)

    def _bundle(self, links: frozenset[int]) -> int:
        number = self._bundles.get(links)
        if number is None:
            number = len(self.paths.rate_bps) + len(self._rates)
            self._bundles[links] = number
            self._rates.append(float(sum(self.paths.rate_bps[link] for link in links)))
            self._first_links.append(min(links))
        return number
