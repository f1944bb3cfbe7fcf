"""Netlink's formats and the fabric's requests; needs no root."""

from __future__ import annotations

import os
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2.netlink.rtnl import rt_type
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from emulator.linux import rtnetlink
from emulator.linux.messages.additions import netem_options as netem_message
from emulator.linux.messages.formats import ATTRIBUTE_HEADER, MESSAGE_HEADER
from emulator.linux.netlink import NetlinkError, parse_attributes
from emulator.linux.rtnetlink import Hop, Metrics
from emulator.network.blueprint import Blueprint
from emulator.network.sysctls import TcpSettings, node_sysctls
from emulator.ports.arrangement import NetemArrangement, RateOnlyArrangement, netem_options
from tests.native.native_fabrics import fat_tree, flat, torus
from topologies.fabrics.fabric import Fabric, Node


def attribute(kind: int, data: bytes) -> bytes:
    padding = b"\0" * (-len(data) % 4)
    return ATTRIBUTE_HEADER.pack(ATTRIBUTE_HEADER.size + len(data), kind) + data + padding


@given(st.dictionaries(st.integers(0, 0x3FFF), st.binary(max_size=300), max_size=20))
def test_attributes_come_back_as_they_went(values: dict[int, bytes]) -> None:
    packed = b"".join(attribute(kind, data) for kind, data in values.items())
    assert len(packed) % 4 == 0
    assert parse_attributes(packed) == values


@given(st.binary(max_size=400), st.integers(0, 40))
def test_garbage_is_read_without_a_fault(data: bytes, offset: int) -> None:
    for value in parse_attributes(data, offset).values():
        assert value in data


@given(st.dictionaries(st.integers(0, 50), st.binary(max_size=60), min_size=1), st.data())
def test_a_cut_message_gives_what_came_whole(values: dict[int, bytes], data: st.DataObject) -> None:
    packed = b"".join(attribute(kind, value) for kind, value in values.items())
    cut = data.draw(st.integers(0, len(packed)))
    assert parse_attributes(packed[:cut]).items() <= values.items()


def test_an_error_names_request_and_reason() -> None:
    error = NetlinkError(17, "make the link a - b", "Name already in use")
    assert error.errno == 17
    assert str(error) == f"[Errno 17] make the link a - b: {os.strerror(17)}: Name already in use"


@pytest.mark.parametrize("fabric", [fat_tree(), torus(), flat(7)], ids=lambda f: f.kind)
def test_indices_are_unique_in_a_node_and_differ_across_a_link(fabric: Fabric) -> None:
    plan = Blueprint(fabric, RateOnlyArrangement(), TcpSettings())
    for contexts in plan.contexts.values():
        indices = [context.ifindex for context in contexts]
        assert len(set(indices)) == len(indices)
        assert min(indices) > 1, "1 is the loopback's"
    for link in fabric.links:
        assert plan.ifindex[link.a.interface] != plan.ifindex[link.b.interface]


def _route(hops: int, metrics: Metrics) -> Any:
    """A route as pyroute2 reads it."""
    request = rtnetlink.route(
        IPv4Network("10.1.0.0/16"),
        [Hop(2 + i, IPv4Address(f"10.0.0.{i}")) for i in range(hops)],
        IPv4Address("10.0.0.9"),
        metrics,
    )
    size = MESSAGE_HEADER.size + len(request.payload)
    found = rtmsg(MESSAGE_HEADER.pack(size, request.type, 0, 0, 0) + request.payload)
    found.decode()
    return found


def test_one_next_hop_several_and_none() -> None:
    single, several, none = (_route(n, Metrics()) for n in (1, 3, 0))
    assert single.get_attr("RTA_GATEWAY") == "10.0.0.0"
    assert [hop["oif"] for hop in several.get_attr("RTA_MULTIPATH")] == [2, 3, 4]
    assert none["type"] == rt_type["unreachable"]
    assert [name for name, _ in none["attrs"]] == ["RTA_DST"], "with nothing else"


def test_tcp_metrics_are_locked_where_tcp_heeds_them_only_then() -> None:
    assert _route(1, Metrics()).get_attr("RTA_METRICS") is None
    metrics = _route(1, Metrics(40, 5)).get_attr("RTA_METRICS")
    assert dict(metrics["attrs"]) == {
        "RTAX_INITCWND": 40,
        "RTAX_RTO_MIN": 5,
        "RTAX_LOCK": 1 << 13,  # RTAX_RTO_MIN
    }


@given(seed=st.integers(0, 2**32 - 1))
def test_every_switch_hashes_by_a_seed_of_its_own(seed: int) -> None:
    fabric = fat_tree()
    seeds = {
        dict(node_sysctls(node, TcpSettings(), multihomed=True, marks=False, hash_seed=seed))[
            "ipv4/fib_multipath_hash_seed"
        ]
        for node in fabric.switches
    }
    assert len(seeds) == len(fabric.switches)
    assert all(0 < int(text) < 2**32 for text in seeds)


def test_only_nodes_that_may_be_addressed_look_for_their_sockets() -> None:
    def settings(node: Node) -> dict[str, str]:
        return dict(node_sysctls(node, TcpSettings(), multihomed=False, marks=False, hash_seed=1))

    assert settings(fat_tree().switches[0])["ipv4/ip_early_demux"] == "0"
    for host in (fat_tree().hosts[0], torus().hosts[0]):  # the latter forwards as well
        assert "ipv4/ip_early_demux" not in settings(host)


@pytest.mark.parametrize(
    ("control", "marks", "ecn", "expected"),
    [
        ("cubic", False, None, "0"),
        ("cubic", True, None, "1"),
        ("dctcp", False, None, "1"),
        ("cubic", True, False, "0"),
        ("cubic", False, True, "1"),
    ],
)
def test_ecn_is_on_when_something_needs_it(
    control: str, marks: bool, ecn: bool | None, expected: str
) -> None:
    host = flat(2).hosts[0]
    transport = TcpSettings(congestion_control=control, ecn=ecn)
    settings = dict(node_sysctls(host, transport, multihomed=False, marks=marks, hash_seed=1))
    assert settings["ipv4/tcp_ecn"] == expected


@given(rate_gbps=st.integers(1, 10_000), loss=st.floats(0, 1))
def test_netem_gets_rates_above_32_bits_and_probabilities_up_to_one(
    rate_gbps: int, loss: float
) -> None:
    link = flat(2, rate=f"{rate_gbps}Gbps").links[0]
    found = _read(netem_options(link, 4_000_000, loss))
    rate = found.get_attr("TCA_NETEM_RATE64") or found.get_attr("TCA_NETEM_RATE")["rate"]
    assert rate == rate_gbps * 125_000_000
    assert bool(found.get_attr("TCA_NETEM_RATE64")) == (rate > 2**32 - 1)
    assert found["loss"] == min(round(loss * 2**32), 2**32 - 1)


def _read(options: bytes) -> Any:
    size = ATTRIBUTE_HEADER.size + len(options)
    found = netem_message(ATTRIBUTE_HEADER.pack(size, 0) + options, length=size)
    found.decode()
    return found


def test_netems_limit_holds_the_buffer_and_what_is_in_flight() -> None:
    context = Blueprint(flat(2), NetemArrangement(), TcpSettings()).contexts["h0"][0]
    limit = _read(netem_options(context.link, 1514 * 50))["limit"]
    assert limit == 50 + 1  # no delay: one in transmission
