"""Uniform traffic: what nodes and links carry of it."""

from fabric_strategies import any_fabric, fabric_of
from hypothesis import given, settings

from topologies.traffic import PACKET, uniform_traffic


@settings(max_examples=60, deadline=None)
@given(any_fabric)
def test_each_packet_takes_one_link_more_than_it_is_forwarded(raw):
    fabric = fabric_of(raw)
    hosts = [host.name for host in fabric.hosts]
    traffic = uniform_traffic(fabric, hosts)
    links, forwarded = sum(traffic.carried.values()), sum(traffic.forwarded.values())
    assert abs(links - forwarded - len(hosts) * PACKET) < PACKET / 1000  # rounded down


def test_a_star_and_a_torus_by_hand():
    star = uniform_traffic(fabric_of({"kind": "flat", "hosts": 5}), [f"h{i}" for i in range(5)])
    assert star.forwarded["s0"] == 5 * (4 * (PACKET // 4))
    assert set(star.carried.values()) == {2 * PACKET}
    fabric = fabric_of({"kind": "torus", "dims": [4, 4]})
    torus = uniform_traffic(fabric, [host.name for host in fabric.hosts])
    # Distances on a ring of 4 are 0, 1, 2, 1: 32 hops to the 15 others, 17 of them transit.
    for passed in torus.forwarded.values():
        assert abs(passed * 15 / PACKET - 17) < 1e-3
    for carried in torus.carried.values():
        assert abs(carried * 15 / PACKET - 16) < 1e-3


def test_idle_hosts_neither_send_nor_receive():
    fabric = fabric_of({"kind": "fat-tree", "k": 4})
    traffic = uniform_traffic(fabric, ["h0", "h1"])
    assert traffic.forwarded["edge0-0"] == 2 * PACKET
    assert sum(traffic.forwarded.values()) == 2 * PACKET
