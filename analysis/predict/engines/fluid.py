"""Flows that start at given times and share links max-min fairly until each has sent its bytes."""

from __future__ import annotations

import numpy as np

from analysis.predict.engines.max_min import max_min_rates
from analysis.predict.engines.wire import Floats, Ints

_TOGETHER = 1e-6


def drain(
    start_ns: Floats,
    wire_bytes: Floats,
    paths: Ints,
    bytes_per_ns: Floats,
    sharing_factor: float = 1.0,
) -> Floats:
    """When the last byte of each flow has left the bottleneck, in ns.

    Rates change whenever a flow starts or ends; events closer together than a millionth of the time
    passed are taken together. Links that carry several flows have `1/sharing_factor` of their
    capacity.
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
