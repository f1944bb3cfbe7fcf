"""Servers of several GPUs on fabrics whose hosts have one port: where their packets go."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from pydantic import ValidationError

from tests.topologies.fabric_strategies import SCALE_UP, fabric_of, servers
from tests.topologies.test_builders import bisection_bps
from tests.topologies.test_routing import longest_match
from topologies.fabrics.wiring import FabricError
from topologies.routing.routes import compute_routes
from topologies.spec.spec import SpecError, parse_dict

FLAT = {"kind": "flat", "hosts": 3, "gpus_per_host": 4, "link": {"rate": "400Gbps", "delay": "1us"}}


@settings(max_examples=40, deadline=None)
@given(servers)
def test_inside_a_server_by_scale_up_and_between_servers_as_its_host_would(
    raw: dict[str, Any],
) -> None:
    gpus = raw["gpus_per_host"]
    fabric, plain = (
        fabric_of(raw),
        fabric_of({**raw, "gpus_per_host": 1, "links": {}, "routing": "ecmp"}),
    )
    assert len(fabric.hosts) == gpus * len(plain.hosts)
    routes, of_hosts = compute_routes(fabric), compute_routes(plain)
    for a in fabric.hosts[: 2 * gpus]:
        assert [x.link_class for x in fabric.links_of[a.name]] == ["scale-up", "host-nic"]
        for b in fabric.hosts:
            here, there = int(a.name[1:]) // gpus, int(b.name[1:]) // gpus
            ways = {tuple(hop.node for hop in path) for path in routes.paths(a.name, b.name)}
            if a is b:
                continue
            if here == there:
                assert ways == {(f"server{here}", b.name)}
                continue
            expected = {
                (f"nic{here}", *(hop.node for hop in path[:-1]), f"nic{there}", b.name)
                for path in of_hosts.paths(f"h{here}", f"h{there}")
            }
            assert ways <= expected
            if raw.get("routing", "ecmp") == "ecmp":
                assert ways == expected


@settings(max_examples=20, deadline=None)
@given(servers)
def test_tables_of_all_nodes_on_the_way_say_what_next_hops_say(raw: dict[str, Any]) -> None:
    fabric = fabric_of(raw)
    routes = compute_routes(fabric)
    for a in (fabric.hosts[0], fabric.hosts[-1]):
        for b in fabric.hosts:
            if a is b:
                continue
            paths = routes.paths(a.name, b.name)
            for node in {a.name, *(hop.node for path in paths for hop in path[:-1])}:
                expected = routes.next_hops(node, b.name)
                assert longest_match(routes.tables[node], b.address) == expected


def test_gpus_share_the_nic_of_their_server() -> None:
    fabric = fabric_of({**FLAT, "links": SCALE_UP})
    first = {host.name for host in fabric.hosts[:4]}
    assert bisection_bps(fabric, first) == 400 * 10**9
    inside = {link.delay_ns for link in fabric.links if link.link_class == "host-nic"}
    assert inside == {0}
    # The NIC holds what its GPUs give it: 1 GB, as a host's own port.
    ports = [x.port("nic0").queue for x in fabric.links_of["nic0"]]
    assert {queue.buffer_bytes for queue in ports} == {10**9}
    wide = fabric_of({**FLAT, "links": SCALE_UP | {"host-nic": {"rate": "512Gbps"}}})
    rates = {link.link_class: link.rate_bps // 10**9 for link in wide.links}
    assert rates == {"scale-up": 3600, "host-nic": 512, "host": 400}


def test_a_program_says_how_many_gpus_its_hosts_have() -> None:
    program = {"kind": "command", "argv": ["true"], "ranks": 8, "gpus_per_host": 4, "per": "host"}
    fabric = {"kind": "fat-tree", "k": 4, "links": SCALE_UP}
    spec = parse_dict({"name": "one", "fabric": fabric, "workload": program}, "one")
    assert len(spec.plan.fabric.hosts) == 64
    assert spec.fabric.gpus_per_server == 4
    assert spec.plan.hosts == tuple(f"h{rank}" for rank in range(8))


@pytest.mark.parametrize(
    ("fabric", "more", "expected"),
    [
        (FLAT, {}, "fabric: .*links: {scale-up: {rate: ...}}"),
        ({**FLAT, "links": {"scale-up": {"delay": "1us"}}}, {}, "a stated rate"),
        ({**FLAT, "links": SCALE_UP, "hosts": 2000}, {}, "at most 4096"),
        (
            {**FLAT, "links": SCALE_UP},
            {"collectives": {"backend": "nccl"}},
            "collectives.backend: found nccl; .*a NIC for each GPU",
        ),
    ],
)
def test_servers_that_cannot_be_are_refused(
    fabric: dict[str, Any], more: dict[str, Any], expected: str
) -> None:
    raw = {"name": "one", "fabric": fabric, "workload": {"kind": "dlrm", "ranks": 4}} | more
    with pytest.raises(SpecError, match=expected):
        parse_dict(raw, "one")


def test_links_of_servers_need_servers() -> None:
    with pytest.raises((FabricError, ValidationError), match="a link class: host"):
        fabric_of({"kind": "flat", "hosts": 2, "links": SCALE_UP})
