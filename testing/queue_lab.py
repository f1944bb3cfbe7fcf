"""Small fabrics with the port qdisc, and traffic whose timing is known to the nanosecond.

For use inside the virtual kernel, where computing takes no time: packets sent in a loop are sent
in the same nanosecond.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network
from itertools import pairwise
from typing import Any

from emulator.linux import rtnetlink
from emulator.linux.rtnetlink import Hop
from emulator.network.network import Network, NetworkOptions
from emulator.network.sysctls import TcpSettings
from emulator.ports.arrangement import PortArrangement, PortContext
from emulator.ports.counters import read_qdiscs
from emulator.ports.own_queues import QueueArrangement, Sampling, port_statistics
from emulator.ports.port_qdisc import PortOptions, PortStatistics, Waiting
from emulator.ports.stock_queues import StockArrangement
from emulator.switches.memory import Word, port_number
from emulator.switches.pause_controller import PauseController
from emulator.switches.stock_switch import SwitchArrangement, needs_switch_memory
from topologies.fabrics.build import build_fabric
from topologies.fabrics.fabric import Fabric
from topologies.routing.routes import compute_routes
from topologies.spec.fabric_section import GraphSpec

ETHERNET, IP_UDP, ON_THE_WIRE = 14, 28, 24
ECT0, CE = 2, 3
_IP_RECVTOS = 13
_IP_TOS = 1


def fabric(
    links: Sequence[tuple[str, str]],
    *,
    rate: str = "100Gbps",
    delay: str = "500ns",
    mtu: int = 1500,
    queue: Mapping[str, Any] | None = None,
    queues: Mapping[str, Mapping[str, Any]] | None = None,
    rates: Mapping[tuple[str, str], str] | None = None,
) -> Fabric:
    """A graph of these links. Nodes named s, s0, s1 ... are switches, others are hosts."""
    names = dict.fromkeys(name for link in links for name in link)
    return build_fabric(
        GraphSpec.model_validate(
            {
                "kind": "graph",
                "nodes": [
                    {"name": n, "kind": "switch" if re.fullmatch(r"s\d*", n) else "host"}
                    for n in names
                ],
                "links": [
                    {"ends": ends} | ({"rate": rates[ends]} if rates and ends in rates else {})
                    for ends in links
                ],
                "link": {"rate": rate, "delay": delay, "mtu": mtu},
                "queue": queue or {"kind": "droptail", "buffer": "100MB"},
                "queues": queues or {},
            }
        )
    )


def line(hops: int, **options: Any) -> Fabric:
    """a - s0 - s1 ... - b, `hops` links in a row."""
    names = ["a", *(f"s{i}" for i in range(hops - 1)), "b"]
    return fabric(list(pairwise(names)), **options)


def star(hosts: int, **options: Any) -> Fabric:
    """h0 ... on one switch s."""
    return fabric([(f"h{i}", "s") for i in range(hosts)], **options)


def ring(queue: Mapping[str, Any], **options: Any) -> Fabric:
    """Three switches in a ring, a host on each."""
    links = [(f"h{i}", f"s{i}") for i in range(3)]
    links += [(f"s{i}", f"s{(i + 1) % 3}") for i in range(3)]
    return fabric(links, queue=queue, **options)


def frame_ns(frame_bytes: int, rate_bps: int) -> float:
    """How long a frame (as Linux counts it) takes on the wire, minimum size and L1 included."""
    return (max(frame_bytes, 60) + ON_THE_WIRE) * 8e9 / rate_bps


@dataclass
class Received:
    """A UDP packet as it was received: when, its sequence number, and its ECN bits."""

    time_ns: int
    sequence: int
    ecn: int


@dataclass
class UdpSink:
    """A bound UDP socket that is read after the fact, so that reading disturbs nothing."""

    socket: socket.socket
    received: list[Received] = field(default_factory=list)

    def drain(self) -> list[Received]:
        """All packets that have come in by now, with the times at which the kernel got them."""
        found: list[Received] = []
        self.socket.setblocking(False)
        while True:
            try:
                data, control, _, _ = self.socket.recvmsg(64, 256)
            except BlockingIOError:
                return found
            stamp, ecn = 0, 0
            for level, kind, value in control:
                if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
                    seconds, nanoseconds = struct.unpack("=qq", value)
                    stamp = seconds * 10**9 + nanoseconds
                elif (level, kind) == (socket.IPPROTO_IP, _IP_TOS):
                    ecn = value[0] & 3
            found.append(Received(stamp, struct.unpack_from("=I", data)[0], ecn))


_SO_TIMESTAMPNS = 35
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33


class Lab:
    """A live fabric. Times of received packets are CLOCK_REALTIME, as the kernel stamps them."""

    def __init__(self, network: Network, arrangement: PortArrangement) -> None:
        self.network = network
        self.arrangement = arrangement
        self.fabric = network.fabric
        self._changed: dict[str, PortOptions] = {}
        self._sinks: list[UdpSink] = []  # a closed one would answer with ICMP

    def address(self, node: str) -> str:
        return str(self.fabric.by_name[node].address)

    def context(self, node: str, peer: str) -> PortContext:
        """The port of `node` towards `peer`."""
        for context in self.network.contexts(node):
            if context.link.other(node).node == peer:
                return context
        raise KeyError(f"{node}:{peer}")

    def statistics(self, node: str, peer: str) -> PortStatistics:
        """The counters of the port of `node` towards `peer`."""
        context = self.context(node, peer)
        with self.network.netlink(node) as netlink:
            return port_statistics(read_qdiscs(netlink)[context.ifindex])

    def all_statistics(self) -> dict[tuple[str, str], PortStatistics]:
        """(node, peer) -> what its port has counted."""
        found = {}
        for node in self.fabric.nodes:
            with self.network.netlink(node.name) as netlink:
                qdiscs = read_qdiscs(netlink)
            for context in self.network.contexts(node.name):
                peer = context.link.other(node.name).node
                found[node.name, peer] = port_statistics(qdiscs[context.ifindex])
        return found

    def change(self, node: str, peer: str, **options: Any) -> None:
        """Changes options of a port while it runs."""
        context = self.context(node, peer)
        interface = context.port.interface
        assert isinstance(self.arrangement, QueueArrangement)
        now = self._changed.get(interface, self.arrangement.options(context))
        self._changed[interface] = replace(now, **options)
        with self.network.netlink(node) as netlink:
            netlink.execute([self._changed[interface].change(context.ifindex, interface)])

    def route_around(self) -> list[str]:
        """In a `ring`, has every packet to the next but one host go clockwise, though the other way
        is shorter. Returns the ports around the ring."""
        out = [self.context(f"s{i}", f"s{(i + 1) % 3}") for i in range(3)]
        for i, context in enumerate(out):
            after = self.fabric.by_name[f"s{(i + 1) % 3}"].address
            target = self.fabric.by_name[f"h{(i + 2) % 3}"].address
            own = self.fabric.by_name[f"s{i}"].address
            hops = [Hop(context.ifindex, after)]
            with self.network.netlink(f"s{i}") as netlink:
                netlink.execute([rtnetlink.route(IPv4Network(f"{target}/32"), hops, own)])
        return [context.port.interface for context in out]

    def controller(self) -> PauseController:
        """The pause controller of a `stock` lab with lossless queues."""
        controller = self.network.pause_controller
        assert isinstance(controller, PauseController)
        return controller

    def waiting(self) -> dict[str, list[Waiting]]:
        """Node -> what waits there, in a `stock` lab with a switch's memory."""
        assert isinstance(self.arrangement, SwitchArrangement)
        contexts = {node.name: self.network.contexts(node.name) for node in self.fabric.nodes}
        return self.arrangement.waiting(contexts)

    def memory_word(self, node: str, peer: str, word: str, priority: int = 0) -> int:
        """The bytes in the switch's memory of a class of the port of `node` towards `peer`."""
        assert isinstance(self.arrangement, SwitchArrangement)
        context = self.context(node, peer)
        number = port_number(context.link, context.port)
        return self.arrangement.memory.read(number, Word[word], priority)

    def udp_sink(self, node: str, port: int = 5000) -> UdpSink:
        with self.network.enter(node):
            sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sink.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 29)
        sink.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        sink.setsockopt(socket.IPPROTO_IP, _IP_RECVTOS, 1)
        sink.bind(("0.0.0.0", port))
        self._sinks.append(UdpSink(sink))
        return self._sinks[-1]

    def udp_source(self, node: str, to: str, port: int = 5000, tos: int = 0) -> socket.socket:
        with self.network.enter(node):
            source = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        source.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 1 << 29)
        source.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        source.connect((self.address(to), port))
        # The kernel makes a task that does thousands of system calls in one instant take a nap, as
        # it would a busy poller. The packets that set things up are not to count.
        time.sleep(1e-6)
        return source


@contextmanager
def lab(
    fabric: Fabric,
    *,
    congestion_control: str = "cubic",
    ecn: bool | None = None,
    seed: int = 1,
    sampling: Sampling | None = None,
    buffer_bytes: int = 16_000_000,
    stock: bool = False,
    receive_coalescing_ns: int = 0,
) -> Iterator[Lab]:
    """The fabric, live, with the port qdisc on every port. No packet may be lost outside of it, or
    be delivered later than its nanosecond. `stock` has the kernel's own qdiscs instead."""
    arrangement: PortArrangement = QueueArrangement(fabric, seed=seed, sampling=sampling)
    if stock:
        switch = needs_switch_memory(fabric)
        arrangement = SwitchArrangement(fabric) if switch else StockArrangement()
    options = NetworkOptions(
        arrangement=arrangement,
        hash_seed=seed,
        receive_coalescing_ns=receive_coalescing_ns,
        transport=TcpSettings(
            congestion_control=congestion_control,
            ecn=ecn,
            receive_buffer_bytes=buffer_bytes,
            send_buffer_bytes=buffer_bytes,
        ),
    )
    with Network(fabric, compute_routes(fabric), options) as network:
        yield Lab(network, arrangement)
        assert network.softnet_drops() == 0
        if stock:
            return
        with_late = {
            port: s.late_max_ns
            for port, s in Lab(network, arrangement).all_statistics().items()
            if s.late_packets
        }
        assert not with_late, f"packets were delivered late: {with_late}"


def send(source: socket.socket, count: int, payload_bytes: int, first: int = 0) -> None:
    """`count` packets with sequence numbers from `first`, all in this nanosecond."""
    for sequence in range(first, first + count):
        source.send(struct.pack("=I", sequence).ljust(payload_bytes, b"\0"))


def send_paced(
    source: socket.socket, count: int, payload_bytes: int, interval_ns: float, first: int = 0
) -> list[int]:
    """`count` packets, one every `interval_ns`, from now on. Returns the times of sending
    (CLOCK_REALTIME)."""
    start = time.monotonic_ns()
    times = []
    for i in range(count):
        wait = start + int(i * interval_ns) - time.monotonic_ns()
        if wait > 0:
            time.sleep(wait / 1e9)
        times.append(time.clock_gettime_ns(time.CLOCK_REALTIME))
        send(source, 1, payload_bytes, first + i)
    return times


def payload_of(frame_bytes: int) -> int:
    """The UDP payload that makes a frame of this size."""
    return frame_bytes - ETHERNET - IP_UDP
