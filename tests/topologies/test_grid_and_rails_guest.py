"""Packets on rails and on a mesh, in the virtual kernel: which way they go, to the nanosecond."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest

from testing.queue_lab import Lab, frame_ns, lab, payload_of, send
from tests.topologies.fabric_strategies import fabric_of

pytestmark = pytest.mark.guest

FRAME = 1514
LINKS = {
    "link": {"mtu": 1500},
    "links": {
        "scale-up": {"rate": "800Gbps", "delay": "100ns"},
        "nic": {"rate": "100Gbps", "delay": "1us"},
        "spine": {"rate": "400Gbps", "delay": "3us"},
    },
}
HOP_NS = {
    "scale-up": frame_ns(FRAME, 800 * 10**9) + 100,
    "nic": frame_ns(FRAME, 100 * 10**9) + 1000,
    "spine": frame_ns(FRAME, 400 * 10**9) + 3000,
}
RAILS = {"kind": "rails", "servers": 2, "hosts_per_server": 3} | LINKS


def carried(it: Lab) -> dict[tuple[str, str], int]:
    return {port: s.tx_packets for port, s in it.all_statistics().items() if s.tx_packets}


def one_packet_takes(it: Lab, source: str, sink: str) -> tuple[int, set[tuple[str, str]]]:
    """The time of one packet, and the ports that sent it."""
    receiver, sender = it.udp_sink(sink), it.udp_source(source, sink)
    before = carried(it)
    start = time.clock_gettime_ns(time.CLOCK_REALTIME)
    send(sender, 1, payload_of(FRAME))
    time.sleep(0.001)
    (packet,) = receiver.drain()
    ports = {port for port, count in carried(it).items() if count > before.get(port, 0)}
    return packet.time_ns - start, ports


@pytest.mark.parametrize(
    ("options", "sink", "way"),
    [
        ({}, "h2", "h0 server0 h2"),
        ({}, "h3", "h0 rail0 h3"),
        ({}, "h5", "h0 server0 h2 rail2 h5"),
        ({"spines": 1}, "h2", "h0 server0 h2"),
        ({"spines": 1}, "h5", "h0 rail0 spine0 rail2 h5"),
        ({"servers_per_leaf": 2}, "h2", "h0 server0 h2"),
        ({"servers_per_leaf": 2}, "h5", "h0 leaf0 h5"),
        ({"servers_per_leaf": 1, "spines": 1}, "h5", "h0 leaf0 spine0 leaf1 h5"),
    ],
)
def test_a_packet_goes_its_way_and_takes_its_time(
    options: dict[str, Any], sink: str, way: str
) -> None:
    nodes = way.split()
    hops = list(pairwise(nodes))
    with lab(fabric_of(RAILS | options)) as it:
        took_ns, ports = one_packet_takes(it, "h0", sink)
        expected = sum(HOP_NS[it.context(*hop).link.link_class] for hop in hops)
    assert ports == set(hops)
    assert 0 <= took_ns - expected < len(hops)


def test_a_mesh_has_no_way_round() -> None:
    """Corner to corner of 2 x 4: one link along x, three along y, where a torus takes one."""
    with lab(fabric_of({"kind": "mesh", "dims": [2, 4], "link": {"mtu": 1500}})) as it:
        took_ns, ports = one_packet_takes(it, "h0", "h7")
    assert ports == {("h0", "h4"), ("h4", "h5"), ("h5", "h6"), ("h6", "h7")}
    assert 0 <= took_ns - 4 * (frame_ns(FRAME, 100 * 10**9) + 500) < 4
