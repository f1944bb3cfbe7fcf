"""The kernel's ECMP choice, computed; against published vectors, and against a kernel when root."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.topologies.fabric_strategies import fabric_of
from topologies.routing.ecmp_hash import (
    HASH_FIELDS,
    HASH_POLICY,
    TCP,
    UDP,
    FiveTuple,
    flow_path,
    forwarding_hash,
    node_hash_seed,
    output_hash,
    select,
    siphash_2_4,
)
from topologies.routing.routes import compute_routes

SENDER, ROUTER, TARGET = (IPv4Address(text) for text in ("10.0.0.2", "10.0.0.1", "10.0.9.9"))
LINKS = 3

flows = st.builds(
    FiveTuple,
    st.integers(10 << 24, 11 << 24).map(IPv4Address),
    st.integers(10 << 24, 11 << 24).map(IPv4Address),
    st.integers(1, 65535),
    st.integers(1, 65535),
    st.sampled_from([TCP, UDP]),
)


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, 0x726FDB47DD0E0E31),
        (1, 0x74F839C593DC67FD),
        (8, 0x93F5F5799A932462),
        (15, 0xA129CA6149BE45E5),
    ],
)
def test_siphash_gives_its_authors_vectors(length: int, expected: int) -> None:
    key = bytes(range(16))
    words = [int.from_bytes(key[i : i + 8], "little") for i in (0, 8)]
    assert siphash_2_4(bytes(range(length)), *words) == expected


@given(flows, st.integers(1, 2**32 - 1))
def test_both_directions_hash_alike_and_to_31_bits(flow: FiveTuple, seed: int) -> None:
    back = FiveTuple(
        flow.destination, flow.source, flow.destination_port, flow.source_port, flow.protocol
    )
    for hashed in (forwarding_hash, output_hash):
        assert hashed(flow, seed) == hashed(back, seed)
        assert 0 <= hashed(flow, seed) < 2**31


@given(st.lists(st.integers(1, 256), min_size=1, max_size=16), st.integers(0, 2**31 - 1))
def test_selection_divides_the_hashes_by_weight(weights: list[int], value: int) -> None:
    position = select(value, weights)
    below, total = sum(weights[:position]), sum(weights)
    # Each bound is rounded to the nearest hash.
    assert below / total * 2**31 - 1 <= value <= (below + weights[position]) / total * 2**31 + 1


def test_there_must_be_something_to_select() -> None:
    with pytest.raises(ValueError, match="no next hop"):
        select(1, [])


def test_seeds_differ_between_nodes_and_are_never_zero() -> None:
    seeds = {node_hash_seed(seed, f"edge{i}-0") for seed in range(8) for i in range(8)}
    assert len(seeds) == 64
    assert all(0 < seed < 2**32 for seed in seeds)


def test_flows_of_a_fat_tree_follow_its_paths_and_spread_over_all() -> None:
    fabric = fabric_of({"kind": "fat-tree", "k": 4})
    routes = compute_routes(fabric)
    ends = (fabric.by_name["h0"].address, fabric.by_name["h15"].address)
    paths = [
        flow_path(routes, "h0", "h15", FiveTuple(*ends, 30_000 + port, 29_500), seed=1)
        for port in range(400)
    ]
    assert set(paths) == set(routes.paths("h0", "h15"))
    # 100 expected on each of the 4 paths; 65 and 135 are 4 standard deviations off.
    assert all(65 <= paths.count(path) <= 135 for path in set(paths))
    other = [
        flow_path(routes, "h0", "h15", FiveTuple(*ends, 30_000 + port, 29_500), seed=2)
        for port in range(400)
    ]
    assert other != paths
    cut = compute_routes(fabric, down=[fabric.links_of["h15"][0].index])
    with pytest.raises(ValueError, match="no route to h15"):
        flow_path(cut, "h0", "h15", FiveTuple(*ends, 1, 1), seed=1)


@contextmanager
def namespaces() -> Iterator[tuple[str, str, str]]:
    """A sender, a router and a target with `LINKS` parallel links between the last two."""
    from pyroute2 import NetNS, netns

    names = tuple(f"gwtest-ecmp-{role}-{os.getpid()}" for role in ("s", "r", "d"))
    with ExitStack() as stack:
        handles = []
        for name in names:
            netns.create(name)
            stack.callback(_forget, name)
        for name in names:
            handles.append(stack.enter_context(NetNS(name)))
        sender, router, target = handles
        for handle in handles:
            handle.link("set", index=1, state="up")
        _veth(sender, "s0", router, names[1], "r0", SENDER, ROUTER)
        for i in range(LINKS):
            _veth(router, f"r{i + 1}", target, names[2], f"d{i}", ROUTER, TARGET)
        default = sender.link_lookup(ifname="s0")[0]
        sender.route("add", dst="10.0.0.0/8", oif=default, scope=253)
        hops = [{"oif": router.link_lookup(ifname=f"r{i + 1}")[0]} for i in range(LINKS)]
        router.route("add", dst=f"{TARGET}/32", multipath=hops, scope=253)
        mac = router.get_links(router.link_lookup(ifname="r0")[0])[0].get_attr("IFLA_ADDRESS")
        sender.neigh("add", dst=str(TARGET), lladdr=mac, ifindex=default, state=128)
        yield names  # type: ignore[misc]


def _forget(name: str) -> None:
    from pyroute2 import netns

    with suppress(FileNotFoundError):
        netns.remove(name)


def _veth(
    near: object, a: str, far: object, far_name: str, b: str, left: IPv4Address, right: IPv4Address
) -> None:
    near.link("add", ifname=a, kind="veth", peer={"ifname": b, "net_ns_fd": far_name})  # type: ignore[attr-defined]
    ends = [(near, a, left), (far, b, right)]
    for ns, name, address in ends:
        index = ns.link_lookup(ifname=name)[0]  # type: ignore[attr-defined]
        ns.link("set", index=index, state="up")  # type: ignore[attr-defined]
        ns.addr("add", index=index, address=str(address), prefixlen=32)  # type: ignore[attr-defined]
    for (ns, name, _), (other, peer, address) in (ends, ends[::-1]):
        mac = other.get_links(other.link_lookup(ifname=peer)[0])[0].get_attr("IFLA_ADDRESS")  # type: ignore[attr-defined]
        index = ns.link_lookup(ifname=name)[0]  # type: ignore[attr-defined]
        ns.neigh("add", dst=str(address), lladdr=mac, ifindex=index, state=128)  # type: ignore[attr-defined]


@contextmanager
def inside(name: str) -> Iterator[None]:
    from pyroute2 import netns

    netns.pushns(name)
    try:
        yield
    finally:
        netns.popns()


def arrivals(watch: socket.socket, protocol: int) -> dict[int, int]:
    """Source port of each packet that came in -> number of the link."""
    found = {}
    with suppress(BlockingIOError):
        while True:
            packet, (interface, _, direction, *_) = watch.recvfrom(2048)
            if direction == socket.PACKET_HOST and packet[9] == protocol:
                found[int.from_bytes(packet[20:22], "big")] = int(interface[1:])
    return found


SEED_SYSCTL = Path("/proc/sys/net/ipv4/fib_multipath_hash_seed")


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@pytest.mark.skipif(not SEED_SYSCTL.exists(), reason="no fib_multipath_hash_seed: Linux 6.11, ECMP")
@pytest.mark.parametrize("seed", [1, 0x9E3779B9])
def test_a_kernel_sends_every_flow_where_the_hash_says(seed: int) -> None:
    ports = range(20_000, 20_000 + 37 * 60, 37)
    with namespaces() as (sender, router, target), ExitStack() as stack:
        with inside(router):
            for path, value in (
                ("ip_forward", 1),
                ("conf/all/rp_filter", 0),
                ("fib_multipath_hash_policy", HASH_POLICY),
                ("fib_multipath_hash_fields", HASH_FIELDS),
                ("fib_multipath_hash_seed", seed),
            ):
                (SEED_SYSCTL.parent / path).write_text(str(value))
        with inside(target):
            watch = stack.enter_context(
                socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
            )
            watch.setblocking(False)
        for name, source, hashed in (
            (sender, SENDER, forwarding_hash),
            (router, ROUTER, output_hash),
        ):
            for protocol, kind in ((UDP, socket.SOCK_DGRAM), (TCP, socket.SOCK_STREAM)):
                for port in ports:
                    with inside(name):
                        client = socket.socket(socket.AF_INET, kind)
                    with client, suppress(BlockingIOError, ConnectionRefusedError):
                        client.setblocking(False)
                        client.bind((str(source), port))
                        client.connect((str(TARGET), 7777))
                        if protocol == UDP:
                            client.send(b"x")
                expected = {
                    port: select(
                        hashed(FiveTuple(source, TARGET, port, 7777, protocol), seed), [1] * LINKS
                    )
                    for port in ports
                }
                assert arrivals(watch, protocol) == expected
                assert set(expected.values()) == set(range(LINKS))
