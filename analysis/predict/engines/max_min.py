"""The rates of flows that share links max-min fairly.

They are vectorised: water-filling at all local bottlenecks at once.

A link is a local bottleneck when no flow on it is held lower elsewhere; its flows then get its
fair share in the final allocation whatever happens at other links (Bertsekas and Gallager, Data
Networks, 2nd ed., section 6.5.2), so all local bottlenecks freeze in the same pass. The number
of passes is the depth of the dependency between bottlenecks, not their number.
"""

from __future__ import annotations

import numpy as np

from analysis.predict.engines.wire import Floats, Ints

_TIE = 1 + 1e-12


def pad_paths(paths: list[tuple[int, ...]], links: int) -> Ints:
    """Paths as a matrix, short ones filled up with the number `links`, which no link has."""
    width = max((len(p) for p in paths), default=0)
    matrix = np.full((len(paths), width), links, dtype=np.int64)
    for row, path in enumerate(paths):
        matrix[row, : len(path)] = path
    return matrix


def max_min_rates(capacity: Floats, paths: Ints) -> Floats:
    """Rate of each flow. `paths` is (flows, hops): links by number, `len(capacity)` where there
    is none.

    Rates have the unit of `capacity`. A flow without links is not limited: its rate is infinite.
    """
    links = len(capacity)
    rates = np.full(len(paths), np.inf)
    left = np.append(capacity.astype(np.float64), np.inf)
    alive = np.flatnonzero((paths < links).any(axis=1))
    while len(alive):
        on = paths[alive]
        count = np.bincount(on.ravel(), minlength=links + 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            fair = np.where(count > 0, left / count, np.inf)
        fair[links] = np.inf
        held = fair[on].min(axis=1)
        lowest = np.full(links + 1, np.inf)
        np.minimum.at(lowest, on.ravel(), np.repeat(held, on.shape[1]))
        bottleneck = fair <= lowest * _TIE
        bottleneck[links] = False
        frozen = bottleneck[on].any(axis=1)
        rates[alive[frozen]] = held[frozen]
        taken = np.bincount(
            on[frozen].ravel(), weights=np.repeat(held[frozen], on.shape[1]), minlength=links + 1
        )
        left = np.maximum(left - np.where(np.isfinite(taken), taken, 0.0), 0.0)
        left[links] = np.inf
        alive = alive[~frozen]
    return rates
