"""Constraints of a point, as bounds of sums that are linear in the bandwidths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from analysis.design.network import Dimension
from topologies.spec.design.network import ConstraintsSection
from topologies.spec.errors import Key
from topologies.units import format_bandwidth

_TIGHT = 1e-6


@dataclass(frozen=True, slots=True)
class Bound:
    """`low` <= sum of `weights` times bandwidths (GB/s) <= `high`.

    `key` is the constraint's place in the design's file and `value` how it is written there; of
    those that it implies (an order of three is two bounds) each has the same. `scale` is what the
    bound's multiplier is counted in: its limit, or 1.
    """

    name: str
    key: Key
    value: str
    weights: tuple[float, ...]
    low: float = -inf
    high: float = inf

    def sum_of(self, gbytes_per_s: Sequence[float]) -> float:
        """The bounded sum."""
        return sum(w * rate for w, rate in zip(self.weights, gbytes_per_s, strict=True))

    def active_at(self, gbytes_per_s: Sequence[float]) -> bool:
        """Whether it is met with equality, to a millionth of its terms."""
        terms = zip(self.weights, gbytes_per_s, strict=True)
        room = _TIGHT * max(sum(abs(w * rate) for w, rate in terms), 1e-30)
        value = self.sum_of(gbytes_per_s)
        return value <= self.low + room or value >= self.high - room


def bounds_of(
    constraints: ConstraintsSection, dimensions: Sequence[Dimension], fixed_cost: float
) -> tuple[Bound, ...]:
    """All bounds of a point but that of its time. `fixed_cost` are the dollars that do not depend
    on bandwidths."""
    count = len(dimensions)
    found = []
    at: Key = ("design", "constraints")
    total = constraints.total_bytes_per_s
    if total is not None:
        text = format_bandwidth(total)
        key = (*at, "total_bandwidth")
        found.append(Bound("total_bandwidth", key, text, (1.0,) * count, high=total / 1e9))
    for index, linear in enumerate(constraints.linear):
        weights = tuple(float(one.name in linear.sum) for one in dimensions)
        low, high, texts = -inf, inf, []
        exact = linear.equals_bytes_per_s
        for name, value in (
            ("equals", exact),
            ("at_least", linear.at_least_bytes_per_s),
            ("at_most", linear.at_most_bytes_per_s),
        ):
            if value is not None:
                texts.append(f"{name} {format_bandwidth(value)}")
                low = value / 1e9 if name != "at_most" else low
                high = value / 1e9 if name != "at_least" else high
        name = f"{' + '.join(linear.sum)}"
        found.append(
            Bound(name, (*at, "linear", index), f"{name} {', '.join(texts)}", weights, low, high)
        )
    if constraints.order != "free":
        for inner in range(count - 1):
            sign = 1.0 if constraints.order == "descending" else -1.0
            weights = tuple(
                sign if i == inner else -sign if i == inner + 1 else 0.0 for i in range(count)
            )
            relation = ">=" if sign > 0 else "<="
            name = f"{dimensions[inner].name} {relation} {dimensions[inner + 1].name}"
            found.append(Bound(name, (*at, "order"), constraints.order, weights, low=0.0))
    if constraints.cost is not None:
        found.append(cost_bound(dimensions, fixed_cost, constraints.cost))
    for index, one in enumerate(dimensions):
        alone = tuple(float(i == index) for i in range(count))
        key = ("design", "dimensions", index)
        if one.fixed:
            text = f"{one.name} of {one.least_gbytes_per_s:g} GB/s"
            rate = one.least_gbytes_per_s
            found.append(Bound(f"{one.name} bandwidth", key, text, alone, rate, rate))
            continue
        if one.least_gbytes_per_s:
            text = f"{one.name} from {one.least_gbytes_per_s:g} GB/s"
            found.append(Bound(f"{one.name} from", key, text, alone, low=one.least_gbytes_per_s))
        if one.most_gbytes_per_s is not None:
            text = f"{one.name} to {one.most_gbytes_per_s:g} GB/s"
            found.append(Bound(f"{one.name} to", key, text, alone, high=one.most_gbytes_per_s))
    return tuple(found)


def cost_bound(dimensions: Sequence[Dimension], fixed_cost: float, most: float) -> Bound:
    """The bound of the cost: of what is left for bandwidths."""
    weights = cost_weights(dimensions)
    key = ("design", "constraints", "cost")
    return Bound("cost", key, f"{most:g}", weights, high=most - fixed_cost)


def cost_weights(dimensions: Sequence[Dimension]) -> tuple[float, ...]:
    """Dollars of a GB/s of every host in each dimension."""
    hosts = 1
    for one in dimensions:
        hosts *= one.size
    return tuple(hosts * one.price for one in dimensions)
