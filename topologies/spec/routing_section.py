"""How packets are routed, as a spec names it (`fabric.routing`): a word, or a section with a kind.

All kinds but `static` and `dimension-order` take shortest paths, and differ in which of several
equal next hops a packet gets.
"""

from __future__ import annotations

from ipaddress import AddressValueError, IPv6Network, NetmaskValueError
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, field_validator
from pydantic_core import PydanticCustomError

from topologies.spec.errors import Problem
from topologies.spec.queue_section import SpecSection
from topologies.units import SizeBytes, TimeNs

HashField = Literal["addresses", "ports", "queue-pair"]
Choose = Literal["random", "round-robin", "least-of-two", "least-queue"]


_TICK_NS = 10_000_000
"""Linux takes a group's timers in hundredths of a second (USER_HZ)."""

_LONGEST_NS = 86_400 * 10**9


def _whole_ticks(value_ns: int) -> int:
    if not 0 <= value_ns <= _LONGEST_NS or value_ns % _TICK_NS:
        raise ValueError("expected a multiple of 10ms, from 0 to 24h")
    return value_ns


_TimerNs = Annotated[TimeNs, AfterValidator(_whole_ticks)]


class Resilient(SpecSection):
    """A next hop by a table of buckets, in which the next hops that are left keep theirs when one
    goes (Linux's next hop groups of type `resilient`, net/ipv4/nexthop.c, since 5.13).

    A hash names one of `buckets`. Where next hops have come or weights have changed, some have more
    buckets than their share: those that are idle for `idle_timer` move, and those that are not once
    the table has been uneven for `unbalanced_timer` (0: never). Linux's own defaults are 120 s and
    0, and it has none for the number of buckets.
    """

    buckets: int = Field(default=128, strict=True, ge=1, le=65_535)
    idle_timer_ns: _TimerNs = Field(default=0, alias="idle_timer")
    unbalanced_timer_ns: _TimerNs = Field(default=0, alias="unbalanced_timer")


def _resilient_of(value: object) -> object:
    """`true` stands for a section without keys, and `false` for none."""
    if isinstance(value, bool):
        return {} if value else None
    return value


class _Hashed(SpecSection):
    """A next hop by a hash of a packet's headers, so that a flow keeps its path.

    `fields` are what is hashed. `queue-pair` is the UDP port that a queue pair sends from, which
    follows from its number; `ports` has it too. `seeds`: each switch has a seed of its own, or all
    have one: then the second tier chooses by the same bits as the first.
    """

    fields: tuple[HashField, ...] = Field(default=("addresses", "ports"), min_length=1)
    seeds: Literal["per-switch", "shared"] = "per-switch"

    @field_validator("fields")
    @classmethod
    def _each_once(cls, fields: tuple[HashField, ...]) -> tuple[HashField, ...]:
        if len(set(fields)) < len(fields):
            raise ValueError("expected each field once")
        return fields

    @property
    def by_headers(self) -> bool:
        """Whether a flow's path follows from its headers."""
        return True

    @property
    def by_linux(self) -> bool:
        """Whether any Linux chooses so, at hosts too."""
        return True


class _ByLinux(_Hashed):
    """A switch's next hop by Linux's own hash: by thresholds (RFC 2992) or, `resilient`, by a table
    of buckets."""

    resilient: Annotated[Resilient | None, BeforeValidator(_resilient_of)] = None


class Ecmp(_ByLinux):
    """Equal next hops get equal shares of the flows."""

    kind: Literal["ecmp"] = "ecmp"


class Weighted(_ByLinux):
    """Next hops get shares by the capacity behind them (WCMP: Zhou et al., EuroSys 2014)."""

    kind: Literal["weighted"]


class _Chosen(SpecSection):
    """A next hop that a switch chooses by more than a packet's headers."""

    @property
    def by_headers(self) -> bool:
        """Whether a flow's path follows from its headers."""
        return False

    @property
    def by_linux(self) -> bool:
        """Whether any Linux chooses so, at hosts too."""
        return False


class Spray(_Chosen):
    """Each packet goes its own way (Dixit et al., INFOCOM 2013)."""

    kind: Literal["spray"]
    choose: Choose = "random"


class Flowlet(_Chosen):
    """A flow is sent another way when it has paused for longer than `gap` (Vanini et al., NSDI
    2017)."""

    kind: Literal["flowlet"]
    gap_ns: TimeNs = Field(default=50_000, alias="gap", gt=0)
    choose: Choose = "random"


class Adaptive(_Chosen):
    """A flow goes by the shortest queue. It moves when its own queue is `threshold` longer than the
    shortest, and has been where it is for `hold`."""

    kind: Literal["adaptive"]
    threshold_bytes: SizeBytes = Field(default=65_536, alias="threshold")
    hold_ns: TimeNs = Field(default=50_000, alias="hold", gt=0)


class Source(_Chosen):
    """A packet says its path: the sum of its ports is a number whose digits, in the mixed base of
    how many next hops switches have, layer by layer, are the hops to take."""

    kind: Literal["source"]

    @property
    def by_headers(self) -> bool:
        """Whether a flow's path follows from its headers."""
        return True


class Srv6(_Hashed):
    """Hosts wrap packets in IPv6 whose destination is a list of micro-segments, a switch each (RFC
    8986, RFC 9800): of all shortest paths a flow has the one that its hash says.

    `block` is the locator block, of 32 bits; behind it are six micro-segments of 16 bits (F3216).
    """

    kind: Literal["srv6"]
    block: str = "fcbb:bb00::/32"

    @field_validator("block")
    @classmethod
    def _of_32_bits(cls, block: str) -> str:
        expected = "expected an IPv6 prefix of 32 bits that is not multicast, as fcbb:bb00::/32"
        try:
            network = IPv6Network(block)
        except (AddressValueError, NetmaskValueError, ValueError) as error:
            raise ValueError(f"{expected}: {error}") from error
        first = network.network_address
        if network.prefixlen != 32 or first.is_multicast or first.is_link_local or not int(first):
            raise ValueError(expected)
        return str(network)


def resilient_of(choice: NextHopChoice) -> Resilient | None:
    """The tables of buckets by which switches choose; None where they choose in another way."""
    return choice.resilient if isinstance(choice, Ecmp | Weighted) else None


BY_HASH = Ecmp()
"""The choice where nothing is said."""

NextHopChoice = Ecmp | Weighted | Spray | Flowlet | Adaptive | Source | Srv6
_WORDS = ("ecmp", "static", "dimension-order")


_BEYOND_SHORTEST = (
    "switches choose among shortest ways only, and lossless queues would need virtual channels "
    "(docs/paths.md)"
)
ABSENT = {
    "valiant": _BEYOND_SHORTEST,
    "ugal": _BEYOND_SHORTEST,
}
"""Kinds of routing that users ask for and that there are not, with what to say of them."""


def _section_of(value: object) -> object:
    """Words that are no modes of their own stand for sections without other keys. A kind that is
    known to be absent is told in words of its own."""
    kind = value.get("kind") if isinstance(value, dict) else value
    if isinstance(kind, str) and kind in ABSENT:
        kinds = "ecmp, weighted, spray, flowlet, adaptive, source, srv6, static"
        problem = Problem(("fabric", "routing"), kind, f"{ABSENT[kind]}; allowed: {kinds}")
        raise PydanticCustomError(
            "absent_routing", "{text}", {"text": str(problem), "problems": [problem]}
        )
    if isinstance(value, str) and value not in _WORDS:
        return {"kind": value}
    return value


def _form(value: object) -> str:
    return "<word>" if isinstance(value, str) else "<section>"


_SECTION = Annotated[NextHopChoice, Field(discriminator="kind")]
Routing = Annotated[
    Annotated[Literal["ecmp", "static"], Tag("<word>")] | Annotated[_SECTION, Tag("<section>")],
    Discriminator(_form),
    BeforeValidator(_section_of),
]
"""Routing of a fabric whose switches choose."""


def mode_of(routing: str | NextHopChoice) -> str:
    """The word for which next hops there are (`topologies.routing.routes.compute_routes`)."""
    return routing if isinstance(routing, str) else "ecmp"


def choice_of(routing: str | NextHopChoice) -> NextHopChoice:
    """How one of several next hops is chosen."""
    return BY_HASH if isinstance(routing, str) else routing
