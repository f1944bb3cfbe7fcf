"""`transport` in a spec: TCP without a kind, RoCE beside it."""

from __future__ import annotations

import re

import pytest

from topologies.spec.spec import SpecError, parse_spec
from topologies.spec.transports.roce.section import RoceTransport
from topologies.spec.transports.tcp.section import TcpTransport

_SPEC = """
name: transports
fabric: {{kind: flat, hosts: 4, link: {{mtu: 1500}}}}
transport: {transport}
workload: {workload}
"""
_PROGRAM = "{kind: command, ranks: 4, argv: [train]}"
_COLLECTIVES = "{kind: collectives, ranks: 4, operations: [{kind: barrier}]}"


def test_a_transport_without_a_kind_is_tcp() -> None:
    plain = parse_spec(_SPEC.format(transport="{min_rto: 1ms}", workload=_COLLECTIVES))
    named = parse_spec(_SPEC.format(transport="{kind: tcp, min_rto: 1ms}", workload=_COLLECTIVES))
    assert plain == named
    assert plain.tcp.min_rto_ns == 1_000_000
    assert parse_spec(plain.to_yaml()) == plain
    over = plain.with_overrides({"transport.congestion_control": "dctcp"})
    assert over.tcp.congestion_control == "dctcp"
    assert over.tcp.min_rto_ns == 1_000_000


def test_programs_can_use_roce_and_tcp_beside_it() -> None:
    spec = parse_spec(_SPEC.format(transport="{kind: roce}", workload=_PROGRAM))
    assert spec.transport == RoceTransport(kind="roce")
    assert spec.tcp == TcpTransport()
    assert parse_spec(spec.to_yaml()) == spec
    tcp = parse_spec(_SPEC.format(transport="{min_rto: 1ms}", workload=_PROGRAM))
    assert tcp.with_overrides({"transport.kind": "roce"}) == spec


@pytest.mark.parametrize(
    ("transport", "workload", "said"),
    [
        ("{kind: quic}", _PROGRAM, "transport.kind: found quic; allowed: tcp, roce"),
        (
            "{kind: mptcp, subflows: 65}",
            _PROGRAM,
            "line 4: transport.subflows: found 65; expected at most 64",
        ),
        (
            "{kind: mptcp, ports: 4}",
            _PROGRAM,
            "transport.ports: found 4; unknown key; allowed: kind, congestion_control",
        ),
        (
            "{subflows: 4}",
            _PROGRAM,
            "transport.subflows: found 4; unknown key; allowed: kind, congestion_control",
        ),
        (
            "{kind: roce, congestion_control: swift}",
            _PROGRAM,
            "transport.congestion_control: found swift; allowed: none, dcqcn, timely, hpcc, dctcp",
        ),
        (
            "{kind: roce, congestion_control: dcqcn}",
            _PROGRAM,
            "transport.congestion_control: found dcqcn; expected queues that mark",
        ),
        (
            "{kind: roce, timely: {low: 1us}}",
            _PROGRAM,
            "`timely` is for congestion_control: timely, which is none here",
        ),
        (
            "{kind: roce, congestion_control: timely, timely: {low: 1ms}}",
            _PROGRAM,
            "expected low <= high",
        ),
        ("{kind: roce, window: 500}", _PROGRAM, "a window of at least one packet"),
        (
            "{kind: roce, congestion_control: hpcc, path_mtu: 1024, hpcc: {target: 2}}",
            _PROGRAM,
            "transport.hpcc.target: found 2",
        ),
        ("{kind: roce, min_rto: 1ms}", _PROGRAM, "transport.min_rto: found 1ms; unknown key"),
        ("{min_rto: soon}", _PROGRAM, "transport.min_rto: found soon"),
        ("{retries: 3}", _PROGRAM, "transport.retries: found 3; unknown key"),
        ("tcp", _PROGRAM, "transport: found tcp; expected a section"),
        (
            "{kind: roce, path_mtu: 3000}",
            _COLLECTIVES,
            "transport.path_mtu: found 3000; allowed: 256, 512, 1024, 2048, 4096",
        ),
        (
            "{kind: roce, path_mtu: 4096}",
            _COLLECTIVES,
            "transport.path_mtu: found 4096; expected at most 1420: there is a link with an MTU of "
            "1500",
        ),
        (
            "{kind: roce}",
            _COLLECTIVES,
            "transport.kind: found roce; expected tcp, or collectives.backend: programs: Gloo's "
            "collectives go over TCP",
        ),
        (
            "{kind: roce}",
            _COLLECTIVES.replace("barrier", "all_reduce, size: 1MB")
            + "\ncollectives: {backend: programs, broadcast: {algorithm: tree}}",
            "transport.kind: found roce; expected tcp, or an algorithm for a collective, such as "
            "collectives.all_reduce.algorithm: those without one are Gloo's own",
        ),
    ],
)
def test_mistakes_are_told(transport: str, workload: str, said: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_spec(_SPEC.format(transport=transport, workload=workload))
    assert said in str(error.value)


_SLOW = """
name: slow
fabric: {{kind: flat, hosts: 2, link: {{rate: 100Mbps, delay: 5us, mtu: 1500}}}}
transport: {{kind: roce{more}}}
workload: {workload}
collectives: {collectives}
"""
_RING = "{backend: programs, all_reduce: {algorithm: ring}}"


def test_a_time_out_before_the_first_acknowledgement_is_refused() -> None:
    """65 packets of 1106 bytes take 5.75 ms at 100 Mb/s, one more 0.2 ms there and back."""
    ring = _COLLECTIVES.replace("ranks: 4", "ranks: 2").replace("barrier", "all_reduce, size: 1MB")
    with pytest.raises(SpecError) as error:
        parse_spec(_SLOW.format(more="", workload=ring, collectives=_RING))
    assert "transport.qp_timeout: found 1048.576us; expected at least 5.962ms" in str(error.value)
    for more in (", qp_timeout: 6ms", ", ack_every: 1"):
        parse_spec(_SLOW.format(more=more, workload=ring, collectives=_RING))
    program = _PROGRAM.replace("ranks: 4", "ranks: 2")
    parse_spec(_SLOW.format(more="", workload=program, collectives="{}"))


_ON = """
name: fabrics
fabric: {fabric}
transport: {transport}
workload: {{kind: command, ranks: 2, argv: [train]}}
"""
_FLAT = "{kind: flat, hosts: 2, link: {rate: 100Gbps, mtu: 4200}, queue: %s}"


@pytest.mark.parametrize(
    ("fabric", "transport", "said"),
    [
        (
            _FLAT % "{kind: lossless, lossy_priorities: [0, 1]}",
            "{kind: roce}",
            "transport.class: found 0; expected one that the lossless queues do not lose "
            "(lossy_priorities), 2, 3,",
        ),
        (
            _FLAT % "{kind: dctcp}",
            "{kind: roce, congestion_control: dcqcn, ecn: false}",
            "transport.ecn: found false; expected true with dcqcn",
        ),
        (
            _FLAT % "{kind: droptail}",
            "{kind: roce, congestion_control: hpcc, path_mtu: 4096}",
            "transport.path_mtu: found 4096; expected at most 4092: there is a link with an MTU of "
            "4200, and telemetry takes 28",
        ),
        (
            "{kind: flat, hosts: 2, link: {rate: 150Mbps}}",
            "{kind: roce, congestion_control: hpcc}",
            "expected link rates in whole 100Mbps",
        ),
        (
            "{kind: torus, dims: [20, 2], link: {rate: 100Gbps}}",
            "{kind: roce, congestion_control: hpcc}",
            "its packets have room for 8 ports, and there is a path of 11",
        ),
        (
            "{kind: flat, hosts: 2, link: {rate: 10Tbps}}",
            "{kind: roce, congestion_control: timely}",
            "expected none with links of more than 8796093022208 bits/s",
        ),
        (
            "{kind: rails, servers: 2, hosts_per_server: 2, link: {rate: 100Gbps}}",
            "{kind: roce}",
            "transport.kind: found roce; expected routes by which all packets between two hosts "
            "come and go by the same port of each: between h0 and h3 they take several ports of h0",
        ),
    ],
)
def test_what_a_fabric_cannot_do_is_refused(fabric: str, transport: str, said: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_spec(_ON.format(fabric=fabric, transport=transport))
    assert said in str(error.value)


@pytest.mark.parametrize("servers_per_leaf", [1, 2])
def test_queue_pairs_of_servers_with_leaves_have_a_port_each(servers_per_leaf: int) -> None:
    rails = f"kind: rails, servers: 2, hosts_per_server: 2, servers_per_leaf: {servers_per_leaf}"
    fabric = f"{{{rails}, spines: 1, link: {{rate: 100Gbps}}}}"
    parse_spec(_ON.format(fabric=fabric, transport="{kind: roce}"))


@pytest.mark.parametrize(
    ("queue", "control"),
    [
        ("{kind: dctcp}", "dcqcn"),
        ("{kind: red}", "dcqcn"),
        ("{kind: lossless, k: 100KB}", "dcqcn"),
        ("{kind: lossless, kmin: 100KB, kmax: 400KB}", "dcqcn"),
        ("{kind: lossless, lossy_priorities: [1]}", "timely"),
    ],
)
def test_controllers_have_the_queues_that_they_need(queue: str, control: str) -> None:
    transport = f"{{kind: roce, path_mtu: 4096, congestion_control: {control}}}"
    spec = parse_spec(_ON.format(fabric=_FLAT % queue, transport=transport))
    assert parse_spec(spec.to_yaml()) == spec


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("capture: {snaplen: 128}", "capture.snaplen: found 128; expected at least 142"),
        ("virtual: {ranks_per_process: 4}", "virtual.ranks_per_process: found 4; expected 1 or"),
    ],
)
def test_mptcp_needs_its_options_and_ranks_that_are_processes(more: str, said: str) -> None:
    text = _SPEC.format(transport="{kind: mptcp}", workload=_COLLECTIVES)
    assert parse_spec(text).tcp == TcpTransport()
    with pytest.raises(SpecError, match=re.escape(said)):
        parse_spec(text + more)
