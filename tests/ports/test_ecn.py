"""ECN end to end: negotiated, marked, echoed, heeded, as the capture and the kernel's own account
(inet_diag) tell it."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.decode.tcp.pcap import read_pcap
from emulator.capture import capture_ports, start_capture
from emulator.linux.netlink import NetlinkSocket, Request, parse_attributes
from testing.queue_lab import CE, Lab, fabric, lab
from testing.tcp_flows import TcpFlow, transfer

pytestmark = pytest.mark.guest

SYN, ACK, ECE, CWR = 0x02, 0x10, 0x40, 0x80
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_INET_DIAG_VEGASINFO, _INET_DIAG_DCTCPINFO = 3, 9
_DIAG_MESSAGE_BYTES = 72
_ESTABLISHED = 1


def _alphas(it: Lab, node: str) -> Iterator[float]:
    """The alpha of every established DCTCP connection of a node, from inet_diag."""
    # struct inet_diag_req_v2: family, protocol, ext, pad, states, id. A congestion control shows
    # its own kind of information to who asks for VEGASINFO (inet_diag(7)).
    payload = struct.pack("=BBBxI48x", 2, 6, 1 << (_INET_DIAG_VEGASINFO - 1), 1 << _ESTABLISHED)
    with it.network.enter(node):
        netlink = NetlinkSocket(_NETLINK_SOCK_DIAG)
    with netlink:
        for body in netlink.dump(Request(_SOCK_DIAG_BY_FAMILY, 0, payload, "list connections")):
            info = parse_attributes(body, _DIAG_MESSAGE_BYTES).get(_INET_DIAG_DCTCPINFO)
            if info is not None:
                # struct tcp_dctcp_info: enabled, ce_state, alpha (1024 for 1), ab_ecn, ab_tot
                yield struct.unpack_from("=HHI", info)[2] / 1024


def test_ce_in_the_capture_is_what_ports_marked_and_what_alpha_says(tmp_path: Path) -> None:
    # RTT 22 us at 10 Gb/s: K > C * RTT / 7 is 4 KB (Alizadeh et al., SIGCOMM 2010, section 3.4).
    links = [("h0", "s"), ("h1", "s"), ("s", "to")]
    queue = {"kind": "dctcp", "k": 20_000, "buffer": "4MB"}
    made = fabric(links, rate="10Gbps", delay="5us", queues={"s": queue})
    alphas: list[float] = []
    window: list[int] = []
    with lab(made, congestion_control="dctcp", ecn=True) as it:
        ports = capture_ports(it.fabric, ["to"], it.network.netns_path)
        capture = start_capture(ports, tmp_path / "capture", 96, "ring")

        def watch(_: list[TcpFlow]) -> None:
            time.sleep(0.008)
            window.append(time.clock_gettime_ns(time.CLOCK_REALTIME))
            for _step in range(100):
                time.sleep(0.0002)
                alphas.extend(alpha for node in ("h0", "h1") for alpha in _alphas(it, node))
            window.append(time.clock_gettime_ns(time.CLOCK_REALTIME))

        transfer(it, [("h0", "to"), ("h1", "to")], seconds=0, during=watch)
        time.sleep(0.01)
        assert [stats.invalid_reason for stats in capture.stop()] == [None]
        marks = sum(s.ecn_marks for s in it.all_statistics().values())
        marked_by_s = it.statistics("s", "to").ecn_marks

    packets = read_pcap(tmp_path / "capture" / ports[0].file_name)
    data = packets.is_tcp & (packets.payload_bytes > 0)
    ce = (packets.tos & 3) == CE
    # Every packet that a port marked came in marked, and none else.
    assert ce.sum() == marks == marked_by_s > 100
    # Negotiated on both: SYN with ECE and CWR, SYN-ACK with ECE alone (RFC 3168, 6.1.1).
    kinds = packets.flags & (SYN | ACK | ECE | CWR)
    assert (packets.is_tcp & (kinds == SYN | ECE | CWR)).sum() == 2
    assert (packets.is_tcp & (kinds == SYN | ACK | ECE)).sum() == 2
    # Data is sent ECN-capable; acknowledgements echo what came in.
    assert ((packets.tos & 3) > 0)[data].all()
    assert (packets.is_tcp & ~data & ((packets.flags & ECE) > 0)).sum() > 2
    # alpha is the senders' estimate of the marked share of what is in the capture.
    inside = data & (packets.timestamp_ns > window[0]) & (packets.timestamp_ns < window[1])
    assert len(alphas) == 200
    assert sum(alphas) / len(alphas) == pytest.approx(ce[inside].mean(), rel=0.25)


def test_without_negotiation_nothing_is_marked(tmp_path: Path) -> None:
    queue = {"kind": "dctcp", "k": 20_000, "buffer": "4MB"}
    made = fabric([("h0", "s"), ("s", "to")], rate="10Gbps", queues={"s": queue},
                  rates={("s", "to"): "5Gbps"})  # fmt: skip
    with lab(made, ecn=False) as it:
        ports = capture_ports(it.fabric, ["to"], it.network.netns_path)
        capture = start_capture(ports, tmp_path / "capture", 96, "ring")
        transfer(it, [("h0", "to")], 4_000_000)
        capture.stop()
        statistics = it.statistics("s", "to")
    packets = read_pcap(tmp_path / "capture" / ports[0].file_name)
    assert not (packets.is_tcp & ((packets.tos & 3) > 0)).any()
    assert statistics.ecn_marks == 0
    assert statistics.ecn_refused > 0
