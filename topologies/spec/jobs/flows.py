"""The `flows` workload: background traffic, messages between pairs of ranks."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PlainSerializer, PlainValidator, model_validator

from topologies.spec.fabric_section import Integer
from topologies.spec.workload_types import (
    MAX_SIZE_BYTES,
    Dtype,
    Iterations,
    SeveralRanks,
)
from topologies.spec.workloads import WorkloadSection
from topologies.units import RateBps, TimeNs, format_size, parse_size_bytes

SizeDistribution = Literal["websearch", "storage", "hadoop"]
SIZE_DISTRIBUTIONS: tuple[SizeDistribution, ...] = ("websearch", "storage", "hadoop")


def _parse_sizes(value: object) -> int | str:
    if isinstance(value, str) and value in SIZE_DISTRIBUTIONS:
        return value
    allowed = f"expected {', '.join(SIZE_DISTRIBUTIONS)}, or a size such as 10MB"
    try:
        size_bytes = parse_size_bytes(value)
    except ValueError:
        raise ValueError(allowed) from None
    if not 0 < size_bytes <= MAX_SIZE_BYTES:
        raise ValueError(allowed)
    return size_bytes


def _format_sizes(value: int | str) -> str:
    return value if isinstance(value, str) else format_size(value)


Sizes = Annotated[
    int | str, PlainValidator(_parse_sizes), PlainSerializer(_format_sizes, return_type=str)
]


class FlowsWorkload(WorkloadSection):
    """Flows between ranks, each a message over the connection of its two ends.

    `sizes` is one size for all, or the distribution that they are drawn from. A sender begins flows
    as a Poisson process that offers `rate` on average, for `duration`; without a rate it sends one
    flow at the beginning. With `pairs` every even rank sends to the next one, with `random` every
    rank to any other. Drawn from `seed`, the same in every iteration.
    """

    awaits_at_once: ClassVar[bool] = True
    kind: Literal["flows"]
    ranks: SeveralRanks
    iterations: Iterations = 1
    sizes: Sizes = "websearch"
    rate_bps: RateBps | None = Field(default=None, alias="rate", gt=0)
    duration_ns: TimeNs | None = Field(default=None, alias="duration", gt=0)
    pattern: Literal["pairs", "random"] = "pairs"
    seed: Integer = Field(default=1, ge=0, lt=2**32)
    dtype: Dtype = "float32"

    @model_validator(mode="after")
    def _whole(self) -> FlowsWorkload:
        if (self.rate_bps is None) != (self.duration_ns is None):
            raise ValueError("expected rate and duration, or neither")
        if self.pattern == "pairs" and self.ranks % 2:
            raise ValueError("expected an even number of ranks with pattern: pairs")
        return self

    @property
    def reductions(self) -> None:
        """It has no collectives."""
