"""A fabric in the native kernel: reachability, rates, counters, faults, and what is left behind."""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from emulator.linux.netlink import NetlinkError, Request
from emulator.network.network import Network
from emulator.network.sysctls import TcpSettings
from emulator.ports.arrangement import (
    NetemArrangement,
    PortContext,
    RateOnlyArrangement,
    UnsupportedPort,
)
from tests.native.native_fabrics import fat_tree, flat, network, torus
from tests.native.native_traffic import (
    UDP,
    counters_when_sent,
    echo_all_pairs,
    open_socket,
    transfer_seconds,
)
from tests.native.own_pace import believed
from topologies.fabrics.fabric import Fabric
from topologies.routing.routes import compute_routes

_GLOBAL = (
    "/proc/sys/net/core/netdev_max_backlog",
    "/proc/sys/net/ipv4/tcp_allowed_congestion_control",
)


def _state() -> tuple[object, ...]:
    """The state of the machine that a network must leave as it found it."""
    shown = Path("/run/netns")
    return (
        sorted(os.listdir(shown)) if shown.exists() else [],
        sorted(os.listdir("/sys/class/net")),
        [
            line
            for line in Path("/proc/self/mounts").read_text().splitlines()
            if "groundwire" in line
        ],
        [Path(path).read_text() for path in _GLOBAL],
        os.readlink("/proc/thread-self/ns/net"),
    )


@pytest.mark.parametrize("fabric", [fat_tree(), torus(), flat(5)], ids=lambda f: f.kind)
def test_every_host_reaches_every_other_and_nothing_is_left(fabric: Fabric) -> None:
    before = _state()
    with network(fabric) as live:
        assert echo_all_pairs(live, [host.name for host in fabric.hosts]) == []
        assert live.softnet_drops() == 0
        assert sum(port.lost_outside_queue for port in live.port_counters()) == 0
    assert _state() == before


def test_iproute2_sees_the_namespaces() -> None:
    with network(flat(2)) as live:
        assert live.session is not None
        name = f"gw{live.session.id}-h0"
        listed = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
        assert name in listed.split()
        shown = subprocess.run(
            ["ip", "netns", "exec", name, "ip", "-br", "address"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert str(live.fabric.by_name["h0"].address) in shown


@pytest.mark.parametrize("rate_mbps", [20, 80])
def test_a_transfer_takes_the_time_of_its_link(rate_mbps: int) -> None:
    size = rate_mbps * 125_000  # one second at line rate
    # Goodput R * (M - 52) / (M + 38), timestamps on. It cannot be beaten, but for
    # the burst of one frame per port; start-up and a busy machine may cost some.
    ideal = size * 8 / (rate_mbps * 1e6 * (1500 - 52) / (1500 + 38))
    with network(flat(2, rate=f"{rate_mbps}Mbps")) as live:
        seconds = believed(
            live, lambda: transfer_seconds(live, "h0", "h1", size), lambda s: s <= ideal * 1.5
        )
    assert seconds >= ideal * 0.99
    assert seconds <= ideal * 1.5


def test_counters_count_what_was_sent() -> None:
    with network(flat(2)) as live, open_socket(live, "h0", UDP) as sender:
        for _ in range(10):
            sender.sendto(bytes(1000), (str(live.fabric.by_name["h1"].address), 9))
        counters = {port.port: port for port in counters_when_sent(live, "h1", 10)}
    frame = 1000 + 8 + 20 + 14
    h0 = counters["h0-eth0"]
    assert (h0.packets, h0.bytes) == (10, 10 * frame)
    assert h0.as_dict()["peer"] == live.fabric.links[0].b.node
    towards_h1 = next(c for c in counters.values() if c.peer == "h1")
    assert (towards_h1.packets, towards_h1.bytes) == (10, 10 * frame)


def test_a_full_buffer_drops_and_says_so() -> None:
    with network(flat(2, rate="1Mbps", kind="droptail", buffer=6000)) as live:
        with open_socket(live, "h0", UDP) as sender:
            start = time.monotonic()
            for _ in range(100):
                sender.sendto(bytes(1000), (str(live.fabric.by_name["h1"].address), 9))
            took = time.monotonic() - start
        counters = next(p for p in live.port_counters() if p.port == "h0-eth0")
    # Sent at once, the buffer keeps five frames of 1042 bytes, and the bucket's burst lets one or
    # two go; while it took to send them, the link served one in 8.3 ms.
    served = took * 1e6 / 8 / 1042
    assert 100 - 8 - math.ceil(served) <= counters.queue.drops <= 95
    assert counters.queue.drops_by_reason == {"queue": counters.queue.drops}


def test_ecmp_uses_every_next_hop() -> None:
    fabric = fat_tree()
    with network(fabric) as live:
        for port in range(64):
            with open_socket(live, "h0", UDP) as sender:
                sender.sendto(b"x", (str(fabric.by_name["h15"].address), 10_000 + port))
        counters_when_sent(live, "h15", 64)
        up = [p for p in live.port_counters() if p.node.startswith("agg") and p.packets]
        cores = {p.peer for p in up if p.peer.startswith("core")}
        edge = [
            p.packets
            for p in live.port_counters()
            if p.node == "edge0-0" and p.packets and p.peer != "h0"
        ]
    assert sum(edge) == 64
    assert len(edge) == 2, "both uplinks of the edge switch"
    # Seeds differ between switches, else the second tier would use half of its links.
    assert len(cores) == 4


def test_a_pulled_cable_and_reconvergence() -> None:
    fabric = fat_tree()
    hosts = [host.name for host in fabric.hosts]
    with network(fabric) as live:
        cable = next(
            link for link in fabric.links if {link.a.node, link.b.node} == {"agg0-0", "core0"}
        )
        live.set_link(cable.index, up=False)
        assert live.set_routes(compute_routes(fabric, {cable.index})) > 0
        assert echo_all_pairs(live, hosts) == []
        live.set_link(cable.index, up=True)
        live.set_routes(compute_routes(fabric))
        assert echo_all_pairs(live, hosts) == []


def test_a_host_cut_off_is_unreachable_and_comes_back() -> None:
    fabric = flat(3)
    with network(fabric) as live:
        live.set_link(0, up=False)
        live.set_routes(compute_routes(fabric, {0}))
        for source, target in [("h0", "h1"), ("h0", "h2"), ("h1", "h0"), ("h2", "h0")]:
            assert not _arrives(live, source, target, patience_s=0.1), (source, target)
        for source, target in [("h1", "h2"), ("h2", "h1")]:
            assert _arrives(live, source, target, patience_s=20), (source, target)
        live.set_link(0, up=True)
        live.set_routes(compute_routes(fabric))
        assert echo_all_pairs(live, ["h0", "h1", "h2"]) == []


def test_a_link_that_is_up_again_carries_the_next_packet() -> None:
    """Also when that is within the second in which the kernel's link watch looks but once: of 160
    first packets 9 were lost."""
    fabric = flat(2)
    address = str(fabric.by_name["h1"].address)
    lost = []
    for pause_s in (0.04, 0.1, 0.14, 0.2, 0.24, 0.26, 0.3, 0.36):
        with (
            network(fabric) as live,
            open_socket(live, "h0", UDP) as sender,
            open_socket(live, "h1", UDP, 7) as receiver,
        ):
            receiver.settimeout(5)
            for attempt in range(4):
                live.set_link(0, up=False)
                time.sleep(pause_s)
                live.set_link(0, up=True)
                sender.sendto(b"first", (address, 7))
                try:
                    receiver.recv(100)
                except TimeoutError:
                    lost.append((pause_s, attempt))
    assert lost == []


def _arrives(live: Network, source: str, target: str, patience_s: float) -> bool:
    with (
        open_socket(live, source, UDP) as sender,
        open_socket(live, target, UDP, 7) as receiver,
    ):
        receiver.settimeout(patience_s)
        try:
            sender.sendto(b"x", (str(live.fabric.by_name[target].address), 7))
            receiver.recv(10)
        except OSError:
            return False
    return True


def test_transport_sysctls_are_set_on_hosts_only_inside() -> None:
    outside = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text()
    transport = TcpSettings(
        congestion_control="reno", receive_buffer_bytes=3_000_000, send_buffer_bytes=2_000_000
    )
    with network(flat(2), transport=transport) as live:
        with live.enter("h1"):
            inside = {
                name: Path(f"/proc/sys/net/ipv4/{name}").read_text().split()
                for name in ("tcp_congestion_control", "tcp_rmem", "tcp_wmem")
            }
        assert Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text() == outside
    assert inside["tcp_congestion_control"] == ["reno"]
    assert inside["tcp_rmem"] == ["4096", "3000000", "3000000"]
    assert inside["tcp_wmem"] == ["4096", "2000000", "2000000"]


def test_each_node_has_a_table_of_its_own_for_its_connections() -> None:
    """A rank that reads its connections goes over the whole table: of 1,024 ranks it would have a
    million."""
    entries = {}
    with network(flat(3)) as live:
        for node in live.fabric.nodes[1:]:
            with live.enter(node.name):
                # Less than nothing where the table is another namespace's.
                entries[node.name] = int(Path("/proc/sys/net/ipv4/tcp_ehash_entries").read_text())
        with live.enter("h1"):
            backlog = Path("/proc/sys/net/ipv4/tcp_max_syn_backlog").read_text()
    assert set(entries.values()) == {4096}, entries
    assert backlog.split() == ["4096"]


def test_a_congestion_control_that_is_not_there_is_named() -> None:
    before = _state()
    with pytest.raises(OSError, match=r"no congestion control nosuch; it has .*reno"):
        network(flat(2), transport=TcpSettings(congestion_control="nosuch")).up()
    assert _state() == before


class _Refused(RateOnlyArrangement):
    """Asks the kernel for a qdisc that no kernel has."""

    def requests(self, context: PortContext) -> Sequence[Request]:
        first = super().requests(context)[0]
        return (Request(first.type, first.flags, first.payload.replace(b"tbf", b"xyz"), "put xyz"),)


def test_a_refused_request_raises_the_kernels_words_and_leaves_nothing() -> None:
    before = _state()
    with pytest.raises(NetlinkError, match=r"put xyz: .*Specified qdisc kind is unknown"):
        network(flat(2), arrangement=_Refused()).up()
    assert _state() == before


@pytest.mark.parametrize(
    ("arrangement", "fabric", "words"),
    [
        (RateOnlyArrangement(), flat(2, kind="dctcp"), "h0-eth0: a dctcp queue"),
        (NetemArrangement(), flat(2, kind="red"), "h0-eth0: a red queue"),
    ],
)
def test_a_port_that_cannot_be_made_is_refused(
    arrangement: RateOnlyArrangement | NetemArrangement, fabric: Fabric, words: str
) -> None:
    before = _state()
    with pytest.raises(UnsupportedPort, match=words):
        network(fabric, arrangement=arrangement).up()
    assert _state() == before


def test_two_networks_stand_side_by_side() -> None:
    before = _state()
    fabric = flat(2)
    first, second = network(fabric), network(fabric)
    first.up()
    second.up()
    assert echo_all_pairs(first, ["h0", "h1"]) == []
    first.down()
    assert echo_all_pairs(second, ["h0", "h1"]) == []
    second.down()
    assert _state() == before
