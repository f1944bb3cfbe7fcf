"""Flows that share links max-min fairly: their rates, and when each that starts at a given time has
sent its bytes.

Rates are vectorised: water-filling at all local bottlenecks at once.

A link is a local bottleneck when no flow on it is held lower elsewhere; its flows then get its
fair share in the final allocation whatever happens at other links (Bertsekas and Gallager, Data
Networks, 2nd ed., section 6.5.2), so all local bottlenecks freeze in the same pass. The number
of passes is the depth of the dependency between bottlenecks, not their number.
"""

from __future__ import annotations

import numpy as np

from analysis.predict.engines.wire import Floats, Ints

_TIE = 1 + 1e-12
_TOGETHER = 1e-6


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


def drain(
    start_ns: Floats,
    wire_bytes: Floats,
    paths: Ints,
    bytes_per_ns: Floats,
    sharing_factor: float = 1.0,
) -> Floats:
    """When the last byte of each flow has left the bottleneck, in ns.

    Rates change whenever a flow starts or ends; events closer together than a millionth of the time
    passed, or of a nanosecond, are taken together. Links that carry several flows have
    `1/sharing_factor` of their capacity.
    """
    order = np.argsort(start_ns, kind="stable")
    finish = np.array(start_ns, dtype=np.float64)
    left = np.array(wire_bytes, dtype=np.float64)
    begun = 0
    active = np.zeros(0, dtype=np.int64)
    now = 0.0
    while begun < len(order) or len(active):
        if not len(active):
            now = float(start_ns[order[begun]])
        window = now + _TOGETHER * max(now, 1.0)
        fresh = begun + int(np.searchsorted(start_ns[order[begun:]], window, side="right"))
        active = np.append(active, order[begun:fresh])
        begun = fresh
        capacity = _shared_capacity(paths[active], bytes_per_ns, sharing_factor)
        rates = max_min_rates(capacity, paths[active])
        with np.errstate(invalid="ignore"):
            needs = np.where(np.isinf(rates), 0.0, left[active] / rates)
        upcoming = float(start_ns[order[begun]]) - now if begun < len(order) else np.inf
        step = float(needs.min())
        if step < upcoming:
            step = min(
                float(needs[needs <= step * (1 + _TOGETHER) + _TOGETHER * now].max()), upcoming
            )
        else:
            step = upcoming
        done = needs <= step
        finish[active[done]] = now + needs[done]
        left[active[~done]] -= rates[~done] * step
        active = active[~done]
        now += step
    return finish


def _shared_capacity(paths: Ints, bytes_per_ns: Floats, sharing_factor: float) -> Floats:
    if sharing_factor == 1.0:
        return bytes_per_ns
    count = np.bincount(paths.ravel(), minlength=len(bytes_per_ns) + 1)[: len(bytes_per_ns)]
    return np.where(count > 1, bytes_per_ns / sharing_factor, bytes_per_ns)
