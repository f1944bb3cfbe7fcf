"""The network of a design: dimensions, what bounds their bandwidths, and prices."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from topologies.spec.design.choices import Choices, range_or_rate
from topologies.spec.fabric_section import Integer
from topologies.spec.queue_section import SpecSection
from topologies.units import BytesPerSecond, SizeBytes, TimeNs

DimensionKind = Literal["ring", "fully-connected", "switch"]
Tier = Literal["chiplet", "package", "node", "pod"]


class BandwidthRange(SpecSection):
    """Bounds of a dimension's bandwidth; `from` alone bounds it below."""

    least_bytes_per_s: BytesPerSecond = Field(default=0, alias="from", ge=0)
    most_bytes_per_s: BytesPerSecond | None = Field(default=None, alias="to", gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> BandwidthRange:
        if self.most_bytes_per_s is not None and self.least_bytes_per_s > self.most_bytes_per_s:
            raise ValueError("expected from <= to")
        return self


Bandwidth = Annotated[
    Annotated[BytesPerSecond, Tag("<rate>")] | Annotated[BandwidthRange, Tag("<range>")],
    Discriminator(range_or_rate),
]
"""Fixed, or within bounds."""


class DimensionSection(SpecSection):
    """A dimension of the network, the innermost first.

    `bandwidth` is that of each host in the dimension, in one direction: fixed, or within
    bounds; left out it is free. `links` (per host, of `link_bandwidth` each) fix it to their
    sum. `latency` is that of a message. `buffer` is that of a port; with `round_trip` it bounds
    how much of the bandwidth TCP uses (docs/design.md). `tier` says which prices count.
    """

    name: str = Field(min_length=1, max_length=32)
    kind: DimensionKind
    size: Choices[Annotated[Integer, Field(ge=1, le=4096)]]
    tier: Tier = "node"
    bandwidth: Bandwidth | None = None
    links: Choices[Annotated[Integer, Field(ge=1, le=1024)]] | None = None
    link_bytes_per_s: BytesPerSecond | None = Field(default=None, alias="link_bandwidth", gt=0)
    latency_ns: TimeNs = Field(default=0, alias="latency")
    buffer_bytes: Choices[Annotated[SizeBytes, Field(gt=0)]] | None = Field(
        default=None, alias="buffer"
    )
    round_trip_ns: TimeNs | None = Field(default=None, alias="round_trip", gt=0)

    @model_validator(mode="after")
    def _complete(self) -> DimensionSection:
        if (self.links is None) != (self.link_bytes_per_s is None):
            raise ValueError("expected links and link_bandwidth together")
        if self.links is not None and self.bandwidth is not None:
            raise ValueError("expected either bandwidth, or links and link_bandwidth")
        if (self.buffer_bytes is None) != (self.round_trip_ns is None):
            raise ValueError("expected buffer and round_trip together")
        if self.buffer_bytes is not None and not (self.links or isinstance(self.bandwidth, int)):
            raise ValueError("expected a fixed bandwidth, or links, with buffer")
        if self.bandwidth == 0:
            raise ValueError("expected a bandwidth above 0")
        return self


class LinearSection(SpecSection):
    """A bound of the sum of some dimensions' bandwidths, which are named."""

    sum: tuple[str, ...] = Field(min_length=1)
    at_most_bytes_per_s: BytesPerSecond | None = Field(default=None, alias="at_most")
    at_least_bytes_per_s: BytesPerSecond | None = Field(default=None, alias="at_least")
    equals_bytes_per_s: BytesPerSecond | None = Field(default=None, alias="equals")

    @model_validator(mode="after")
    def _bounds(self) -> LinearSection:
        bounded = (self.at_most_bytes_per_s, self.at_least_bytes_per_s)
        if (self.equals_bytes_per_s is None) == (bounded == (None, None)):
            raise ValueError("expected at_most or at_least or both, or equals alone")
        return self


class ConstraintsSection(SpecSection):
    """The bounds that every point must keep. `total_bandwidth` is the sum over the dimensions, of
    each host. `order` is that of bandwidths from the innermost dimension to the outermost."""

    total_bytes_per_s: BytesPerSecond | None = Field(default=None, alias="total_bandwidth", gt=0)
    cost: float | None = Field(default=None, gt=0)
    time_ns: TimeNs | None = Field(default=None, alias="time", gt=0)
    order: Literal["free", "descending", "ascending"] = "free"
    linear: tuple[LinearSection, ...] = ()


class TierPrices(SpecSection):
    """Dollars for each GB/s of a host in a dimension: of links, and in a switch's dimension of the
    switch and the NIC, too."""

    link: float = Field(default=0.0, ge=0)
    switch: float = Field(default=0.0, ge=0)
    nic: float = Field(default=0.0, ge=0)


class DesignPrices(SpecSection):
    """Prices by tier, LIBRA's unless set (its cost_model's files, astra-sim/libra), and those of a
    host's parts, which nobody has published: 0 unless set."""

    chiplet: TierPrices = TierPrices(link=2.0)
    package: TierPrices = TierPrices(link=4.0, switch=13.0)
    node: TierPrices = TierPrices(link=4.0, switch=13.0)
    pod: TierPrices = TierPrices(link=7.8, switch=18.0, nic=31.6)
    buffer_mb: float = Field(default=0.0, ge=0)
    host: float = Field(default=0.0, ge=0)
    tflops: float = Field(default=0.0, ge=0)
    memory_gb: float = Field(default=0.0, ge=0)
    memory_gbytes_per_s: float = Field(default=0.0, ge=0)
    expansion_gb: float = Field(default=0.0, ge=0)
