"""`transport` in a spec: TCP without a kind, RoCE beside it."""

from __future__ import annotations

import pytest

from topologies.spec.run_sections import RoceTransport, TcpTransport
from topologies.spec.spec import SpecError, parse_spec

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
            "{kind: roce, congestion_control: dcqcn}",
            _PROGRAM,
            "transport.congestion_control: found dcqcn; allowed: none",
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
    ],
)
def test_mistakes_are_told(transport: str, workload: str, said: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_spec(_SPEC.format(transport=transport, workload=workload))
    assert said in str(error.value)
