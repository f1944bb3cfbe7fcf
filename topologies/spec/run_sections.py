"""The sections that say how a run is made: transport, capture, counters, faults, kernel."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal, Union

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    model_validator,
)

from topologies.fabrics.fabric import Fabric, Link
from topologies.fabrics.selectors import links_between
from topologies.registration import section_parts
from topologies.spec.fabric_section import Integer
from topologies.spec.queue_section import SpecSection
from topologies.spec.transports import TRANSPORTS
from topologies.spec.transports.section import TransportSection
from topologies.units import (
    RateBps,
    SignedTimeNs,
    SizeBytes,
    TimeNs,
    format_signed_time,
    format_size,
    format_time,
    parse_size_bytes,
    parse_time_ns,
)

MINIMUM_SNAPLEN = 114
"""Ethernet 14, IPv4 20 and TCP 32 bytes (with time stamps), and Gloo's preamble of 48."""

MIN_MEMORY_BYTES = 256 * 2**20

MOST_OFF_NS = 10**18
MOST_DRIFT_PPM = 100_000
"""The bounds of the virtual kernel (emulator/kernel/gwclock.c)."""


def _as_tcp(value: object) -> object:
    """A transport that does not say what it is, is TCP."""
    return {"kind": "tcp"} | value if isinstance(value, dict) else value


TRANSPORT_SECTIONS = section_parts(
    TRANSPORTS, "topologies.spec.transports.{}.section", TransportSection
)
"""By kind."""

if TYPE_CHECKING:
    TransportSpec = TransportSection
else:
    TransportSpec = Annotated[
        Annotated[Union[tuple(TRANSPORT_SECTIONS.values())], Field(discriminator="kind")],  # noqa: UP007
        BeforeValidator(_as_tcp),
    ]


def _keeps_preambles(snaplen_bytes: int) -> int:
    if snaplen_bytes < MINIMUM_SNAPLEN:
        raise ValueError(
            f"expected at least {MINIMUM_SNAPLEN}: 66 bytes of headers and the 48 of Gloo's "
            "preamble, which says to what collective the bytes behind it belong"
        )
    return snaplen_bytes


class CaptureSpec(SpecSection):
    """The points at which packets are captured (selectors, see `topologies.fabrics.selectors`;
    empty captures nothing), and how many bytes of each. `filter` is a pcap filter expression."""

    points: tuple[str, ...] = ("hosts",)
    snaplen_bytes: Annotated[Integer, AfterValidator(_keeps_preambles)] = Field(
        default=160, alias="snaplen", le=65_535
    )
    backend: Literal["auto", "socket", "ring"] = "auto"
    filter: str | None = Field(default=None, min_length=1)


def _parse_interval(value: object) -> int | str:
    if value == "auto":
        return "auto"
    interval_ns = parse_time_ns(value)
    if interval_ns < 1:
        raise ValueError("expected auto, or a time above 0")
    return interval_ns


def _format_interval(value: int | str) -> str:
    return value if isinstance(value, str) else format_time(value)


SampleInterval = Annotated[
    int | Literal["auto"],
    PlainValidator(_parse_interval),
    PlainSerializer(_format_interval, return_type=str),
]


class CountersSpec(SpecSection):
    """Ports over time, sampled each `interval` at `ports` (selectors). `auto` keeps a bounded
    number of samples of each port, and none natively; None samples nothing. The totals at the end
    are always there."""

    interval_ns: SampleInterval | None = Field(default="auto", alias="interval")
    ports: tuple[str, ...] = ("all",)


def _parse_memory(value: object) -> int | str:
    if value == "auto":
        return "auto"
    size_bytes = parse_size_bytes(value)
    if size_bytes < MIN_MEMORY_BYTES:
        raise ValueError(f"expected auto, or at least {format_size(MIN_MEMORY_BYTES)}")
    return size_bytes


def _format_memory(value: int | str) -> str:
    return value if isinstance(value, str) else format_size(value)


MemorySize = Annotated[
    int | str, PlainValidator(_parse_memory), PlainSerializer(_format_memory, return_type=str)
]


def _parse_count(value: object) -> int | str:
    if value == "auto":
        return "auto"
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("expected auto, or a whole number of at least 1")
    return value


RanksPerProcess = Annotated[int | str, PlainValidator(_parse_count)]


class VirtualSpec(SpecSection):
    """Settings of the virtual kernel alone. `receive_coalescing`: how long a port may hold received
    packets to hand them up together, in virtual time (0: never). `memory` is a size, or `auto`:
    sized from the spec. `ranks_per_process` is how many ranks are threads of one process, or
    `auto`: many, where that changes no measured time (`emulator.ranks.packing`). `connections`
    says when two ranks connect: before the workload, all, or when they first communicate. With
    `connect_only` they connect, and the run is over: what is then known are its ports. `order`
    draws which of the programs' processes that are ready at one time goes first, and `thread_order`
    which of the threads of such a process, and of the files that it waits for (0: as Linux has
    it)."""

    receive_coalescing_ns: TimeNs = Field(default=0, alias="receive_coalescing")
    memory: MemorySize = "auto"
    ranks_per_process: RanksPerProcess = "auto"
    connections: Literal["eager", "lazy"] = "eager"
    connect_only: bool = Field(default=False, strict=True)
    order: Integer = Field(default=0, ge=0)
    thread_order: Integer = Field(default=0, ge=0, lt=2**64)

    @property
    def memory_bytes(self) -> int | None:
        """The guest's memory, None when it is to be sized from the spec."""
        return None if isinstance(self.memory, str) else self.memory


def _parse_fraction(value: object) -> float:
    """A probability, as a number or a percentage."""
    what = "a fraction such as 0.01 or 1%, above 0 and at most 1"
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*", value)
        if match is None:
            raise ValueError(f"expected {what}")
        fraction = float(match.group(1)) / 100
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        fraction = float(value)
    else:
        raise ValueError(f"expected {what}")
    if not 0 < fraction <= 1:
        raise ValueError(f"expected {what}")
    return fraction


Fraction = Annotated[float, BeforeValidator(_parse_fraction)]


class TimedFault(SpecSection):
    """An event at a time after the start of the workload, at the start of an iteration, or before
    a rank of a program posts the collective or message of this number.

    Numbers count from 0, in a rank's first life. The rank is that of the fault, or else rank 0."""

    at_ns: TimeNs | None = Field(default=None, alias="at")
    iteration: Integer | None = Field(default=None, ge=0)
    operation: Integer | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _when(self) -> TimedFault:
        if sum(each is not None for each in (self.at_ns, self.iteration, self.operation)) != 1:
            raise ValueError("expected either `at` (a time), `iteration` or `operation` (a number)")
        return self

    @property
    def counting_rank(self) -> int:
        """The rank of a program whose iterations and operations count."""
        return 0

    @property
    def begins(self) -> str:
        """When it begins, in words."""
        if self.at_ns is not None:
            return format_time(self.at_ns)
        if self.iteration is not None:
            return f"iteration {self.iteration}"
        return f"operation {self.operation}"


class FaultSection(TimedFault):
    """A fault on both directions of `link` (`a-b`, two node names), for `duration` (None: to the
    end)."""

    link: str = Field(min_length=3)
    duration_ns: TimeNs | None = Field(default=None, alias="duration", gt=0)


class NodeDies(TimedFault):
    """The aggregation node of a switch is killed."""

    kind: Literal["node-dies"]
    switch: str


class LinkDown(FaultSection):
    """The link loses its carrier; `reroute` later routes withdraw it. Until then what is sent into
    it is lost."""

    kind: Literal["link-down"]
    reroute_ns: TimeNs = Field(default=0, alias="reroute")


class LinkUp(FaultSection):
    """The link gets its carrier back."""

    kind: Literal["link-up"]


class Loss(FaultSection):
    """Each packet is lost with probability `value`."""

    kind: Literal["loss"]
    value: Fraction


class Corruption(FaultSection):
    """Each packet has a bit flipped with probability `value`."""

    kind: Literal["corrupt"]
    value: Fraction


class RateChange(FaultSection):
    """The link's rate becomes `value`."""

    kind: Literal["rate"]
    value: RateBps = Field(gt=0)


class DelayChange(FaultSection):
    """The link's propagation delay becomes `value`."""

    kind: Literal["delay"]
    value: TimeNs


class Flap(FaultSection):
    """The link goes down for `down` every `every`, from its time on, for `duration` (None: to the
    end). Routes follow `reroute` later, by how the link is then."""

    kind: Literal["flap"]
    every_ns: TimeNs = Field(alias="every", gt=0)
    down_ns: TimeNs = Field(alias="down", gt=0)
    reroute_ns: TimeNs = Field(default=0, alias="reroute")

    @model_validator(mode="after")
    def _comes_back(self) -> Flap:
        if self.down_ns >= self.every_ns:
            raise ValueError("expected `down` shorter than `every`")
        return self


class Partition(TimedFault):
    """The links between `nodes` and all others go down, for `duration` (None: to the end)."""

    kind: Literal["partition"]
    nodes: tuple[str, ...] = Field(min_length=1)
    duration_ns: TimeNs | None = Field(default=None, alias="duration", gt=0)


class Kill(TimedFault):
    """One of a `rank`, a `host`, a `switch` or a `job` dies at once, or the `rank` of a `job`.
    Processes get SIGKILL; the links of a host or a switch go down before. After `restart` links
    come back, and programs are started again (None: never)."""

    kind: Literal["kill"]
    rank: Integer | None = Field(default=None, ge=0)
    host: str | None = None
    switch: str | None = None
    job: str | None = None
    restart_ns: TimeNs | None = Field(default=None, alias="restart", gt=0)

    @model_validator(mode="after")
    def _one_victim(self) -> Kill:
        of_job = self.job if self.rank is None else self.rank
        if sum(each is not None for each in (of_job, self.host, self.switch)) != 1:
            raise ValueError("expected one of rank, host, switch, job, or the rank of a job")
        return self

    @property
    def counting_rank(self) -> int:
        return self.rank or 0

    @property
    def victim(self) -> str:
        """The victim, in words."""
        if self.rank is not None:
            return _rank(self.rank, self.job)
        kind = "host" if self.host else "switch" if self.switch else "job"
        return f"{kind} {self.host or self.switch or self.job}"


class RankFault(TimedFault):
    """A fault of a `rank`, of a `job` where there are several."""

    rank: Integer = Field(ge=0)
    job: str | None = None

    @property
    def counting_rank(self) -> int:
        return self.rank

    @property
    def victim(self) -> str:
        """The victim, in words."""
        return _rank(self.rank, self.job)


class Freeze(RankFault):
    """The processes of a rank stand still for `duration` (SIGSTOP, SIGCONT), again every `every`
    where that is given."""

    kind: Literal["freeze"]
    duration_ns: TimeNs = Field(alias="duration", gt=0)
    every_ns: TimeNs | None = Field(default=None, alias="every", gt=0)

    @model_validator(mode="after")
    def _goes_on(self) -> Freeze:
        if self.every_ns is not None and self.duration_ns >= self.every_ns:
            raise ValueError("expected `duration` shorter than `every`")
        return self


class MemoryLimit(RankFault):
    """The processes of a rank, and those that they start, may take `value` more of address space
    than they have (RLIMIT_AS of setrlimit(2)). The kernel refuses what they ask for beyond it."""

    kind: Literal["memory-limit"]
    value: SizeBytes = Field(gt=0)


class WrongClock(TimedFault):
    """The time of day at a `host` is `offset` ahead (below 0: behind), and gains `drift_ppm`
    microseconds a second, for `duration` (None: to the end). Intervals and timers are not
    touched."""

    kind: Literal["clock"]
    host: str
    offset_ns: SignedTimeNs = Field(default=0, alias="offset", ge=-MOST_OFF_NS, le=MOST_OFF_NS)
    drift_ppm: float = Field(default=0, ge=-MOST_DRIFT_PPM, le=MOST_DRIFT_PPM)
    duration_ns: TimeNs | None = Field(default=None, alias="duration", gt=0)

    @model_validator(mode="after")
    def _is_wrong(self) -> WrongClock:
        if not self.offset_ns and not self.drift_ns_per_s:
            raise ValueError("expected an `offset` or a `drift_ppm` (of at least 0.001)")
        return self

    @property
    def drift_ns_per_s(self) -> int:
        """So many nanoseconds are gained in each second."""
        return round(self.drift_ppm * 1000)

    @property
    def in_words(self) -> str:
        """The error of the clock: `+250ms, +50 ppm`."""
        sign = "" if self.offset_ns < 0 else "+"
        offset = [f"{sign}{format_signed_time(self.offset_ns)}"] if self.offset_ns else []
        drift = [f"{self.drift_ppm:+g} ppm"] if self.drift_ns_per_s else []
        return ", ".join([*offset, *drift])


def _rank(rank: int, job: str | None) -> str:
    return f"rank {rank}" if job is None else f"rank {rank} of job {job}"


LinkFault = LinkDown | LinkUp | Loss | Corruption | RateChange | DelayChange | Flap
ProcessFault = Kill | Freeze | MemoryLimit

FaultSpec = Annotated[
    LinkFault | NodeDies | Partition | ProcessFault | WrongClock, Field(discriminator="kind")
]


def links_of_fault(fabric: Fabric, fault: FaultSpec) -> tuple[Link, ...]:
    """The links that a fault changes; none where it is of processes alone. Raises ValueError for
    links and KeyError for nodes that there are not."""
    match fault:
        case NodeDies() | RankFault() | WrongClock():
            return ()
        case Kill():
            node = fault.host or fault.switch
            return () if node is None else tuple(fabric.links_of[node])
        case Partition():
            inside = set(fault.nodes)
            return tuple(
                link for link in fabric.links if (link.a.node in inside) != (link.b.node in inside)
            )
    return links_between(fabric, fault.link)
