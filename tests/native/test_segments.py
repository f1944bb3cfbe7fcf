"""Segment routing on this machine's own kernel: everybody is reached, and a flow goes by the path
that its hash says, with the outer header and nothing else beside it."""

from __future__ import annotations

import os
import socket
import threading
from functools import partial

import pytest

from emulator.linux.capabilities import kernel_capabilities
from emulator.native.kernel import missing_for_fabric
from emulator.network.network import Network
from emulator.ports.counters import PortCounters
from tests.native.native_fabrics import network
from tests.native.native_traffic import TCP, UDP, counters_when, echo_all_pairs, open_socket
from topologies.fabrics.build import build_fabric
from topologies.fabrics.fabric import Fabric
from topologies.routing.ecmp_hash import UDP as UDP_NUMBER
from topologies.routing.ecmp_hash import FiveTuple, flow_path
from topologies.routing.routes import Path, compute_routes
from topologies.spec.fabric_section import LeafSpineSpec

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to make network namespaces"),
    pytest.mark.skipif(
        not kernel_capabilities().segments,
        reason="this kernel has no micro-segments (CONFIG_IPV6_SEG6_LWTUNNEL, Linux 6.1)",
    ),
]

_SENT = 200_000
_MTU = 1_500
_SEGMENT = _MTU - 40 - 20 - 32


def _fabric(queue: str = "droptail") -> Fabric:
    return build_fabric(
        LeafSpineSpec.model_validate(
            {
                "kind": "leaf-spine",
                "leaves": 2,
                "spines": 3,
                "hosts_per_leaf": 2,
                "link": {"rate": "1Gbps", "delay": 0, "mtu": _MTU},
                "queue": {"kind": queue},
                "routing": {"kind": "srv6"},
            }
        )
    )


def _sent_by(live: Network) -> dict[tuple[str, str], int]:
    return {(each.node, each.peer): each.bytes for each in live.port_counters()}


def _send(live: Network, source: str, destination: str, port: int) -> int:
    """Sends over a connection between these ports; returns its segment size."""
    address = str(live.fabric.by_name[destination].address)
    with open_socket(live, destination, TCP, 5_000) as listener:
        listener.listen()
        with open_socket(live, source, TCP, port) as end:
            end.connect((address, 5_000))
            taken, _ = listener.accept()
            with taken:
                sender = threading.Thread(target=end.sendall, args=(bytes(_SENT),))
                sender.start()
                left = _SENT
                while left:
                    left -= len(taken.recv(left))
                sender.join()
                return end.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)


def _has_carried(link: tuple[str, str], least: int, now: list[PortCounters]) -> bool:
    return any((each.node, each.peer) == link and each.bytes >= least for each in now)


def test_every_host_is_reached_and_nothing_else_is_on_the_wire() -> None:
    fabric = _fabric()
    with network(fabric) as live:
        assert not any(_sent_by(live).values()), "neither neighbours nor groups are asked for"
        assert echo_all_pairs(live, [host.name for host in fabric.hosts]) == []


def test_a_flow_goes_by_the_path_of_its_hash() -> None:
    """The one of three spines that is computed carries it, for each of several ports."""
    fabric = _fabric()
    source, destination = fabric.hosts[0].name, fabric.hosts[-1].name
    ends = fabric.hosts[0].address, fabric.hosts[-1].address
    with network(fabric) as live:
        spines = set()
        for port in range(6_000, 6_006):
            path = flow_path(live.routes, source, destination, FiveTuple(*ends, port, 5_000), 1)
            spines.add(path[1].node)
            before = _sent_by(live)
            assert _send(live, source, destination, port) == _SEGMENT
            leaf, at = path[0].node, source
            for hop in path:
                link = at, hop.node
                counters_when(live, partial(_has_carried, link, before[link] + _SENT))
                at = hop.node
            after = _sent_by(live)
            for spine in (node.name for node in fabric.switches if node.layer == 2):
                if spine != path[1].node:
                    assert after[leaf, spine] == before[leaf, spine]
        assert len(spines) > 1, "the ports were chosen so"


def test_packets_have_the_outer_header_and_fill_the_mtu() -> None:
    """A full packet is an Ethernet frame of the MTU: 14 and 1,500 bytes, of which the uplink counts
    as many as segments are sent."""
    fabric = _fabric()
    source, destination = fabric.hosts[0].name, fabric.hosts[-1].name
    with network(fabric) as live:
        before = {(c.node, c.peer): (c.bytes, c.packets) for c in live.port_counters()}
        _send(live, source, destination, 6_000)
        first = next(link.other(source).node for link in fabric.links_of[source])
        counters_when(
            live,
            lambda now: any(
                (each.node, each.peer) == (source, first)
                and each.bytes - before[source, first][0] > _SENT
                for each in now
            ),
        )
        found = next(
            each for each in live.port_counters() if (each.node, each.peer) == (source, first)
        )
    sent = found.bytes - before[source, first][0]
    packets = found.packets - before[source, first][1]
    full = -(-_SENT // _SEGMENT)
    assert packets >= full + 2, "segments, the SYN and an acknowledgement"
    headers = 14 + 40 + 20 + 32
    # The SYN has options of 20 bytes, and the last packets none or time stamps.
    assert sent - _SENT == pytest.approx(packets * headers, abs=3 * 12)


def test_queues_that_mark_are_refused() -> None:
    missing = missing_for_fabric(_fabric("dctcp"))
    assert any("no traffic class" in each for each in missing)
    assert not any("srv6" in each for each in missing_for_fabric(_fabric()))


def _path(live: Network, port: int) -> Path:
    """The path of a datagram between the first host and the last."""
    first, last = live.fabric.hosts[0], live.fabric.hosts[-1]
    flow = FiveTuple(first.address, last.address, port, 5_000, UDP_NUMBER)
    return flow_path(live.routes, first.name, last.name, flow, 1)


def test_hosts_leave_a_link_that_is_down_and_come_back() -> None:
    """Both ends' segments stay with links that are up, and hosts have other paths; afterwards all
    paths carry packets again."""
    fabric = _fabric()
    hosts = [host.name for host in fabric.hosts]
    cut = next(link.index for link in fabric.links if link.link_class == "leaf-spine")
    with network(fabric) as live:
        whole = live.routes
        ports = [port for port in range(6_000, 6_040) if _path(live, port)[1].link == cut]
        assert ports, "some go by this link"
        live.set_link(cut, up=False)
        for port in ports:
            with open_socket(live, hosts[0], UDP, port) as end:
                end.sendto(b"x", (str(fabric.by_name[hosts[-1]].address), 5_000))
        assert live.unrouted() == {_path(live, ports[0])[0].node: len(ports)}
        assert live.set_routes(compute_routes(fabric, [cut])) == 8, "four pairs, both ways"
        assert echo_all_pairs(live, hosts) == []
        live.set_link(cut, up=True)
        assert live.set_routes(whole) == 8
        for port in range(6_100, 6_106):
            assert _send(live, hosts[0], hosts[-1], port) == _SEGMENT
        assert echo_all_pairs(live, hosts) == []
