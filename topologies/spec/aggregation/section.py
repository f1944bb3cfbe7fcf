"""The `aggregation` section: which switches reduce, how much at once, how fast."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_validator

from topologies.spec.fabric_section import Integer
from topologies.spec.queue_section import SpecSection
from topologies.spec.workload_types import ElementType, ReduceOp
from topologies.units import RateBps, SizeBytes, TimeNs

AggregationMode = Literal["low-latency", "streaming"]
StreamRule = Literal["one-a-switch", "one-a-port", "any"]


class NodeOverride(SpecSection):
    """Settings of one aggregation node; None is the section's."""

    slots: Annotated[Integer, Field(ge=0, le=4096)] | None = None
    payload_bytes: SizeBytes | None = Field(default=None, alias="payload", ge=8)
    rate_bps: RateBps | None = Field(default=None, alias="rate", gt=0)
    latency_ns: TimeNs | None = Field(default=None, alias="latency")
    dtypes: tuple[ElementType, ...] | None = None
    operations: tuple[ReduceOp, ...] | None = None


class AggregationSection(SpecSection):
    """Switches with an aggregation node, as SHARP's (Graham et al., COM-HPC 2016).

    `switches` are selectors: a switch's name, its class (the name without its numbers: edge, agg,
    core, leaf, spine), or all. `slots` operations of up to `payload` bytes are outstanding at a
    node at once; the node reduces at `rate` and adds `latency` to each operation; it knows
    `dtypes` and `operations`. `nodes` has what differs, by selector; a switch's name goes before
    its class.

    `parents` has the switch above each but the root, where the tree is given. Each group of ranks
    has `trees` of them, which the chunks of a collective take in turn. Each tree has `quota` slots
    of each of its nodes; None divides the slots of a node evenly among the trees on it.

    A stream is cut into pieces of at least `piece` bytes, of which `window` are under way;
    `streams` says which streams wait for each other. With `middles` switches are FRED's: groups
    that run at once must not conflict in them. With `when_full` fall-back a collective that the
    tree cannot take runs by `fall_back`, with `when_lost` those that are not over when a node dies,
    and all after them.
    """

    switches: Annotated[tuple[str, ...], Field(min_length=1)] = ("all",)
    mode: AggregationMode = "low-latency"
    slots: Annotated[Integer, Field(ge=0, le=4096)] = 64
    payload_bytes: SizeBytes = Field(default=1024, alias="payload", ge=8)
    rate_bps: RateBps = Field(default=400_000_000_000, alias="rate", gt=0)
    latency_ns: TimeNs = Field(default=100, alias="latency")
    dtypes: tuple[ElementType, ...] = get_args(ElementType)
    operations: tuple[ReduceOp, ...] = get_args(ReduceOp)
    nodes: dict[str, NodeOverride] = Field(default_factory=dict)
    root: str | None = None
    parents: dict[str, str] = Field(default_factory=dict)
    trees: Annotated[Integer, Field(ge=1, le=16)] = 1
    piece_bytes: SizeBytes = Field(default=32_768, alias="piece", ge=64)
    window: Annotated[Integer, Field(ge=1, le=1024)] = 16
    quota: Annotated[Integer, Field(ge=1, le=4096)] | None = None
    middles: Annotated[Integer, Field(ge=2, le=16)] | None = None
    streams: StreamRule = "one-a-switch"
    when_full: Literal["refuse", "fall-back"] = "refuse"
    when_lost: Literal["fail", "fall-back"] = "fail"
    fall_back: dict[str, Any] = Field(default_factory=lambda: {"algorithm": "ring"})

    @field_validator("fall_back")
    @classmethod
    def _by_hosts(cls, value: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(value.get("algorithm"), str) or value["algorithm"] == "aggregation":
            raise ValueError("expected an algorithm of hosts, such as {algorithm: ring}")
        return value

    def of(self, switch: str) -> NodeOverride:
        """The settings of a switch's node, all of it filled in."""
        own = self.nodes.get(switch, NodeOverride())
        of_class = self.nodes.get(class_of(switch), NodeOverride())
        everywhere = self.nodes.get("all", NodeOverride())
        found = {}
        for name in NodeOverride.model_fields:
            values = [getattr(each, name) for each in (own, of_class, everywhere)]
            found[name] = next((v for v in values if v is not None), getattr(self, name))
        return NodeOverride.model_construct(**found)


def class_of(switch: str) -> str:
    """The class of a switch: its name without the numbers at its end."""
    return re.sub(r"[-0-9]+$", "", switch)


def is_selected(switch: str, selectors: tuple[str, ...]) -> bool:
    """Whether selectors name a switch."""
    return not {"all", switch, class_of(switch)}.isdisjoint(selectors)
