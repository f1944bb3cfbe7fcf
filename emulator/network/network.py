"""A fabric in the kernel at hand: namespaces, links, addresses, routes and queues, up and down.

Used as root on both kernels. Whatever is made is written to the session's registry first.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from emulator.linux import congestion_control, namespaces, rtnetlink
from emulator.linux.messages.formats import RTM_DELNEXTHOP, RTM_DELROUTE
from emulator.linux.netlink import NetlinkSocket, Request
from emulator.network.blueprint import Blueprint
from emulator.network.carrier import await_carrier, refresh_link_state
from emulator.network.coalescing import coalesce_received, disable_segmentation
from emulator.network.path_manager import PathManager
from emulator.network.registry import NETNS_DIRECTORY, Session, remove_dead
from emulator.network.sysctls import TcpSettings, node_sysctls, write_sysctls
from emulator.ports.arrangement import (
    Impairment,
    NetemArrangement,
    PortArrangement,
    PortContext,
    QueueCounters,
    UnsupportedPort,
)
from emulator.ports.counters import (
    InterfaceStatistics,
    PortCounters,
    TcpCounters,
    port_counters,
    read_interfaces,
    read_next_hop_choices,
    read_qdiscs,
    read_softnet_drops,
    read_tcp,
    read_unrouted,
)
from emulator.ports.idle_filler import IdleFiller
from emulator.ports.pauses import PauseControl
from emulator.ports.port_watch import PortWatch
from topologies.cache_folder import cache_folder
from topologies.fabrics.fabric import Fabric, Link, NodeKind, Port
from topologies.routing.routes import Routes
from topologies.spec.routing_section import Source

_TEMPORARY = Path("/tmp")
_MAX_BACKLOG = Path("/proc/sys/net/core/netdev_max_backlog")
# The least that one CPU's receive backlog must hold: veth hands every packet through it, and
# packets that do not fit are lost outside any queue.
_BACKLOG_PACKETS = 100_000
_ALLOWED_CONTROLS = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")


Devices = Mapping[str, tuple[str, ...]]
"""By host: the names of a transport's devices, in order of its ports."""

SetUp = Callable[["Network", Mapping[str, tuple[PortContext, ...]]], Devices]
"""(the network, whose ports are up; the ports of each host) -> the devices that were made, each
recorded in the network's session first. Raises OSError."""


@dataclass(frozen=True)
class NetworkOptions:
    """How a fabric is brought up.

    `receive_coalescing_ns` is how long a host's port may hold received packets to hand them up
    together; 0 never does. `watched` ports are counted while they are busy (`Network.watch`), which
    needs eBPF classifiers: without them making the network raises OSError. `aggregating` switches
    have processes that talk TCP, with the switches next to them and with hosts. `set_up` makes what
    a transport needs on hosts.
    """

    arrangement: PortArrangement = field(default_factory=NetemArrangement)
    transport: TcpSettings = field(default_factory=TcpSettings)
    hash_seed: int = 1
    receive_coalescing_ns: int = 0
    watched: bool = False
    aggregating: frozenset[str] = frozenset()
    set_up: SetUp | None = None


class Network:
    """The fabric, live. A context manager; `up` and `down` can be called by hand as well.

    Not thread-safe for `up`, `down` and `set_link`; `enter` concerns the calling thread only.
    """

    def __init__(self, fabric: Fabric, routes: Routes, options: NetworkOptions) -> None:
        self.fabric = fabric
        self.routes = routes
        self.options = options
        self.session: Session | None = None
        self.pause_controller: PauseControl | None = None
        self.path_manager: PathManager | None = None
        """That of MPTCP's connections, which a transport's `set_up` makes."""
        self._softnet_before = 0
        self._fallen: set[int] = set()
        self._down: set[int] = set()
        self.watch: PortWatch | None = None
        self._filler: IdleFiller | None = None
        if options.watched:
            self.watch = PortWatch(fabric)
            if options.arrangement.needs_fillers:
                self._filler = IdleFiller(fabric, options.arrangement.lateness_ns)
        self._blueprint = Blueprint(
            fabric,
            options.arrangement,
            options.transport,
            self.watch,
            self._filler,
            options.aggregating,
        )
        self._contexts = self._blueprint.contexts
        self.devices: Devices = {}
        """The devices of a transport of each host that has any, in order of its ports; of a network
        that is up."""

    def __enter__(self) -> Network:
        self.up()
        return self

    def __exit__(self, *exception: object) -> None:
        self.down()

    # -- up and down -------------------------------------------------------------------------------

    def up(self) -> None:
        """Brings the fabric up; when it returns, every link carries packets. Sessions that were
        killed are cleaned up first.

        Raises OSError (NetlinkError) with the kernel's own message, and UnsupportedPort for a port
        that the arrangement cannot make; nothing is left behind then.
        """
        if self.session is not None:
            raise RuntimeError("the network is up already")
        remove_dead()
        self.session = Session.create()
        try:
            self._softnet_before = read_softnet_drops()
            self._raise_backlog()
            self._allow_congestion_control()
            self._make_namespaces()
            if self.options.set_up is not None:
                hosts = {host.name: self._contexts[host.name] for host in self.fabric.hosts}
                self.devices = self.options.set_up(self, hosts)
            arrangement = self.options.arrangement
            self.pause_controller = arrangement.pause_controller(self._contexts, self.netns_path)
            if self.pause_controller is not None:
                self.pause_controller.start()
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Removes everything that `up` made. Does nothing when the network is down."""
        session, self.session = self.session, None
        if session is None:
            return
        if self.pause_controller is not None:
            self.pause_controller.stop()
        if self.path_manager is not None:
            self.path_manager.stop()  # its sockets would keep namespaces
        result = session.remove()
        if result.left:
            raise OSError("could not remove " + "; ".join(result.left))

    def _raise_backlog(self) -> None:
        if int(_MAX_BACKLOG.read_text()) < _BACKLOG_PACKETS:
            self._session.change_sysctl(_MAX_BACKLOG, str(_BACKLOG_PACKETS))

    def _allow_congestion_control(self) -> None:
        """A namespace may only default to an algorithm that the machine's own namespace allows."""
        wanted = self.options.transport.congestion_control
        congestion_control.ensure(wanted)
        allowed = _ALLOWED_CONTROLS.read_text().split()
        if wanted not in allowed:
            self._session.change_sysctl(_ALLOWED_CONTROLS, " ".join([*allowed, wanted]))

    def _make_namespaces(self) -> None:
        session = self._session
        paths = [self.netns_path(node.name) for node in self.fabric.nodes]
        nodes = dict(zip(paths, self.fabric.nodes, strict=True))
        marks = any(
            p.queue.kind != "droptail" for link in self.fabric.links for p in (link.a, link.b)
        )

        strides = self.routes.strides if isinstance(self.fabric.choice, Source) else {}

        def configure(path: Path) -> None:
            node = nodes[path]
            write_sysctls(
                node_sysctls(
                    node,
                    self.options.transport,
                    multihomed=len(self._contexts[node.name]) > 1,
                    marks=marks,
                    hash_seed=self.options.hash_seed,
                    choice=self.fabric.choice,
                    stride=strides.get(node.layer, 1),
                    aggregates=node.name in self.options.aggregating,
                )
            )

        session.record_namespaces()
        session.netns_directory.mkdir()
        namespaces.mount_tmpfs(session.netns_directory)
        self._show_namespaces(paths)
        with namespaces.many_files(len(paths)):
            descriptors = namespaces.create(paths, configure)
            try:
                by_node = dict(zip((n.name for n in self.fabric.nodes), descriptors, strict=True))
                # From an empty namespace: until Linux 6.14 the kernel looks for the index that is
                # asked for in the sender's namespace too, where eth0 may have it.
                with namespaces.scratch():
                    maker = NetlinkSocket()
                with maker:
                    maker.execute(self._blueprint.link_requests(by_node))
                with namespaces.home():
                    for node, descriptor in by_node.items():
                        namespaces.enter_descriptor(descriptor)
                        with NetlinkSocket() as netlink:
                            netlink.execute(self._blueprint.node_requests(node, self.routes))
                        self._coalesce(node)
                    for node, descriptor in by_node.items():
                        namespaces.enter_descriptor(descriptor)
                        with NetlinkSocket() as netlink:
                            ports = [context.ifindex for context in self._contexts[node]]
                            await_carrier(netlink, ports, node)
                            more = self._blueprint.requests_with_carriers(node, self.routes)
                            if more:
                                netlink.execute(more)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def _show_namespaces(self, paths: list[Path]) -> None:
        """Links in /run/netns, for `ip netns exec gw<session>-<node>`."""
        session = self._session
        if not NETNS_DIRECTORY.exists():
            session.record_directory(NETNS_DIRECTORY)
            NETNS_DIRECTORY.mkdir(mode=0o755, parents=True, exist_ok=True)
        links = {NETNS_DIRECTORY / f"gw{session.id}-{path.name}": path for path in paths}
        session.record_links(links)
        for link, target in links.items():
            link.symlink_to(target)

    def _coalesce(self, node: str) -> None:
        """Only on hosts: a router would forward what it merged as one packet."""
        hold_ns = self.options.receive_coalescing_ns
        if not hold_ns:
            return
        disable_segmentation(
            c.port.interface
            for c in self._contexts[node]
            if self.fabric.by_name[c.link.other(node).node].kind is NodeKind.HOST
        )
        if self.fabric.by_name[node].kind is not NodeKind.HOST:
            return
        if self.fabric.by_name[node].forwards:
            raise UnsupportedPort(
                f"receive coalescing cannot be used on {node}, a host that forwards"
            )
        sysfs = self._session.directory / "sysfs"
        sysfs.mkdir(exist_ok=True)
        coalesce_received([c.port.interface for c in self._contexts[node]], hold_ns, sysfs)

    # -- using it ----------------------------------------------------------------------------------

    @property
    def _session(self) -> Session:
        if self.session is None:
            raise RuntimeError("the network is down")
        return self.session

    def netns_path(self, node: str) -> Path:
        """The file that is a node's network namespace. Raises KeyError for an unknown node."""
        return self._session.netns_directory / self.fabric.by_name[node].name

    def shared_memory(self, node: str) -> tuple[Path, Path]:
        """A node's namespace of System V's shared memory, and the directory of POSIX's: what its
        processes share, and no other's. Made when first asked for; they go with the network.

        Raises OSError, and KeyError for an unknown node."""
        own = self._session.netns_directory / "hosts" / self.fabric.by_name[node].name
        ipc, memory = own / "ipc", own / "shm"
        if not own.exists():
            own.mkdir(parents=True)
            memory.mkdir()
            memory.chmod(0o1777)
            namespaces.create_ipc(ipc)
        return ipc, memory

    def temporary(self, node: str) -> Path:
        """The directory that a node's processes have for /tmp: empty, but for what is mounted below
        /tmp, and the cache, where a guest keeps libraries that it compiles. Made when first asked
        for; it goes with the network.

        Raises OSError, and KeyError for an unknown node."""
        made = self._session.netns_directory / "temporary" / self.fabric.by_name[node].name
        if not made.exists():
            made.mkdir(parents=True)
            made.chmod(0o1777)
            namespaces.show_mounts_below(_TEMPORARY, made)
            cache = cache_folder("kernel", "the virtual kernel")
            if _TEMPORARY in cache.parents:
                cache.mkdir(parents=True, exist_ok=True)
                namespaces.show(cache, made / cache.relative_to(_TEMPORARY))
        return made

    def enter(self, node: str) -> AbstractContextManager[None]:
        """The calling thread is in the node's network namespace for the length of the block."""
        return namespaces.entered(self.netns_path(node))

    @contextlib.contextmanager
    def netlink(self, node: str) -> Iterator[NetlinkSocket]:
        """A netlink socket of the node's namespace; the calling thread stays where it is."""
        with self.enter(node):
            socket = NetlinkSocket()
        with socket:
            yield socket

    def contexts(self, node: str) -> tuple[PortContext, ...]:
        """The node's ports as the arrangement sees them, in order of link index."""
        return self._contexts[node]

    def port_counters(self) -> list[PortCounters]:
        """The counters of all ports, in order of link and end (a, then b)."""
        interfaces: dict[str, InterfaceStatistics] = {}
        queues: dict[str, QueueCounters] = {}
        for node, contexts in self._contexts.items():
            with self.netlink(node) as netlink:
                statistics = read_interfaces(netlink)
                qdiscs = read_qdiscs(netlink)
            for context in contexts:
                name = context.port.interface
                interfaces[name] = statistics[context.ifindex]
                queues[name] = self.options.arrangement.counters(
                    context, qdiscs.get(context.ifindex, [])
                )
        if self._filler is not None:
            for context in (each for ports in self._contexts.values() for each in ports):
                packets, sent_bytes = self._filler.sent(context.link, context.port)
                name = context.port.interface
                own = interfaces[name]
                interfaces[name] = replace(
                    own, tx_packets=own.tx_packets - packets, tx_bytes=own.tx_bytes - sent_bytes
                )
        return [
            port_counters(
                link, port, interfaces, queues[port.interface], link.index in self._fallen
            )
            for link in self.fabric.links
            for port in (link.a, link.b)
        ]

    def tcp_counters(self) -> dict[str, TcpCounters]:
        """Host, or switch that aggregates -> its TCP counters."""
        found = {}
        for node in self.fabric.nodes:
            if node.kind is NodeKind.HOST or node.name in self.options.aggregating:
                with self.enter(node.name):
                    found[node.name] = read_tcp()
        return found

    def unrouted(self) -> dict[str, int]:
        """Node -> how many packets it has lost for lack of a route; those that lost none are left
        out."""
        found = {}
        for node in self.fabric.nodes:
            with self.enter(node.name):
                found[node.name] = read_unrouted(node.kind is NodeKind.SWITCH)
        return {name: lost for name, lost in found.items() if lost}

    def next_hop_choices(self) -> dict[str, dict[str, int]]:
        """Node -> for how many packets it chose among next hops by more than a hash (`packets`),
        and how often a flow went on by another (`moves`); those that hash are left out."""
        found = {}
        for node in self.fabric.nodes:
            if node.forwards:
                with self.enter(node.name):
                    packets, moves = read_next_hop_choices()
                if packets:
                    found[node.name] = {"packets": packets, "moves": moves}
        return found

    def softnet_drops(self) -> int:
        """Packets that the machine's receive backlogs have dropped since `up`. Must be zero."""
        return read_softnet_drops() - self._softnet_before

    # -- changing it -------------------------------------------------------------------------------

    def link(self, index: int) -> Link:
        """A link by its index. Raises KeyError."""
        link = self.fabric.links[index] if 0 <= index < len(self.fabric.links) else None
        if link is None:
            raise KeyError(
                f"no link {index}: the fabric has links 0 to {len(self.fabric.links) - 1}"
            )
        return link

    def set_link(self, link_index: int, up: bool) -> None:
        """Takes a link down or up, both ends, as a pulled cable does; its queues are lost.

        Routes stay as they are (a next hop without a link is left out of ECMP by the kernel); use
        `set_routes` when the fabric has reconverged. Raises KeyError and OSError.
        """
        link = self.link(link_index)
        if not up:
            self._fallen.add(link_index)
            self._down.add(link_index)
        else:
            self._down.discard(link_index)
        for port in (link.a, link.b):
            with self.netlink(port.node) as netlink:
                netlink.execute(
                    [
                        rtnetlink.set_state(
                            self._blueprint.ifindex[port.interface], up, port.interface
                        )
                    ]
                )
                segments = self._blueprint.segment_node(port.node, self.routes)
                if segments is not None:
                    netlink.execute(segments.own(self.routes, frozenset(self._down)))
        if up:
            for port in (link.a, link.b):
                self._restore(port)
            for port in (link.a, link.b):
                with self.enter(port.node):
                    refresh_link_state(port.interface)
                with self.netlink(port.node) as netlink:
                    index = self._blueprint.ifindex[port.interface]
                    await_carrier(netlink, [index], port.node)

    def set_clock(self, node: str, offset_ns: int, drift_ns_per_s: int, since_ns: int) -> None:
        """Has the time of day at a node be so far ahead, and gain so many nanoseconds a second from
        `since_ns` of the monotonic clock on. Only the virtual kernel can. Raises OSError."""
        told = (offset_ns % 2**64, drift_ns_per_s % 2**64, since_ns)
        with self.enter(node):
            write_sysctls((("gwclock/error", " ".join(map(str, told))),))

    def impair(self, impairment: Impairment) -> None:
        """Makes both directions of a link what a fault makes of them, or heals them: a link as it
        was, without loss. Raises UnsupportedPort and OSError."""
        link = self.link(impairment.link.index)
        for port in (link.a, link.b):
            context = next(c for c in self._contexts[port.node] if c.port == port)
            with self.netlink(port.node) as netlink:
                netlink.execute(self.options.arrangement.impair(context, impairment))
            if self.watch is not None:
                delays = self.options.arrangement.delays_at_sender
                self.watch.set_link(impairment.link, port, delays)
            if self._filler is not None:
                self._filler.set_link(impairment.link, port)

    def _restore(self, port: Port) -> None:
        """The kernel forgets an interface's neighbours and single routes when it goes down."""
        context = next(c for c in self._contexts[port.node] if c.port == port)
        requests = [self._blueprint.neighbour_request(port.node, context)]
        requests += self._blueprint.neighbour_routes(port.node, [context])
        segments = self._blueprint.segment_node(port.node, self.routes)
        if segments is not None:
            requests += segments.of_port(context, self.routes)
            requests += segments.own(self.routes, frozenset(self._down))
            requests += segments.to_hosts(self.routes)
        else:
            groups = self._blueprint.group_node(port.node)
            if groups is not None:
                requests.append(groups.of_port(context))
                requests += groups.changed(self.routes, link=context.link.index)
            requests += [
                self._blueprint.route_request(port.node, route)
                for route in self.routes.tables[port.node]
                if any(hop.interface == port.interface for hop in route.next_hops)
            ]
        with self.netlink(port.node) as netlink:
            netlink.execute(requests)

    def set_routes(self, routes: Routes) -> int:
        """Makes `routes` the fabric's; only what differs is sent. Returns the number of changes.

        Raises OSError.
        """
        changes = 0
        for node in self._contexts:
            segments = self._blueprint.segment_node(node, routes)
            if segments is not None:
                own = list(segments.to_hosts(routes, self.routes))
                if own:
                    with self.netlink(node) as netlink:
                        netlink.execute(own)
                changes += len(own)
                continue
            requests = self._blueprint.route_changes(node, self.routes, routes)
            if requests:
                with self.netlink(node) as netlink:
                    netlink.execute(requests, _has_gone_already)
                changes += len(requests)
        self.routes = routes
        return changes


def _has_gone_already(request: Request, code: int) -> bool:
    """Whether the kernel has deleted what it is asked to delete: a route whose only link has gone,
    a group with it."""
    absent = {RTM_DELROUTE: errno.ESRCH, RTM_DELNEXTHOP: errno.ENOENT}
    return absent.get(request.type) == code
