"""Details of the kernel that `tcp` repeats, against what the kernel itself says of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.predict.engines.tcp.control.congestion import cubic_root
from analysis.predict.engines.tcp.endpoint import Endpoint
from analysis.predict.engines.tcp.packet import LOST, Packet
from analysis.predict.engines.tcp.red import PortRandom, RedPort
from analysis.predict.models.tcp import LinuxTcp
from analysis.predict.setting import setting_of_spec
from collectives.call import CollectiveCall
from collectives.kinds import Kind
from topologies.spec.queue_section import Red
from topologies.spec.spec import parse_spec


@pytest.mark.parametrize(
    ("seed", "first"), [(1, 3484351685), (2, 2623130059), (3, 3125133893), (4, 984847254)]
)
def test_random_numbers_pass_the_kernel_s_own_test(seed: int, first: int) -> None:
    """test1 of lib/random32.c: its states come from a linear congruence, after ten numbers."""
    drawn = PortRandom(0)
    state = seed
    for name, least in (("_s1", 2), ("_s2", 8), ("_s3", 16), ("_s4", 128)):
        state = state * 69069 & 0xFFFFFFFF
        setattr(drawn, name, state + least if state < least else state)
    for _ in range(10):
        drawn.u32()
    assert drawn.u32() == first


@given(st.integers(1, 2**40))
def test_cubic_roots_are_as_far_off_as_the_kernel_says(value: int) -> None:
    """0.2% in the mean (tcp_cubic.c), of whole numbers."""
    assert cubic_root(value) == pytest.approx(value ** (1 / 3), rel=0.01, abs=1)


def test_red_marks_nothing_below_its_line_and_all_above_it() -> None:
    red = Red(kind="red", kmin=20_000, kmax=60_000, pmax=0.5, weight=1, buffer=100_000)
    port = RedPort(10**9, 0, red, 1000, seed=1)
    marked = []
    for number in range(200):
        packet = Packet((port,), Endpoint.__new__(Endpoint), number, number, 0, 0)
        packet.length, packet.hop, packet.ect = 1000, 1, True
        if port.send(packet, 0) == LOST:
            break
        marked.append(packet.ce)
    assert len(marked) == 101  # the first one is on the line, and a hundred wait
    assert not any(marked[:21])
    assert all(marked[62:])
    assert 5 < sum(marked[21:62]) < 20


def test_what_a_host_s_own_port_has_no_room_for_was_not_sent() -> None:
    """Of ten segments at once a port takes one to transmit and two that wait. The window falls,
    and nothing has to be sent again."""
    spec = parse_spec(
        """
name: test
fabric:
  kind: torus
  dims: [4, 2]
  link: {rate: 10Gbps, delay: 1us, mtu: 9000}
  queue: {kind: droptail, buffer: 20KB}
workload: {kind: collectives, ranks: 8, operations: [{kind: barrier}]}
"""
    )
    predictor = LinuxTcp()
    call = CollectiveCall(Kind.SEND_RECV, 80_000, (0, 1), peer=1)
    took = predictor.predict(setting_of_spec(spec), call)
    assert predictor.last is not None
    end = predictor.last.endpoints[0, 1]
    assert end.route[0].drops > 0  # type: ignore[attr-defined]
    assert end.ssthresh < 10
    assert end.retransmitted == 0
    assert took < 1_000_000
