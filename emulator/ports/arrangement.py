"""How a port's rate, queue and delay become queue disciplines: one arrangement per kind of kernel.

An arrangement answers two questions: which netlink requests make this port, and what the counters
of the qdiscs that it made mean. The stock ones here are the plainest;
`emulator/ports/own_queues.py` holds those for every `QueueSpec`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from emulator.linux.messages import formats
from emulator.linux.messages.formats import TC_H_ROOT
from emulator.linux.netlink import Request
from emulator.linux.rtnetlink import change_qdisc, qdisc
from emulator.ports.pauses import PauseControl
from emulator.ports.port_qdisc import HANDLE
from emulator.ports.token_depth import token_depth_bytes
from topologies.fabrics.fabric import L1_OVERHEAD_BYTES, Link, Port


class UnsupportedPort(ValueError):
    """A port that an arrangement cannot make; the message names the port and what is missing."""


@dataclass(frozen=True, slots=True)
class PortContext:
    """A port as its arrangement sees it, in its own namespace. `delay_device` is the index of the
    intermediate device for what arrives at this port, when the arrangement asked for one."""

    link: Link
    port: Port
    ifindex: int
    delay_device: int | None = None


@dataclass(frozen=True, slots=True)
class QdiscStatistics:
    """The kernel's report of one qdisc. `application` is the raw TCA_XSTATS of its kind."""

    kind: str
    handle: int
    parent: int
    sent_bytes: int
    sent_packets: int
    drops: int
    backlog_bytes: int
    options: bytes
    application: bytes


@dataclass(frozen=True, slots=True)
class ClassCounters:
    """The counters of an egress queue for one class of traffic, by its DSCP class selector. `name`
    is empty where the port has no classes of its own."""

    name: str
    priority: int
    bytes: int
    packets: int
    drops: int
    ecn_marks: int
    paused_ns: int
    max_backlog_bytes: int

    def as_dict(self) -> dict[str, object]:
        """Plain data, for links.jsonl."""
        return {
            "class": self.name or None,
            "priority": self.priority,
            "bytes": self.bytes,
            "packets": self.packets,
            "drops": self.drops,
            "ecn_marks": self.ecn_marks,
            "paused_ns": self.paused_ns,
            "max_backlog_bytes": self.max_backlog_bytes,
        }


@dataclass(frozen=True)
class QueueCounters:
    """The counters of an egress queue. None: this arrangement cannot know. `backlog_byte_us` is the
    integral of the backlog over time. `late_packets` were handed over after the moment at which
    their last bit arrived: none may be, in virtual time. `trims` went on without their payload."""

    drops: int = 0
    drops_by_reason: Mapping[str, int] = field(default_factory=dict)
    ecn_marks: int = 0
    pauses: int = 0
    paused_ns: int = 0
    max_backlog_bytes: int | None = None
    backlog_byte_us: int | None = None
    late_packets: int = 0
    trims: int = 0
    classes: tuple[ClassCounters, ...] = ()


@dataclass(frozen=True, slots=True)
class Impairment:
    """One direction of a link under faults: `link` has the rate and the delay of the moment,
    each packet is lost or damaged with the given probability, and `down` carries nothing."""

    link: Link
    loss: float = 0.0
    corruption: float = 0.0
    down: bool = False


class PortArrangement(Protocol):
    """Turns ports into qdisc requests, for one kind of kernel."""

    @property
    def name(self) -> str:
        """Its name in `environment.json`."""
        ...

    @property
    def lateness_ns(self) -> int:
        """How late a timer may be without a port losing its rate, by tokens that it keeps; an idle
        port lets through as much at once. 0 where ports keep none."""
        ...

    @property
    def delays_at_sender(self) -> bool:
        """Whether a packet leaves its port's queue discipline only when its last bit has come to
        the other end, so that what is on the wire is there as well."""
        ...

    @property
    def needs_fillers(self) -> bool:
        """Whether idle ports would send their first frame as if it took no time, but for fillers
        (`emulator/ports/idle_filler.py`)."""
        ...

    @property
    def needs_delay_device(self) -> bool:
        """Whether every port gets an intermediate device (IFB) for what arrives at it."""
        ...

    def requests(self, context: PortContext) -> Sequence[Request]:
        """The requests that arrange the port, sent in this order in the port's namespace, when the
        interface is up. Raises UnsupportedPort for a port that this arrangement cannot make."""
        ...

    def counters(self, context: PortContext, qdiscs: Sequence[QdiscStatistics]) -> QueueCounters:
        """The counters of a port; `qdiscs` are those on its interface."""
        ...

    def pause_controller(
        self,
        contexts: Mapping[str, Sequence[PortContext]],
        netns_path: Callable[[str], Path],
    ) -> PauseControl | None:
        """The pause controller that must run while the ports are up, or None. `contexts` are all
        ports by node."""
        ...

    @property
    def cuts_links(self) -> bool:
        """Whether `impair` can make a port carry nothing; else its interface goes down."""
        ...

    def impair(self, context: PortContext, impairment: Impairment) -> Sequence[Request]:
        """The requests that change a running port; what waits in it stays. The link as it was, with
        no loss, heals it. Raises UnsupportedPort for what this arrangement cannot do."""
        ...


class WithoutPauseController:
    """Arrangements whose ports need no pause controller."""

    def pause_controller(
        self,
        contexts: Mapping[str, Sequence[PortContext]],
        netns_path: Callable[[str], Path],
    ) -> PauseControl | None:
        """None: no port of this arrangement pauses."""
        return None


_MOST = 2**32 - 1
"""The highest rate, in bytes a second, that fits the plain field; a wide one is beside it."""


@dataclass(frozen=True)
class _RootQdisc(WithoutPauseController):
    """Drop-tail as one qdisc, of `kind`, at the sender's egress."""

    name: str
    kind: str
    needs_delay_device: bool = False
    cuts_links: bool = False
    lateness_ns: int = 0
    delays_at_sender: bool = False
    needs_fillers: bool = False

    def _options(self, port: Port, impairment: Impairment) -> bytes:
        raise NotImplementedError

    def requests(self, context: PortContext) -> Sequence[Request]:
        port = context.port
        if port.queue.kind != "droptail":
            raise UnsupportedPort(
                f"{port.interface}: a {port.queue.kind} queue is not a plain {self.kind}; "
                "only droptail is"
            )
        options = self._options(port, Impairment(context.link))
        made = qdisc(context.ifindex, self.kind, TC_H_ROOT, HANDLE, options, port.interface)
        return (made,)

    def counters(self, context: PortContext, qdiscs: Sequence[QdiscStatistics]) -> QueueCounters:
        drops = root_drops(qdiscs, self.kind)
        return QueueCounters(drops=drops, drops_by_reason={"queue": drops} if drops else {})

    def impair(self, context: PortContext, impairment: Impairment) -> Sequence[Request]:
        """A change of the one qdisc."""
        options, name = self._options(context.port, impairment), context.port.interface
        return (change_qdisc(context.ifindex, self.kind, TC_H_ROOT, HANDLE, options, name),)


@dataclass(frozen=True)
class NetemArrangement(_RootQdisc):
    """Drop-tail as one netem: `rate` and `delay`.

    netem serialises first and delays after (netem_enqueue in net/sched/sch_netem.c: a packet leaves
    its predecessor's time plus its own serialisation), so this is an exact drop-tail link. Its
    limit counts packets, those in flight too, so the buffer holds for full-sized packets.
    """

    name: str = "netem"
    kind: str = "netem"
    delays_at_sender: bool = True

    def _options(self, port: Port, impairment: Impairment) -> bytes:
        return netem_options(
            impairment.link, port.queue.buffer_bytes, impairment.loss, impairment.corruption
        )


@dataclass(frozen=True)
class RateOnlyArrangement(_RootQdisc):
    """Drop-tail as one token bucket: rate and buffer, no delay, for kernels without netem.

    Refuses a link with a delay rather than leaving the delay out. `lateness_ns` is what its bucket
    makes up for.
    """

    name: str = "rate-only"
    kind: str = "tbf"
    needs_fillers: bool = True

    def _options(self, port: Port, impairment: Impairment) -> bytes:
        link, name = impairment.link, port.interface
        if impairment.loss or impairment.corruption:
            raise UnsupportedPort(f"{name}: loss and corruption need netem, which is not in use")
        if link.delay_ns:
            raise UnsupportedPort(
                f"{name}: a delay of {link.delay_ns} ns needs netem, which is not in use"
            )
        depth = token_depth_bytes(link, port.queue, self.lateness_ns)
        return tbf_options(link, port.queue.buffer_bytes, depth)


def netem_options(
    link: Link, buffer_bytes: int, loss: float = 0.0, corruption: float = 0.0
) -> bytes:
    """The body of TCA_OPTIONS of a netem that is one direction of a drop-tail link.

    Every attribute is always there: a change keeps what it does not name.
    """
    frame = link.frame_bytes
    in_flight = link.rate_bps * link.delay_ns // (8 * 10**9 * frame) + 1
    limit = max(2, buffer_bytes // frame) + in_flight
    rate_bytes = link.rate_bps // 8
    rate = min(rate_bytes, _MOST)
    options = formats.NETEM.fill(
        limit, _probability(loss), _probability(corruption), rate, L1_OVERHEAD_BYTES
    )
    if rate_bytes > _MOST:
        options += formats.NETEM_RATE.fill(rate_bytes)
    return options + formats.NETEM_LATENCY.fill(link.delay_ns)


def _probability(value: float) -> int:
    """As netem takes it: times 2^32, and 2^32 - 1 for 1."""
    return min(round(value * 2**32), 2**32 - 1)


def tbf_options(link: Link, buffer_bytes: int, depth_bytes: int = 0) -> bytes:
    """The body of TCA_OPTIONS of a token bucket with the link's rate, which holds one frame and
    `depth_bytes` more (`emulator/ports/token_depth.py`)."""
    rate_bytes = link.rate_bps // 8
    burst = link.frame_bytes + L1_OVERHEAD_BYTES + depth_bytes
    options = formats.TBF.fill(L1_OVERHEAD_BYTES, min(rate_bytes, _MOST), buffer_bytes, burst)
    return options + (formats.TBF_RATE.fill(rate_bytes) if rate_bytes > _MOST else b"")


def root_drops(qdiscs: Sequence[QdiscStatistics], kind: str) -> int:
    """The drops of the port's root qdisc, those of its children among them."""
    return sum(q.drops for q in qdiscs if q.kind == kind and q.parent == TC_H_ROOT)
