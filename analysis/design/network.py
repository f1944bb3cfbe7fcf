"""The network of one point: dimensions with their sizes, bounds of their bandwidths, and costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from topologies.spec.design.network import (
    BandwidthRange,
    DesignPrices,
    DimensionKind,
    DimensionSection,
    TierPrices,
)

_GB = 1e9


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dimension with what has been chosen of it. Bandwidths are of a host, in one direction;
    `most` is None where nothing of its own bounds it. `used` is the share of the bandwidth that its
    buffers let TCP use; `price` is that of a GB/s of a host, `buffers_price` that of its port's."""

    name: str
    kind: DimensionKind
    size: int
    least_gbytes_per_s: float
    most_gbytes_per_s: float | None
    latency_ns: float = 0.0
    used: float = 1.0
    price: float = 0.0
    buffers_price: float = 0.0

    @property
    def fixed(self) -> bool:
        """Whether there is nothing to choose of its bandwidth."""
        return self.least_gbytes_per_s == self.most_gbytes_per_s


def dimension_of(
    section: DimensionSection,
    size: int,
    links: int | None,
    buffer_bytes: int | None,
    prices: DesignPrices,
) -> Dimension:
    """The dimension of a section with these choices."""
    least: float = 0.0
    most: float | None = None
    match section.bandwidth:
        case int():
            least = most = section.bandwidth / _GB
        case BandwidthRange():
            least = section.bandwidth.least_bytes_per_s / _GB
            if section.bandwidth.most_bytes_per_s is not None:
                most = section.bandwidth.most_bytes_per_s / _GB
    if links is not None and section.link_bytes_per_s is not None:
        least = most = links * section.link_bytes_per_s / _GB
    used = 1.0
    if buffer_bytes is not None and section.round_trip_ns is not None and most is not None:
        used = buffer_utilisation(buffer_bytes / (most * section.round_trip_ns))
    tier: TierPrices = getattr(prices, section.tier)
    return Dimension(
        section.name,
        section.kind,
        size,
        least,
        most,
        float(section.latency_ns),
        used,
        price_of(section.kind, tier),
        (buffer_bytes or 0) / 1e6 * prices.buffer_mb,
    )


def price_of(kind: DimensionKind, tier: TierPrices) -> float:
    """Dollars for a GB/s of a host. LIBRA counts a ring as 2P links of B/2 and all-connected as
    P(P-1) links of B/(P-1), which is P links of B for both; on a switch each host has a link, a
    port and a NIC of B (cost_model.py, simplified)."""
    if kind == "switch":
        return tier.link + tier.switch + tier.nic
    return tier.link


def network_cost(dimensions: Sequence[Dimension], gbytes_per_s: Sequence[float]) -> float:
    """Dollars of the whole network."""
    hosts = prod(dimension.size for dimension in dimensions)
    pairs = zip(dimensions, gbytes_per_s, strict=True)
    return hosts * sum(one.price * rate + one.buffers_price for one, rate in pairs)


def buffer_utilisation(share: float) -> float:
    """The share of a link that one AIMD flow (Reno: halves its window at a loss) uses through a
    buffer of `share` bandwidth-delay products: 3/4 without a buffer, all of it from one on.

    The window grows from (1 + b)/2 to 1 + b products. Below 1 a round trip takes one delay and
    sends the window; above, the link is full. After Appenzeller, Keslassy and McKeown, "Sizing
    router buffers", SIGCOMM 2004, section 2, worked out for b below 1.
    """
    if share >= 1:
        return 1.0
    low, high = (1 + share) / 2, 1 + share
    full = (high * high - 1) / 2
    return ((1 - low * low) / 2 + full) / ((1 - low) + full)
