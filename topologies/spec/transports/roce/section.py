"""`transport: {kind: roce}` in a spec.

Defaults of controllers are those of HPCC's published simulator (alibaba-edu/
High-Precision-Congestion-Control, 9f4be2a, simulation/mix and run.py). Rates that are None follow
from the rate of the port: `controller_rates`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from topologies.spec.queue_section import SpecSection, TrafficClassName
from topologies.spec.transports.connections import Connections
from topologies.spec.transports.section import TransportSection
from topologies.spec.transports.tcp.section import TcpTransport
from topologies.units import RateBps, SizeBytes, TimeNs

Whole = Annotated[int, Field(strict=True)]
Rate = Annotated[RateBps | None, Field(default=None, gt=0)]

REORDERING_NS = 50_000
"""How long packets may overtake each other, where a spec does not say: flowlets' gap."""

STOCK_ACK_EVERY = 66
"""How many packets of a message rxe sends before it asks for an acknowledgement."""

_EACH_ACKNOWLEDGED = ("timely", "hpcc", "dctcp", "nscc")
"""Controllers that look at each acknowledgement."""

INT_MAX_HOPS = 8
"""GW_INT_MAX_HOPS of emulator/kernel/gwport_int.h."""


class Dcqcn(SpecSection):
    """DCQCN (Zhu et al., SIGCOMM 2015), by timers. At most one CNP an interval and queue pair;
    alpha, decrease and increase each have a clock. `fast_stages` increases of fast recovery come
    before additive increase, and one of that before hyper increase."""

    cnp_interval_ns: TimeNs = Field(default=4_000, alias="cnp_interval", gt=0)
    alpha_interval_ns: TimeNs = Field(default=1_000, alias="alpha_interval", gt=0)
    decrease_interval_ns: TimeNs = Field(default=4_000, alias="decrease_interval", gt=0)
    increase_interval_ns: TimeNs = Field(default=300_000, alias="increase_interval", gt=0)
    gain: float = Field(default=1 / 256, gt=0, le=1)
    fast_stages: Whole = Field(default=1, ge=0, le=1000)
    clamp_target: bool = False
    additive_bps: Rate = Field(default=None, alias="additive_increase")
    hyper_bps: Rate = Field(default=None, alias="hyper_increase")
    min_bps: Rate = Field(default=None, alias="min_rate")


class Timely(SpecSection):
    """TIMELY (Mittal et al., SIGCOMM 2015). RTTs are from the end of a packet's serialisation at
    its host to its acknowledgement; the rate changes once a round."""

    min_rtt_ns: TimeNs = Field(default=20_000, alias="min_rtt", gt=0)
    low_ns: TimeNs = Field(default=50_000, alias="low", gt=0)
    high_ns: TimeNs = Field(default=500_000, alias="high", gt=0, lt=10**9)
    ewma: float = Field(default=0.875, gt=0, le=1)
    beta: float = Field(default=0.8, gt=0, le=1)
    hyper_after: Whole = Field(default=5, ge=0, le=1000)
    additive_bps: Rate = Field(default=None, alias="additive_increase")
    hyper_bps: Rate = Field(default=None, alias="hyper_increase")
    min_bps: Rate = Field(default=None, alias="min_rate")

    @model_validator(mode="after")
    def _ordered(self) -> Timely:
        if self.low_ns > self.high_ns:
            raise ValueError("expected low <= high")
        return self


class Hpcc(SpecSection):
    """HPCC (Li et al., SIGCOMM 2019): ports write their load into packets, the fullest link of a
    path decides. `base_rtt` None: of the longest path of the fabric, without queues."""

    base_rtt_ns: TimeNs | None = Field(default=None, alias="base_rtt", gt=0, lt=10**9)
    target: float = Field(default=0.95, gt=0, le=1)
    max_stage: Whole = Field(default=0, ge=0, le=1000)
    additive_bps: Rate = Field(default=None, alias="additive_increase")
    min_bps: Rate = Field(default=None, alias="min_rate")


class Dctcp(SpecSection):
    """DCTCP (Alizadeh et al., SIGCOMM 2010; RFC 8257) as a window of a queue pair: `gain` of the
    share of packets that were marked (1/16: Linux's dctcp_shift_g). It begins at a line rate times
    the base RTT, or at `window`."""

    gain: float = Field(default=1 / 16, gt=0, le=1)


class Nscc(SpecSection):
    """NSCC of Ultra Ethernet 1.0, as htsim has it (uec.cpp of Broadcom/csg-htsim): a window by
    marks and by how long packets waited. `base_rtt` None: of the longest path of the fabric,
    without queues. `target` is the waiting that it aims at (None: three quarters of the base RTT
    where ports trim, else all of it)."""

    base_rtt_ns: TimeNs | None = Field(default=None, alias="base_rtt", gt=0, lt=10**9)
    target_ns: TimeNs | None = Field(default=None, alias="target", gt=0, le=10**8)


class Entropy(SpecSection):
    """Entropy values of a queue pair, as MRC has them (OCP Multipath Reliable Connection 1.0): each
    packet leaves from the UDP port of one of `values`, by turns. One whose packet was marked is
    skipped once; one whose packet was lost is left until a probe comes back, which is sent every
    `probe_interval`. `least` values are never left (None: a quarter)."""

    values: Whole = Field(default=128, ge=2, le=256)
    least: Whole | None = Field(default=None, ge=1)
    probe_interval_ns: TimeNs = Field(default=100_000, alias="probe_interval", gt=0, lt=10**9)

    @model_validator(mode="after")
    def _no_more_than_all(self) -> Entropy:
        if self.least is not None and self.least > self.values:
            raise ValueError(f"`least`: found {self.least}, allowed up to `values`, {self.values}")
        return self


@dataclass(frozen=True, slots=True)
class ControllerRates:
    """The steps in which a port's controller adds rate, at first and later, and its least rate, in
    bits/s."""

    additive_bps: int
    hyper_bps: int
    min_bps: int


class RoceTransport(TransportSection):
    """RDMA over Ethernet (RoCEv2): each host has an RDMA device on each of its ports. TCP beside it
    has its defaults.

    `ecn` None: requests are ECN-capable with dcqcn and dctcp. `window` bounds the unacknowledged
    payload of a queue pair (None: 16,384 packets; hpcc: a line rate times its base RTT, times its
    rate by the line rate; dctcp: that at first). `ack_every` packets an acknowledgement is asked
    for (None: 66; 8 with dcqcn; 1 with timely, hpcc, dctcp or a window). `class` is that of queue
    pairs' packets; None: as of the ranks' sockets. `rate_interval` is the least time between two
    records of a queue pair's rate; 0 records none. Two ranks have so many `connections`, each two
    queue pairs: a message is `split` over all of them, or `messages` go whole, each by one of them.

    A lost packet is sent again with all that follow it (`loss_recovery: go-back-n`), or alone
    (`selective-repeat`): it is lost where a packet that was sent later has come `reordering` ago
    (None: 50us). With selective repeat packets may take many paths, by `entropy`.
    """

    of_programs: ClassVar[bool] = True
    by_queue_pairs: ClassVar[bool] = True
    kind: Literal["roce"]
    congestion_control: Literal["none", "dcqcn", "timely", "hpcc", "dctcp", "nscc"] = "none"
    path_mtu_bytes: Literal[256, 512, 1024, 2048, 4096] = Field(default=1024, alias="path_mtu")
    qp_timeout_ns: TimeNs = Field(default=1_048_576, alias="qp_timeout", ge=4096, le=2**43)
    retry_count: Whole = Field(default=7, ge=0, le=7)
    ecn: Annotated[bool, Field(strict=True)] | None = None
    window_bytes: SizeBytes | None = Field(default=None, alias="window", gt=0)
    ack_every: Whole | None = Field(default=None, ge=1, le=16_384)
    rate_interval_ns: TimeNs = Field(default=10_000, alias="rate_interval")
    connections: Whole = Field(default=1, ge=1, le=64)
    spread: Literal["split", "messages"] = "split"
    loss_recovery: Literal["go-back-n", "selective-repeat"] = "go-back-n"
    reordering_ns: TimeNs | None = Field(default=None, alias="reordering", lt=10**9)
    entropy: Entropy | None = None
    traffic_class: TrafficClassName = Field(default=None, alias="class")
    dcqcn: Dcqcn | None = None
    timely: Timely | None = None
    hpcc: Hpcc | None = None
    dctcp: Dctcp | None = None
    nscc: Nscc | None = None

    @model_validator(mode="after")
    def _of_its_controller(self) -> RoceTransport:
        for name in ("dcqcn", "timely", "hpcc", "dctcp", "nscc"):
            if getattr(self, name) is not None and self.congestion_control != name:
                raise ValueError(
                    f"`{name}` is for congestion_control: {name}, which is "
                    f"{self.congestion_control} here"
                )
        if self.congestion_control == "nscc" and (not self.is_selective or self.entropy is None):
            raise ValueError(
                "`congestion_control`: found nscc, expected loss_recovery: selective-repeat and "
                "entropy beside it: bitmaps tell it what came, and answers at once what was marked"
            )
        if self.congestion_control == "nscc" and self.ack_every not in (None, 1):
            raise ValueError(
                f"`ack_every`: found {self.ack_every}, expected 1 with nscc: it looks at how long "
                "each packet waited, and a window that shrinks below it would hear of none"
            )
        if self.congestion_control == "dctcp":
            if self.is_selective:
                raise ValueError(
                    "`congestion_control`: found dctcp, expected loss_recovery: go-back-n beside "
                    "it: bitmaps do not say which packets were marked"
                )
            if self.ack_every not in (None, 1):
                raise ValueError(
                    f"`ack_every`: found {self.ack_every}, expected 1 with dctcp: an "
                    "acknowledgement tells of one packet's mark"
                )
        if self.window_bytes is not None and self.window_bytes < self.path_mtu_bytes:
            raise ValueError("expected a window of at least one packet of the path MTU")
        if self.reordering_ns is not None and not self.is_selective:
            raise ValueError("`reordering` is for loss_recovery: selective-repeat")
        if self.entropy is not None and not self.is_selective:
            raise ValueError(
                "`entropy` is for loss_recovery: selective-repeat, as packets of many paths "
                "overtake each other"
            )
        return self

    @property
    def tcp(self) -> TcpTransport:
        """With its defaults, for all that is not between queue pairs."""
        return TcpTransport()

    def words(self, ecn: bool) -> str:
        """With its congestion control and path MTU."""
        said = f"RoCE, congestion control {self.congestion_control}"
        said += f", path MTU {self.path_mtu_bytes}"
        if self.is_selective:
            said += ", selective repeat"
        if self.entropy is not None:
            said += f", {self.entropy.values} entropy values"
        return f"{said}, ECN" if self.ecn_capable else said

    @property
    def between_ranks(self) -> Connections:
        """Queue pairs, by which a split message goes in whole packets."""
        return Connections(self.connections, self.spread == "split", self.path_mtu_bytes)

    @property
    def own_class(self) -> TrafficClassName:
        """The class of queue pairs' packets."""
        return self.traffic_class

    @property
    def timeout_exponent(self) -> int:
        """Time-outs are 4.096 us * 2^n (InfiniBand volume 1, 9.7.6.1.3): the first that is not
        shorter."""
        units = -(-self.qp_timeout_ns // 4096)
        return max(1, (units - 1).bit_length())

    @property
    def controller(self) -> Dcqcn | Timely | Hpcc | Dctcp | Nscc | None:
        """The controller with its parameters; None without one."""
        match self.congestion_control:
            case "dcqcn":
                return self.dcqcn or Dcqcn()
            case "timely":
                return self.timely or Timely()
            case "hpcc":
                return self.hpcc or Hpcc()
            case "dctcp":
                return self.dctcp or Dctcp()
            case "nscc":
                return self.nscc or Nscc()
            case _:
                return None

    @property
    def ecn_capable(self) -> bool:
        """Whether ports may mark its requests."""
        marked = self.congestion_control in ("dcqcn", "dctcp", "nscc")
        return marked if self.ecn is None else self.ecn

    @property
    def is_selective(self) -> bool:
        """Whether a lost packet is sent again alone."""
        return self.loss_recovery == "selective-repeat"

    @property
    def hears_of_trims(self) -> bool:
        """With selective repeat."""
        return self.is_selective

    @property
    def as_linux_has_it(self) -> bool:
        """Whether queue pairs are those of stock Soft-RoCE."""
        return (
            self.congestion_control == "none"
            and not self.ecn_capable
            and self.packets_per_ack == STOCK_ACK_EVERY
            and self.window_bytes is None
            and not self.is_selective
        )

    @property
    def packets_per_ack(self) -> int:
        """How many packets of a message are sent before an acknowledgement is asked for."""
        if self.ack_every is not None:
            asked = self.ack_every
        elif self.window_bytes is not None or self.congestion_control in _EACH_ACKNOWLEDGED:
            asked = 1
        else:
            asked = 8 if self.congestion_control == "dcqcn" else STOCK_ACK_EVERY
        if self.window_bytes is not None:
            asked = min(asked, self.window_bytes // self.path_mtu_bytes)
        return asked


PART = RoceTransport


def controller_rates(of: Dcqcn | Timely | Hpcc, line_bps: int) -> ControllerRates:
    """The rates of a controller at a port, those that the spec leaves open in proportion to the
    port's: HPCC's simulator has AI and HAI in Mb/s of 5 and 50 for DCQCN, 25 and 125 for TIMELY
    and 10 for HPCC, each at 25 Gb/s, and 1 Gb/s as the least at 100 Gb/s."""
    additive, hyper = {"Dcqcn": (5, 50), "Timely": (25, 125), "Hpcc": (10, 10)}[type(of).__name__]
    per_mbps = 25_000
    least = of.min_bps or max(1, line_bps // 100)
    asked_hyper = None if isinstance(of, Hpcc) else of.hyper_bps
    return ControllerRates(
        of.additive_bps or max(1, line_bps * additive // per_mbps),
        asked_hyper or max(1, line_bps * hyper // per_mbps),
        min(least, line_bps),
    )
