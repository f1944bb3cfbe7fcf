"""The stock arrangement in the virtual kernel: what it must get right."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pyroute2.netlink.rtnl import RTM_NEWQDISC
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from emulator.linux import rtnetlink
from emulator.linux.messages import additions  # noqa: F401  # pyroute2 then knows RED
from emulator.linux.messages.formats import MESSAGE_HEADER
from testing.queue_lab import CE, ECT0, Lab, fabric, frame_ns, lab, line, payload_of, send
from testing.tcp_flows import transfer

FRAME = 1514
RATE_BPS = 100_000_000


@pytest.mark.guest
def test_an_idle_link_serialises_and_delays() -> None:
    with lab(line(2, rate=f"{RATE_BPS}bps", delay="50us"), stock=True) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b")
        start = time.clock_gettime_ns(time.CLOCK_REALTIME)
        send(source, 1, payload_of(FRAME))
        time.sleep(0.01)
        took = sink.drain()[0].time_ns - start
        assert took == pytest.approx(2 * (frame_ns(FRAME, RATE_BPS) + 50_000), rel=0.001)


@pytest.mark.guest
def test_one_flow_gets_the_link() -> None:
    with lab(line(1, rate="1Gbps", delay="5us"), stock=True) as it:
        (flow,) = transfer(it, [("a", "b")], 10_000_000)
        limit = 1e9 * (1500 - 52) / (1500 + 38)
        assert 0.98 * limit < flow.steady_bps() <= limit * 1.001


@pytest.mark.guest
def test_the_buffer_is_in_bytes() -> None:
    queues = {"a": {"kind": "droptail", "buffer": 20 * FRAME}}
    with lab(line(1, rate=f"{RATE_BPS}bps", queues=queues), stock=True) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b")
        send(source, 100, payload_of(FRAME))
        time.sleep(0.02)
        # One may be in the token bucket's hand and one in its burst.
        assert 20 <= len(sink.drain()) <= 22
        counters = {c.port: c.queue for c in it.network.port_counters()}
        assert 78 <= counters["a-eth0"].drops <= 80


@pytest.mark.guest
def test_step_marking_is_red_without_an_average() -> None:
    k = 10 * FRAME
    queues = {"a": {"kind": "dctcp", "k": k, "buffer": 200 * FRAME}}
    with lab(line(1, rate=f"{RATE_BPS}bps", queues=queues), stock=True) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b", tos=ECT0)
        for _ in range(3):
            send(source, 60, payload_of(FRAME))
            time.sleep(0.02)
            marked = [p.sequence for p in sink.drain() if p.ecn == CE]
            assert marked == list(range(marked[0], 60))
            assert 10 <= marked[0] <= 13
        counters = {c.port: c.queue for c in it.network.port_counters()}
        assert counters["a-eth0"].ecn_marks == pytest.approx(3 * 48.5, abs=6)


@pytest.mark.guest
@pytest.mark.parametrize("kind", ["red", "codel", "fq_codel"])
def test_the_kernel_takes_the_other_disciplines(kind: str) -> None:
    with lab(fabric([("a", "s"), ("s", "b")], queue={"kind": kind}), stock=True) as it:
        transfer(it, [("a", "b")], 1_000_000)
        assert all(c.queue.drops == 0 for c in it.network.port_counters())


@pytest.mark.guest
def test_the_kernel_has_what_the_spec_says() -> None:
    """It says back, in pyroute2's names, what it was given."""
    queues = {
        "a": {"kind": "fq_codel", "flows": 64, "quantum": 3000, "ce_threshold": "80us"},
        "b": {"kind": "red", "ecn": False, "kmin": 30_000, "kmax": 90_000},
    }
    with lab(line(1, queues=queues), stock=True) as it:
        fair, early = (_options(it, node, str(queues[node]["kind"])) for node in queues)
    assert fair.get_attr("TCA_FQ_CODEL_FLOWS") == 64
    assert fair.get_attr("TCA_FQ_CODEL_QUANTUM") == 3000
    assert fair.get_attr("TCA_FQ_CODEL_CE_THRESHOLD") == pytest.approx(80, abs=1)
    assert early.get_attr("TCA_RED_PARMS")["qth_min"] == 30_000
    assert early.get_attr("TCA_RED_FLAGS")["bits"] == 0, "neither marks nor keeps"


def _options(it: Lab, node: str, kind: str) -> Any:
    with it.network.netlink(node) as netlink:
        for body in netlink.dump(rtnetlink.get_qdiscs()):
            size = MESSAGE_HEADER.size + len(body)
            found = tcmsg(MESSAGE_HEADER.pack(size, RTM_NEWQDISC, 0, 0, 0) + body)
            found.decode()
            if found.get_attr("TCA_KIND") == kind:
                return found.get_attr("TCA_OPTIONS")
    raise LookupError(f"no {kind} on {node}")
