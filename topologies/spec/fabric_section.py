"""The `fabric` section of a spec: which nodes and links there are, and how fast each is."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from topologies.graph_files import read_graph_file
from topologies.spec.bus_section import LINKS as BUS_LINKS
from topologies.spec.bus_section import BusSpec
from topologies.spec.foreign_files import keys_with_file
from topologies.spec.queue_section import DropTail, QueueSpec, SpecSection
from topologies.spec.routing_section import Routing
from topologies.units import RateBps, TimeNs, format_rate, parse_size_bytes

Integer = Annotated[int, Field(strict=True)]
"""A whole number; `yes` and `"4"` are not."""

MtuBytes = Annotated[int, BeforeValidator(parse_size_bytes)]
"""Parsed like every size, but written as the plain number that it is known by."""

MIN_MTU_BYTES = 576
MAX_MTU_BYTES = 65_535
MAX_HOSTS = 4096
MAX_BUS_HOSTS = 512
"""Each node inside a server has a route of its own to each host."""
MAX_RATE_BPS = 10**13
MAX_DELAY_NS = 10**10


def _check_rate(rate_bps: int | None) -> int | None:
    if rate_bps is not None and not 1_000 <= rate_bps <= MAX_RATE_BPS:
        raise ValueError("expected a rate from 1kbps to 10Tbps")
    return rate_bps


def _check_delay(delay_ns: int | None) -> int | None:
    if delay_ns is not None and delay_ns > MAX_DELAY_NS:
        raise ValueError("expected a delay of at most 10s")
    return delay_ns


def _check_mtu(mtu_bytes: int | None) -> int | None:
    if mtu_bytes is not None and not MIN_MTU_BYTES <= mtu_bytes <= MAX_MTU_BYTES:
        raise ValueError(f"expected an MTU from {MIN_MTU_BYTES} to {MAX_MTU_BYTES} bytes")
    return mtu_bytes


class LinkOverride(SpecSection):
    """Settings of the links of one class; None inherits `fabric.link`."""

    rate_bps: RateBps | None = Field(default=None, alias="rate")
    delay_ns: TimeNs | None = Field(default=None, alias="delay")
    mtu_bytes: MtuBytes | None = Field(default=None, alias="mtu")

    _rate = field_validator("rate_bps")(_check_rate)
    _delay = field_validator("delay_ns")(_check_delay)
    _mtu = field_validator("mtu_bytes")(_check_mtu)


class LinkSpec(SpecSection):
    """A link: L1 rate (preamble, FCS and gap are part of it) and propagation delay of each
    direction, and the IP MTU."""

    rate_bps: RateBps = Field(default=100_000_000_000, alias="rate")
    delay_ns: TimeNs = Field(default=500, alias="delay")
    mtu_bytes: MtuBytes = Field(default=9000, alias="mtu")

    _rate = field_validator("rate_bps")(_check_rate)
    _delay = field_validator("delay_ns")(_check_delay)
    _mtu = field_validator("mtu_bytes")(_check_mtu)

    def overridden(self, *overrides: LinkOverride) -> LinkSpec:
        """This link with the given overrides applied in order; the last one wins."""
        values: dict[str, int] = {}
        for override in overrides:
            values |= {k: v for k, v in override if v is not None}
        return self.model_copy(update=values)


class FabricSection(SpecSection):
    """The keys of every kind of fabric.

    `queues` overrides `queue` for the egress ports that a selector names
    (`topologies.fabrics.selectors`): a link class, `hosts`, `switches`, a node, a port `node:peer`,
    or an interface; the more
    specific wins.
    """

    link: LinkSpec = LinkSpec()
    queue: QueueSpec = DropTail()
    queues: dict[str, QueueSpec] = Field(default_factory=dict)

    @property
    def gpus_per_server(self) -> int:
        """How many hosts in a row are GPUs of one server; 1 where each is a server of its own."""
        return 1


class RegularSection(FabricSection):
    """A fabric that a builder lays out. `links` overrides `link` per link class."""

    links: dict[str, LinkOverride] = Field(default_factory=dict)


SCALE_UP_CLASS = "scale-up"
"""The link class of GPUs' ports to the switch of their server."""
MAX_GPUS_PER_HOST = 64


class ServersSection(RegularSection):
    """A fabric whose hosts can be servers: with `gpus_per_host` each is so many GPUs, which are the
    fabric's hosts then, on a scale-up switch, with a NIC that they share."""

    gpus_per_host: Integer = Field(default=1, ge=1, le=MAX_GPUS_PER_HOST)

    @property
    @abstractmethod
    def host_count(self) -> int:
        """Hosts, which are servers where they have several GPUs."""

    @property
    def gpus_per_server(self) -> int:
        return self.gpus_per_host

    @model_validator(mode="after")
    def _servers(self) -> Self:
        if self.gpus_per_host == 1:
            return self
        scale_up = self.links.get(SCALE_UP_CLASS)
        if scale_up is None or scale_up.rate_bps is None:
            raise ValueError(
                f"expected links: {{{SCALE_UP_CLASS}: {{rate: ...}}}} with gpus_per_host: the GPUs "
                "of a server talk over links of a stated rate"
            )
        if self.host_count * self.gpus_per_host > MAX_HOSTS:
            raise ValueError(
                f"expected gpus_per_host times {self.host_count} hosts to be at most {MAX_HOSTS}"
            )
        return self


class FatTreeSpec(ServersSection):
    """k-ary fat-tree of Al-Fares et al. (SIGCOMM 2008): k pods, k^3/4 hosts, 5k^2/4 switches."""

    kind: Literal["fat-tree"]
    k: Integer
    routing: Routing = "ecmp"

    @property
    def host_count(self) -> int:
        return self.k**3 // 4

    @field_validator("k")
    @classmethod
    def _even(cls, k: int) -> int:
        if k % 2 or not 4 <= k <= 26:
            raise ValueError("expected an even number from 4 to 26")
        return k


class GridSection(RegularSection):
    """Hosts on a grid of 2 or 3 axes, without switches: the hosts forward."""

    dims: tuple[Integer, ...]
    routing: Literal["dimension-order", "ecmp", "static"] = "dimension-order"

    @field_validator("dims")
    @classmethod
    def _axes(cls, dims: tuple[int, ...]) -> tuple[int, ...]:
        if len(dims) not in (2, 3):
            raise ValueError("expected 2 or 3 axes, such as [4, 4] or [4, 4, 4]")
        if not all(2 <= axis <= 64 for axis in dims):
            raise ValueError("expected every axis to be from 2 to 64 long")
        hosts = 1
        for axis in dims:
            hosts *= axis
        if hosts > MAX_HOSTS:
            raise ValueError(f"expected at most {MAX_HOSTS} hosts")
        return dims


class TorusSpec(GridSection):
    """A grid whose axes are rings: the last host of an axis has a link to its first."""

    kind: Literal["torus"]


class MeshSpec(GridSection):
    """A grid whose axes are lines: a torus without the links that close its rings."""

    kind: Literal["mesh"]


class LeafSpineSpec(ServersSection):
    """Two-level Clos: every leaf has one link to every spine.

    Oversubscribed by hosts_per_leaf / spines at equal rates, or by
    `links: {leaf-spine: {rate: ...}}`.
    """

    kind: Literal["leaf-spine"]
    leaves: Integer = Field(ge=1, le=128)
    spines: Integer = Field(ge=1, le=64)
    hosts_per_leaf: Integer = Field(ge=1, le=128)
    routing: Routing = "ecmp"

    @property
    def host_count(self) -> int:
        return self.leaves * self.hosts_per_leaf

    @model_validator(mode="after")
    def _size(self) -> LeafSpineSpec:
        if self.leaves * self.hosts_per_leaf > MAX_HOSTS:
            raise ValueError(f"expected leaves * hosts_per_leaf <= {MAX_HOSTS}")
        return self


class HierarchicalSpec(RegularSection):
    """Groups of hosts behind a fast inner switch, groups joined by outer switches.

    As in topologies/seed-dlrm-hier.yaml. Set the two levels' speeds by
    `links: {inner: {...}, outer: {...}}`; each group has one link to each outer switch.
    """

    kind: Literal["hierarchical"]
    groups: Integer = Field(ge=1, le=128)
    hosts_per_group: Integer = Field(ge=1, le=128)
    outer_switches: Integer = Field(default=1, ge=1, le=64)
    routing: Routing = "ecmp"

    @model_validator(mode="after")
    def _size(self) -> HierarchicalSpec:
        if self.groups * self.hosts_per_group > MAX_HOSTS:
            raise ValueError(f"expected groups * hosts_per_group <= {MAX_HOSTS}")
        return self


_MAX_GROUPS = 128


def _with_every_pair(value: object) -> object:
    """The section with the groups that have one global link to each other, where it gives none."""
    if not isinstance(value, dict) or "groups" in value:
        return value
    switches = value.get("routers_per_group", value.get("spines_per_group"))
    links = value.get("global_links")
    if not isinstance(switches, int) or not isinstance(links, int):
        return value
    if switches * links >= _MAX_GROUPS:
        raise ValueError(
            f"expected groups, as at most {_MAX_GROUPS}: {switches * links + 1} would have one "
            "global link to each other"
        )
    return {**value, "groups": switches * links + 1}


class _GroupsSection(RegularSection):
    """Groups of switches, each pair of them joined by as many global links."""

    global_links: Integer = Field(ge=1, le=64)
    groups: Integer = Field(default=2, ge=2, le=_MAX_GROUPS)
    routing: Routing = "ecmp"

    _every_pair = model_validator(mode="before")(_with_every_pair)

    @property
    @abstractmethod
    def global_ports(self) -> int:
        """The global links of a group."""

    @property
    @abstractmethod
    def hosts_per_group(self) -> int:
        """All on switches of the group."""

    @model_validator(mode="after")
    def _joined(self) -> Self:
        if self.global_ports % (self.groups - 1):
            raise ValueError(
                f"expected the {self.global_ports} global links of a group to be a multiple of "
                f"groups - 1, which is {self.groups - 1}"
            )
        if self.groups * self.hosts_per_group > MAX_HOSTS:
            raise ValueError(f"expected at most {MAX_HOSTS} hosts")
        return self


class DragonflySpec(_GroupsSection):
    """Groups of routers that all have a link to each other (Kim et al., ISCA 2008: their a, p, h
    and g). Each router has so many `global_links`. Without `groups` there are as many as have one
    link to each other."""

    kind: Literal["dragonfly"]
    routers_per_group: Integer = Field(ge=1, le=64)
    hosts_per_router: Integer = Field(ge=1, le=128)

    @property
    def global_ports(self) -> int:
        return self.routers_per_group * self.global_links

    @property
    def hosts_per_group(self) -> int:
        return self.routers_per_group * self.hosts_per_router


class DragonflyPlusSpec(_GroupsSection):
    """Groups that are leaf-spines, whose spines have the `global_links`, so many each (Shpiner et
    al., HiPINEB 2017)."""

    kind: Literal["dragonfly+"]
    leaves_per_group: Integer = Field(ge=1, le=64)
    spines_per_group: Integer = Field(ge=1, le=64)
    hosts_per_leaf: Integer = Field(ge=1, le=128)

    @property
    def global_ports(self) -> int:
        return self.spines_per_group * self.global_links

    @property
    def hosts_per_group(self) -> int:
        return self.leaves_per_group * self.hosts_per_leaf


class ServerPreset(SpecSection):
    """A server as its maker describes it: GPUs, the rate of one GPU's port to the NVLink switch and
    of its NIC, and what NCCL finds in it."""

    gpu: str
    cpu: str
    hosts_per_server: int
    scale_up_bps: int
    nic_bps: int
    gpus_per_switch: int = 1


SERVERS = {
    "dgx-a100": ServerPreset(
        gpu="a100",
        cpu="amd",
        hosts_per_server=8,
        scale_up_bps=1_920_000_000_000,
        nic_bps=200_000_000_000,
        gpus_per_switch=2,
    ),
    "dgx-h100": ServerPreset(
        gpu="h100",
        cpu="intel",
        hosts_per_server=8,
        scale_up_bps=2_966_400_000_000,
        nic_bps=400_000_000_000,
    ),
    "dgx-h200": ServerPreset(
        gpu="h200",
        cpu="intel",
        hosts_per_server=8,
        scale_up_bps=2_966_400_000_000,
        nic_bps=400_000_000_000,
    ),
}
"""Servers by name. Counts and NICs are those of NVIDIA's user guides of DGX A100, H100 and H200.
The scale-up rate is what NCCL counts on for all NVLinks of a GPU together (12 links of 20 GB/s, 18
of 20.6: SM80_NVLINK_BW and SM90_NVLINK_BW of its src/graph/topo.h), below the nominal 25 each."""


class ScaleUpSpec(SpecSection):
    """The way of programs' messages between two hosts of one server. `packets`: those of the
    ranks' transport, over the links of class scale-up. `copies`: a copy of memory each, which takes
    the delays of its links and its bytes at their rate (topologies/fabrics/copies.py)."""

    kind: Literal["packets", "copies"] = "packets"


SCALE_UP: Mapping[str, object] = MappingProxyType({"delay": "100ns", "mtu": 65_535})
"""The delay and the MTU of a known server's links to its NVLink switch, beside their rate."""

NIC: Mapping[str, object] = MappingProxyType({"delay": "2.2us"})
"""As much for its NICs. Two such links take what NCCL's tuner adds for a step over the network,
4.4 us (LL, tree: hwLat of its src/graph/tuning.cc)."""


def _with_preset(value: object) -> object:
    """The section with what its `server` stands for; given keys go before that."""
    if not isinstance(value, dict) or not isinstance(value.get("server"), str):
        return value
    preset = SERVERS.get(value["server"])
    if preset is None:
        return value
    links = value.get("links")
    given = links if isinstance(links, dict) else {}
    known: dict[str, dict[str, object]] = {
        "scale-up": {"rate": format_rate(preset.scale_up_bps), **SCALE_UP},
        "nic": {"rate": format_rate(preset.nic_bps), **NIC},
        "spine": {"rate": format_rate(preset.nic_bps)},
    }
    merged: dict[str, object] = dict(given)
    for name, defaults in known.items():
        own = given.get(name, {})
        merged[name] = {**defaults, **own} if isinstance(own, dict) else own
    return {"hosts_per_server": preset.hosts_per_server, **value, "links": merged}


def _with_bus(value: object) -> object:
    """The section with the links of its `bus`, where it says nothing of them."""
    if not isinstance(value, dict) or not isinstance(value.get("bus"), dict):
        return value
    preset = value["bus"].get("preset")
    links = value.get("links")
    merged: dict[str, object] = dict(links) if isinstance(links, dict) else {}
    for name, defaults in BUS_LINKS.get(preset or "", {}).items():
        own = merged.get(name, {})
        merged[name] = {**defaults, **own} if isinstance(own, dict) else own
    return {**value, "links": merged}


def _joins_rails(data: dict[str, object]) -> bool:
    return not data.get("spines") and data.get("servers_per_leaf") is None


class RailsSpec(RegularSection):
    """Servers of hosts (GPUs) with two ports each: one to the server's scale-up switch, and a NIC.

    NICs go to a rail, which is a switch for each local rank, or with `servers_per_leaf` to the
    server's leaf. `spines` join rails or leaves; `pxn` crosses rails by way of the neighbour whose
    NIC is on the right one, inside the sender's server. `server` is a known one, which sets the
    hosts of each and their links where the spec does not. `bus` is what is between a host and its
    NIC: PCIe switches and root complexes, which hosts share. With `planes` each NIC has a port in
    each of so many networks of leaves, or rails, and spines, which nothing joins.
    """

    kind: Literal["rails"]
    server: Literal["dgx-a100", "dgx-h100", "dgx-h200"] | None = None
    servers: Integer = Field(ge=1, le=128)
    hosts_per_server: Integer = Field(ge=1, le=128)
    servers_per_leaf: Integer | None = Field(default=None, ge=1, le=128)
    spines: Integer = Field(default=0, ge=0, le=64)
    pxn: bool = Field(default_factory=_joins_rails, strict=True)
    bus: BusSpec | None = None
    planes: Integer = Field(default=1, ge=1, le=16)
    scale_up: ScaleUpSpec = ScaleUpSpec()
    routing: Routing = "ecmp"

    _preset = model_validator(mode="before")(_with_preset)
    _bus = model_validator(mode="before")(_with_bus)

    @property
    def gpus_per_server(self) -> int:
        return self.hosts_per_server

    @property
    def preset(self) -> ServerPreset | None:
        """The model of its servers, where it is known."""
        return None if self.server is None else SERVERS[self.server]

    @property
    def lowers(self) -> int:
        """Rails, or leaves."""
        if self.servers_per_leaf is None:
            return self.hosts_per_server
        return self.servers // self.servers_per_leaf

    @model_validator(mode="after")
    def _joined(self) -> RailsSpec:
        if not 2 <= self.servers * self.hosts_per_server <= MAX_HOSTS:
            raise ValueError(f"expected servers * hosts_per_server from 2 to {MAX_HOSTS}")
        if self.scale_up.kind == "copies" and self.pxn and min(self.lowers, self.servers) > 1:
            raise ValueError(
                "expected pxn: false with scale_up: {kind: copies}, and spines: 1 or more to cross "
                "rails: what a neighbour forwards would be packets on the links of copies"
            )
        if self.bus is not None:
            self._expect_bus(self.bus)
        if self.planes > 1 and self.bus is not None:
            raise ValueError("expected no bus with planes: NICs of a bus have one port")
        if self.planes > 1 and self.pxn:
            raise ValueError(
                "expected pxn: false with planes, and spines: 1 or more to cross rails: a "
                "neighbour would forward by ways that are not of one plane"
            )
        if self.servers_per_leaf is not None:
            if self.pxn:
                raise ValueError("expected pxn: false with servers_per_leaf: leaves are no rails")
            if self.servers % self.servers_per_leaf:
                raise ValueError("expected servers to be a multiple of servers_per_leaf")
            if self.lowers > 1 and not self.spines:
                raise ValueError(f"expected spines: 1 or more, to join {self.lowers} leaves")
        elif min(self.lowers, self.servers) > 1 and not self.spines and not self.pxn:
            raise ValueError("expected pxn: true, or spines: 1 or more, to cross rails")
        return self

    def _expect_bus(self, bus: BusSpec) -> None:
        if self.spines or self.servers_per_leaf is not None:
            raise ValueError(
                "expected neither spines nor servers_per_leaf with a bus: NICs are on rails"
            )
        if len(bus.accelerators) != self.hosts_per_server:
            raise ValueError(
                f"expected hosts_per_server: {len(bus.accelerators)}, as bus.accelerators has"
            )
        if self.servers * self.hosts_per_server > MAX_BUS_HOSTS:
            raise ValueError(f"expected at most {MAX_BUS_HOSTS} hosts with a bus")


class FlatSpec(ServersSection):
    """All hosts on one switch."""

    kind: Literal["flat"]
    hosts: Integer = Field(ge=2, le=MAX_HOSTS)
    routing: Routing = "ecmp"

    @property
    def host_count(self) -> int:
        return self.hosts


def _check_node_name(name: str) -> str:
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,9}", name) is None:
        raise ValueError("expected a letter and up to 9 more letters, digits, - or _")
    return name


NodeName = Annotated[str, AfterValidator(_check_node_name)]


class GraphNodeSpec(SpecSection):
    """A node of an explicit graph. A switch forwards; a host does when told to."""

    name: NodeName
    kind: Literal["host", "switch"]
    forwards: bool = Field(default_factory=lambda data: data.get("kind") == "switch", strict=True)


class GraphLinkSpec(LinkOverride):
    """A link of an explicit graph; what it leaves out comes from its class and `fabric.link`.
    `queue` is that of both of its ports."""

    ends: tuple[str, str]
    link_class: str = Field(default="link", alias="class")
    queue: QueueSpec | None = None


class GraphSpec(FabricSection):
    """Explicit nodes and links, or those of a file at `path`: ns-3's topologies, GraphML,
    InfraGraph (topologies/graph_files.py). Two links between the same nodes are two links.

    `routes`: node -> host -> the neighbour to which the node sends what is for that host, in place
    of its shortest ways.
    """

    kind: Literal["graph"]
    path: str | None = Field(default=None, min_length=1)
    nodes: tuple[GraphNodeSpec, ...] = Field(min_length=1)
    links: tuple[GraphLinkSpec, ...] = Field(min_length=1)
    routing: Routing = "ecmp"
    routes: dict[str, dict[str, str]] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: Any) -> Any:
        """The nodes and links of a file; a resolved spec has no `path`."""
        if not isinstance(data, dict) or not isinstance(data.get("path"), str):
            return data
        if "nodes" in data or "links" in data:
            raise ValueError("expected either path, or nodes and links")
        return keys_with_file(data, "fabric", read_graph_file)


SERVERS_KINDS = ("fat-tree", "leaf-spine", "flat")
"""The kinds whose hosts can be servers of several GPUs."""

FabricSpec = Annotated[
    FatTreeSpec
    | TorusSpec
    | MeshSpec
    | LeafSpineSpec
    | HierarchicalSpec
    | RailsSpec
    | DragonflySpec
    | DragonflyPlusSpec
    | FlatSpec
    | GraphSpec,
    Field(discriminator="kind"),
]
