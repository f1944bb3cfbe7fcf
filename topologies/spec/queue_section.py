"""Queue disciplines of an egress port, as a spec names them (`fabric.queue`, `fabric.queues`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    model_validator,
)

from topologies.units import RateBps, SizeBytes, TimeNs, format_size, parse_size_bytes

CLASSES = 8
"""DSCP class selectors 0 to 7 (RFC 2474 section 4.2.2)."""


_LEAST_PLAIN_BYTES = 1000
"""Plain numbers below this are taken for one whose unit was left out: packets are larger."""


def _parse_queue_bytes(value: object) -> int:
    """Raises ValueError."""
    size_bytes = parse_size_bytes(value)
    plain = isinstance(value, int) or (isinstance(value, str) and value.strip().isdecimal())
    if plain and 0 < size_bytes < _LEAST_PLAIN_BYTES:
        raise ValueError(
            f"expected a size with a unit: {size_bytes}KB, or {size_bytes}B, which is less than a "
            "packet"
        )
    return size_bytes


QueueBytes = Annotated[
    int,
    BeforeValidator(_parse_queue_bytes),
    PlainSerializer(format_size, return_type=str),
]
"""A buffer or a threshold of a queue, in bytes."""

Trim = Annotated[bool, Field(strict=True)]
"""Whether a packet that finds no room goes on without its payload, before all others."""


class SpecSection(BaseModel):
    """A section of a spec: immutable, and a key that it does not know is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False
    )


class QueueSection(SpecSection, ABC):
    """The queue discipline of a port, or of one class of a port. `buffer_of_switch`: its buffer is
    that of all ports of a switch together."""

    buffer_of_switch: ClassVar[bool] = False

    if TYPE_CHECKING:  # each declares them itself: keys stand in its order
        kind: str
        buffer_bytes: int

    @property
    @abstractmethod
    def marks(self) -> bool:
        """Whether it sets CE on packets instead of dropping them, or before."""


class DropTail(QueueSection):
    """A FIFO that drops what exceeds its buffer."""

    kind: Literal["droptail"] = "droptail"
    buffer_bytes: QueueBytes = Field(default=4_000_000, alias="buffer", gt=0)
    trim: Trim = False

    @property
    def marks(self) -> bool:
        """Never."""
        return False


class Red(QueueSection):
    """Random early detection (Floyd and Jacobson 1993): marks or drops on the average queue.

    The defaults are DCQCN's usual thresholds at 100 Gb/s (docs/queues.md).
    """

    kind: Literal["red"]
    kmin_bytes: QueueBytes = Field(default=400_000, alias="kmin", gt=0)
    kmax_bytes: QueueBytes = Field(default=1_600_000, alias="kmax", gt=0)
    pmax: float = Field(default=0.2, gt=0, le=1)
    weight: float = Field(default=0.002, gt=0, le=1)
    ecn: bool = True
    buffer_bytes: QueueBytes = Field(default=4_000_000, alias="buffer", gt=0)
    trim: Trim = False

    @model_validator(mode="after")
    def _ordered(self) -> Red:
        if not self.kmin_bytes <= self.kmax_bytes <= self.buffer_bytes:
            raise ValueError("expected kmin <= kmax <= buffer")
        return self

    @property
    def marks(self) -> bool:
        """With ECN."""
        return self.ecn


class Dctcp(QueueSection):
    """Step marking on the instantaneous queue (DCTCP, RFC 8257 section 3.1): CE above `k`."""

    kind: Literal["dctcp"]
    k_bytes: QueueBytes = Field(default=100_000, alias="k", gt=0)
    buffer_bytes: QueueBytes = Field(default=4_000_000, alias="buffer", gt=0)
    trim: Trim = False

    @model_validator(mode="after")
    def _ordered(self) -> Dctcp:
        if self.k_bytes > self.buffer_bytes:
            raise ValueError("expected k <= buffer: a threshold above the buffer never marks")
        return self

    @property
    def marks(self) -> bool:
        """Always."""
        return True


class Codel(QueueSection):
    """CoDel (RFC 8289); `ce_threshold` marks every packet that waited longer."""

    kind: Literal["codel"]
    target_ns: TimeNs = Field(default=5_000_000, alias="target", gt=0)
    interval_ns: TimeNs = Field(default=100_000_000, alias="interval", gt=0)
    ce_threshold_ns: TimeNs | None = Field(default=None, alias="ce_threshold")
    ecn: bool = True
    buffer_bytes: QueueBytes = Field(default=4_000_000, alias="buffer", gt=0)

    @property
    def marks(self) -> bool:
        """With ECN."""
        return self.ecn


class FqCodel(Codel):
    """CoDel behind deficit round robin over hashed flows (RFC 8290)."""

    kind: Literal["fq_codel"]  # type: ignore[assignment]
    flows: int = Field(default=1024, gt=0, le=65536)
    quantum_bytes: SizeBytes | None = Field(default=None, alias="quantum")


class Shared(QueueSection):
    """Output-queued shared-memory switch: each queue's limit is alpha * free buffer.

    Dynamic thresholds of Choudhury and Hahne (IEEE/ACM ToN 1998). `buffer` is the switch's.
    """

    buffer_of_switch: ClassVar[bool] = True
    kind: Literal["shared"]
    buffer_bytes: QueueBytes = Field(default=32_000_000, alias="buffer", gt=0)
    alpha: float = Field(default=0.125, gt=0, le=64)
    k_bytes: QueueBytes | None = Field(default=None, alias="k")

    @property
    def marks(self) -> bool:
        """With a threshold."""
        return self.k_bytes is not None


class Voq(QueueSection):
    """Virtual output queues: one queue per ingress port at each egress, served round robin."""

    kind: Literal["voq"]
    buffer_bytes: QueueBytes = Field(default=4_000_000, alias="buffer", gt=0)
    k_bytes: QueueBytes | None = Field(default=None, alias="k")

    @property
    def marks(self) -> bool:
        """With a threshold."""
        return self.k_bytes is not None


class Lossless(QueueSection):
    """Priority flow control (IEEE 802.1Qbb), per ingress port and hop by hop.

    Bytes that came in by a port and wait anywhere in the switch: above `xoff` the upstream port is
    paused, below `xon` it is resumed. `headroom` takes what arrives meanwhile (None: computed from
    the link, 2*rate*delay + 3 frames + a pause frame). `buffer` is the switch's whole memory. `k`,
    when given, adds DCTCP step marking; `kmin`, `kmax` and `pmax` add DCQCN's, by the queue that a
    packet finds. `lossy_priorities` are DSCP class selectors that may
    be lost.
    """

    buffer_of_switch: ClassVar[bool] = True
    kind: Literal["lossless"]
    xoff_bytes: QueueBytes = Field(default=256_000, alias="xoff", gt=0)
    xon_bytes: QueueBytes = Field(default=200_000, alias="xon", gt=0)
    headroom_bytes: QueueBytes | None = Field(default=None, alias="headroom")
    buffer_bytes: QueueBytes = Field(default=32_000_000, alias="buffer", gt=0)
    k_bytes: QueueBytes | None = Field(default=None, alias="k")
    kmin_bytes: QueueBytes | None = Field(default=None, alias="kmin", gt=0)
    kmax_bytes: QueueBytes | None = Field(default=None, alias="kmax", gt=0)
    pmax: float = Field(default=0.2, gt=0, le=1)
    lossy_priorities: tuple[int, ...] = Field(default=(), max_length=8)

    @model_validator(mode="after")
    def _ordered(self) -> Lossless:
        if (self.kmin_bytes is None) != (self.kmax_bytes is None):
            raise ValueError("expected kmin and kmax, or none of them")
        if (self.kmin_bytes or 0) > (self.kmax_bytes or 0):
            raise ValueError("expected kmin <= kmax")
        if not self.xon_bytes <= self.xoff_bytes <= self.buffer_bytes:
            raise ValueError("expected xon <= xoff <= buffer")
        return self

    @property
    def marks(self) -> bool:
        """With a threshold of either sort."""
        return self.k_bytes is not None or self.kmin_bytes is not None


class Credits(QueueSection):
    """Credit-based flow control, hop by hop (Dally and Towles 2004, section 13.3.1).

    Each class of a port has credits for `buffer` bytes: the input buffer at the far end of its
    link. A packet is sent when it has a place there, and none is lost. Its sender has the place
    back a link's delay after the packet has left the far node.
    """

    kind: Literal["credits"]
    buffer_bytes: QueueBytes = Field(default=64_000, alias="buffer", gt=0)

    @property
    def marks(self) -> bool:
        """Never."""
        return False


class Cells(QueueSection):
    """Virtual output queues at the ingress, credits by request and grant, and a fabric of cells.

    A switch is a chassis, or leaves and spines that act as one (docs/queues.md#cells). Its ports
    stand on line cards, `ports` on each, in the order of its links. A card has `links` links to the
    fabric, each way. A packet waits at the card that it came in by, in a queue for its egress port,
    with `buffer` bytes for all queues of a card. The egress port grants `credit` bytes at a time,
    at its rate and round robin. Then the packet crosses the fabric in cells that carry `cell` bytes
    and have `header` more. `k` marks by a step what finds more than that in its queue.
    """

    kind: Literal["cells"]
    buffer_bytes: QueueBytes = Field(default=1_000_000_000, alias="buffer", gt=0)
    k_bytes: QueueBytes | None = Field(default=None, alias="k")
    ports: Annotated[int, Field(strict=True, ge=1, le=1024)] = 4
    links: Annotated[int, Field(strict=True, ge=1, le=1024)] = 5
    link_rate_bps: RateBps = Field(default=100_000_000_000, alias="link_rate")
    link_delay_ns: TimeNs = Field(default=200, alias="link_delay")
    cell_bytes: SizeBytes = Field(default=256, alias="cell", ge=32, le=65536)
    header_bytes: SizeBytes = Field(default=8, alias="header", le=65536)
    credit_bytes: SizeBytes = Field(default=4096, alias="credit", ge=64, le=1_000_000)

    @property
    def marks(self) -> bool:
        """With a threshold."""
        return self.k_bytes is not None

    def cards(self, ports: int) -> int:
        """The line cards of a switch of so many ports."""
        return -(-ports // self.ports)

    def carries_bps(self) -> int:
        """Full cells without their headers, as fast as the links of a card carry them."""
        whole = self.cell_bytes + self.header_bytes
        return self.links * self.link_rate_bps * self.cell_bytes // whole


HOST_NIC = DropTail(buffer=1_000_000_000)
"""The queue at a host's egress to a switch when the spec does not name that port: a host's own
packets wait for its link (TCP small queues and socket buffers bound how many do) and are neither
marked nor dropped by its NIC. Pauses stop it as they stop any port."""


_Discipline = DropTail | Red | Dctcp | Codel | FqCodel | Shared | Voq | Lossless | Credits | Cells
"""The registration of disciplines. Each has a part by its kind in `emulator/ports/disciplines/`,
and in the ports of the packet engine."""

DISCIPLINES: tuple[str, ...] = tuple(
    get_args(section.model_fields["kind"].annotation)[0] for section in get_args(_Discipline)
)
"""Their kinds."""

ClassQueue = Annotated[_Discipline, Field(discriminator="kind")]
"""The queue discipline of a port, or of one class of a port."""


class TrafficClass(SpecSection):
    """A class of traffic at a port: packets whose DSCP is the class selector `priority`.

    Without a `weight` it is served before all classes of lower priority; those with weights share,
    by bytes on the wire, what the others leave. `queue` is its own, with a buffer of its own.
    """

    priority: Annotated[int, Field(strict=True, ge=0, lt=CLASSES)]
    weight: Annotated[int, Field(strict=True, ge=1, le=100)] | None = None
    queue: ClassQueue = DropTail()

    @model_validator(mode="after")
    def _one_class(self) -> TrafficClass:
        if isinstance(self.queue, Lossless) and self.queue.lossy_priorities:
            raise ValueError("expected no lossy_priorities: this queue is that of one class")
        if isinstance(self.queue, Cells):
            raise ValueError("expected a queue of one port: cells serve all classes as one")
        return self


class Classes(SpecSection):
    """Several classes of traffic at a port, each with a queue discipline of its own (IEEE 802.1Q
    clause 8.6.8). Packets without a class are served as those of the lowest class."""

    buffer_of_switch: ClassVar[bool] = False
    kind: Literal["classes"]
    classes: dict[str, TrafficClass] = Field(min_length=1, max_length=CLASSES)

    @model_validator(mode="after")
    def _distinct(self) -> Classes:
        names: dict[int, str] = {}
        for name, found in self.classes.items():
            other = names.setdefault(found.priority, name)
            if other != name:
                raise ValueError(
                    f"expected a priority of its own for each class: {other} and {name} have "
                    f"{found.priority}"
                )
        return self

    def __hash__(self) -> int:
        return hash(tuple(self.classes.items()))

    @property
    def buffer_bytes(self) -> int:
        """The buffers of all classes together."""
        return sum(each.queue.buffer_bytes for each in self.classes.values())

    @property
    def lowest(self) -> TrafficClass:
        """The class of what is of no class."""
        return min(self.classes.values(), key=lambda each: each.priority)

    def of(self, priority: int) -> TrafficClass:
        """The class that serves packets of a class selector."""
        found = [each for each in self.classes.values() if each.priority == priority]
        return found[0] if found else self.lowest

    def at_host(self) -> Classes:
        """The same classes at a host's own port, which neither marks nor drops."""
        return Classes(
            kind="classes",
            classes={
                name: each.model_copy(update={"queue": queue_at_host(each.queue)})
                for name, each in self.classes.items()
            },
        )


def queue_at_host(queue: ClassQueue) -> ClassQueue:
    """The queue at a host's own port to a switch: a NIC's, with credits where the switch has."""
    return queue if isinstance(queue, Credits) else HOST_NIC


QueueSpec = Annotated[_Discipline | Classes, Field(discriminator="kind")]


def queues_in(queue: QueueSpec) -> Iterator[ClassQueue]:
    """The queue itself, or those of its classes."""
    if isinstance(queue, Classes):
        yield from (each.queue for each in queue.classes.values())
    else:
        yield queue


def queue_of(queue: QueueSpec, priority: int) -> ClassQueue:
    """The queue in which packets of a class selector wait."""
    return queue.of(priority).queue if isinstance(queue, Classes) else queue


def trims(queue: QueueSpec) -> bool:
    """Whether packets that find no room go on without their payload, where their sender allows."""
    return any(getattr(each, "trim", False) for each in queues_in(queue))


def marks(queue: QueueSpec) -> bool:
    """Whether this discipline sets CE on packets instead of (or before) dropping them."""
    return any(each.marks for each in queues_in(queue))


def _parse_class(value: object) -> str | int | None:
    """Raises ValueError."""
    if isinstance(value, str) and value:
        return value
    if value is None or (
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value < CLASSES
    ):
        return value
    raise ValueError(
        f"expected a class of fabric.queue.classes, or a DSCP class selector, 0 to {CLASSES - 1}"
    )


TrafficClassName = Annotated[str | int | None, PlainValidator(_parse_class)]
"""The name of a class of `fabric.queue`, or a DSCP class selector; None: that of the whole spec."""
