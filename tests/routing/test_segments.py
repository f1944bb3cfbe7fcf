"""Paths as lists of micro-segments: what hosts write, which a flow has, and what is refused."""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.predict.engines.paths import Paths
from analysis.predict.engines.wire import GlooWire
from analysis.predict.models.packet import Packet
from analysis.predict.planned_run import predict_workload
from analysis.predict.setting import setting_of_spec
from emulator.needed_kernel import needed_variant
from emulator.virtual.building.variant import KernelVariant
from topologies.routing.ecmp_hash import FiveTuple, flow_path
from topologies.routing.segments import segments_of
from topologies.spec.errors import SpecError
from topologies.spec.spec import Spec, parse_spec


def _spec(
    fabric: str = "kind: fat-tree, k: 4", routing: str = "srv6", more: str = "", ranks: int = 2
) -> Spec:
    return parse_spec(
        f"name: segments\nfabric: {{{fabric}, routing: {routing}}}\n{more}\n"
        f"workload: {{kind: collectives, ranks: {ranks}, "
        "operations: [{kind: all_reduce, size: 1MB}]}\n"
    )


def test_a_carrier_has_the_nodes_of_a_path_in_order() -> None:
    routes = _spec(routing='{kind: srv6, block: "2001:db8::/32"}').plan.routes
    segments, fabric = segments_of(routes), routes.fabric
    numbers = {node.name: place for place, node in enumerate(fabric.nodes, 1)}
    first, last = fabric.hosts[0].name, fabric.hosts[-1].name
    path = segments.paths(first, last)[0]
    groups = segments.carrier(path).exploded.split(":")
    assert groups[:2] == ["2001", "0db8"]
    assert [int(group, 16) for group in groups[2:]] == [numbers[hop.node] for hop in path]
    locator = segments.locator(path[0].node)
    assert locator.prefixlen == 48
    assert IPv6Address(segments.carrier(path)) in locator
    inside = segments.paths(first, fabric.hosts[1].name)[0]
    assert segments.carrier(inside).exploded.endswith(":0000" * (6 - len(inside)))


def test_all_shortest_paths_are_there_once() -> None:
    """A k=4 fat-tree has 4 between pods, 2 in a pod, 1 under an edge switch."""
    routes = _spec().plan.routes
    hosts = [host.name for host in routes.fabric.hosts]
    for other, count in ((hosts[1], 1), (hosts[2], 2), (hosts[-1], 4)):
        paths = segments_of(routes).paths(hosts[0], other)
        assert len(set(paths)) == len(paths) == count
        for path in paths:
            at = hosts[0]
            for hop in path:
                assert hop in routes.next_hops(at, other)
                at = hop.node
            assert at == other


def test_flows_share_all_paths() -> None:
    """Within five standard deviations of 2,000 flows."""
    routes = _spec().plan.routes
    first, last = routes.fabric.hosts[0], routes.fabric.hosts[-1]
    ends = first.address, last.address
    taken = Counter(
        flow_path(routes, first.name, last.name, FiveTuple(*ends, 20_000 + n, 80), 1)
        for n in range(2_000)
    )
    assert set(taken) == set(segments_of(routes).paths(first.name, last.name))
    assert all(abs(count - 500) < 5 * (2_000 * 0.25 * 0.75) ** 0.5 for count in taken.values())


@given(st.integers(0, 65_535), st.integers(0, 65_535))
def test_addresses_alone_give_a_pair_of_hosts_one_path(one: int, other: int) -> None:
    routes = _spec(routing="{kind: srv6, fields: [addresses]}").plan.routes
    first, last = routes.fabric.hosts[0], routes.fabric.hosts[-1]
    flows = (FiveTuple(first.address, last.address, port, 9) for port in (one, other))
    assert len({flow_path(routes, first.name, last.name, flow, 1) for flow in flows}) == 1


@pytest.mark.parametrize(
    ("fabric", "routing", "more", "told"),
    [
        ("kind: fat-tree, k: 4", '{kind: srv6, block: "fcbb::/48"}', "", "of 32 bits"),
        ("kind: fat-tree, k: 4", '{kind: srv6, block: "ff00::/32"}', "", "not multicast"),
        ("kind: fat-tree, k: 4", "{kind: srv6, blok: x}", "", "did you mean block?"),
        ("kind: fat-tree, k: 4, link: {mtu: 1000}", "srv6", "", "expected at least 1280"),
        ("kind: fat-tree, k: 4", "srv6", "transport: {kind: udp}", "expected tcp, mptcp, roce"),
        ("kind: torus, dimensions: [2, 2]", "srv6", "", "routing"),
        (
            "kind: graph, nodes: [{name: a, kind: host}, {name: b, kind: host}, "
            "{name: s, kind: switch}, {name: t, kind: switch}], links: [{ends: [a, s]}, "
            "{ends: [s, t]}, {ends: [s, t]}, {ends: [t, b]}]",
            "srv6",
            "",
            "one link between s and t",
        ),
        (
            "kind: graph, nodes: [{name: a, kind: host}, {name: b, kind: host}, "
            + ", ".join(f"{{name: s{n}, kind: switch}}" for n in range(6))
            + "], links: [{ends: [a, s0]}, {ends: [s5, b]}, "
            + ", ".join(f"{{ends: [s{n}, s{n + 1}]}}" for n in range(5))
            + "]",
            "srv6",
            "",
            "expected at most 5 switches on a path",
        ),
    ],
)
def test_what_does_not_go_together_is_told(fabric: str, routing: str, more: str, told: str) -> None:
    with pytest.raises(SpecError) as caught:
        _spec(fabric, routing, more)
    assert told in str(caught.value)


def test_only_segments_need_another_kernel() -> None:
    assert needed_variant(_spec().plan.fabric) is KernelVariant.IPV6
    assert needed_variant(_spec(routing="source").plan.fabric) is KernelVariant.USUAL


@given(st.integers(1, 10_000_000), st.integers(1_280, 9_000))
def test_a_wrapped_message_is_one_of_a_smaller_mtu_with_longer_headers(size: int, mtu: int) -> None:
    wrapped, bare = GlooWire(mtu, outer_bytes=40), GlooWire(mtu - 40)
    packets = (bare.data_bytes(size) - size - 48) // 90
    assert wrapped.data_bytes(size) == bare.data_bytes(size) + 40 * packets
    assert wrapped.full_frame_bytes == bare.full_frame_bytes + 40
    assert wrapped.cut(size)[0] == bare.cut(size)[0]


def test_segments_of_tcp_leave_room_for_the_outer_header() -> None:
    """An MTU of 9,000 less 40 of IPv6, 20 of IPv4, and 32 of TCP with time stamps."""
    paths = Paths(setting_of_spec(_spec("kind: fat-tree, k: 4, link: {mtu: 9000}")))
    assert paths.segment_bytes(paths.follow([0], [1])).tolist() == [9_000 - 40 - 20 - 32]


def _predicted_ns(routing: str, mtu: int) -> float:
    link = f"link: {{rate: 10Gbps, delay: 1us, mtu: {mtu}}}"
    spec = parse_spec(
        f"name: one\nfabric: {{kind: flat, hosts: 2, {link}, routing: {routing}}}\n"
        "workload: {kind: collectives, ranks: 2, operations: [{kind: send_recv, size: 4MB}]}\n"
    )
    (found,) = predict_workload(spec, setting_of_spec(spec), Packet()).collectives.values()
    return found.duration_ns


def test_packet_prices_the_outer_header() -> None:
    """The same segments by a link that takes them bare and one that takes them wrapped: each
    packet takes 40 bytes longer, 32 ns at 10 Gb/s. Few round trips come on top, those before the
    window is as wide as the path."""
    more_ns = _predicted_ns("srv6", 1_500) - _predicted_ns("ecmp", 1_460)
    packets = -(-4_000_048 // (1_500 - 92))
    assert 32 * packets <= more_ns <= 32 * packets + 20 * 4 * 32
