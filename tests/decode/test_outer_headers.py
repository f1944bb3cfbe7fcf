"""IPv4 packets that are wrapped in IPv6 are decoded as those that are not."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrSegmentRouting
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from analysis.decode.tcp.pcap import Packets, read_pcap
from tests.decode.synthetic_gloo import write_pcap

_STAMPS = [("NOP", None), ("NOP", None), ("Timestamp", (7, 9))]
_LISTS = (None, 1, 3)
"""Segments of the routing header; None: there is none."""


def _inner(payload: bytes, tos: int) -> Packet:
    head = IP(src="10.0.0.1", dst="10.0.0.2", tos=tos, id=5)
    return head / TCP(sport=1000, dport=2000, seq=11, ack=3, options=_STAMPS) / Raw(payload)


def _wrapped(inner: Packet, segments: int | None, traffic_class: int) -> Packet:
    outer = IPv6(src="fcbb:bb00:1::1", dst="fcbb:bb00:5:2::", tc=traffic_class)
    if segments is None:
        return Ether() / outer / inner
    return Ether() / outer / IPv6ExtHdrSegmentRouting(addresses=["::1"] * segments) / inner


def _read(path: Path, packets: list[Packet], snaplen: int = 65_535) -> Packets:
    write_pcap(path, [(n, bytes(each)) for n, each in enumerate(packets)], snaplen)
    return read_pcap(path)


@pytest.mark.parametrize("segments", _LISTS)
def test_the_packet_inside_is_read(tmp_path: Path, segments: int | None) -> None:
    bare = _read(tmp_path / "bare.pcap", [Ether() / _inner(b"x" * 100, 2)])
    packed = _wrapped(_inner(b"x" * 100, 2), segments, 0xB7)
    found = _read(tmp_path / "wrapped.pcap", [packed])
    outer = 40 + (8 + 16 * segments if segments else 0)
    assert found.outer_bytes.tolist() == [outer]
    assert found.wire_bytes[0] == bare.wire_bytes[0] + outer
    assert found.tos.tolist() == [0xB7], "that which ports on the way read"
    assert found.payload_offset[0] - found.offset[0] == (
        bare.payload_offset[0] - bare.offset[0] + outer
    )
    left_out = {"path", "snaplen", "data", "wire_bytes", "captured_bytes", "outer_bytes", "tos"}
    for name in {field.name for field in fields(Packets)} - left_out - {"payload_offset"}:
        assert np.array_equal(getattr(found, name), getattr(bare, name)), name


@pytest.mark.parametrize("segments", _LISTS)
def test_a_capture_that_cuts_headers_off_reads_what_is_there(
    tmp_path: Path, segments: int | None
) -> None:
    """Lengths within and between all headers, with what the wire had."""
    whole = Ether(bytes(_wrapped(_inner(b"y" * 50, 0), segments, 0)))
    headers = len(whole) - 50
    for snaplen in {*range(1, len(whole), 9), headers - 13, headers - 12, headers, headers + 1}:
        found = _read(tmp_path / f"{snaplen}.pcap", [whole], snaplen)
        assert bool(found.is_tcp[0]) == (snaplen >= headers - 12), "options may be cut off"
        assert found.payload_bytes[0] == (50 if found.is_tcp[0] else 0)
        assert found.payload_captured[0] == max(0, snaplen - headers)


def test_other_ipv6_is_none(tmp_path: Path) -> None:
    packets = [
        Ether() / IPv6() / TCP() / Raw(b"z" * 20),
        Ether() / IPv6() / IPv6() / UDP() / Raw(b"z" * 20),
        Ether() / IPv6(nh=4, version=5) / _inner(b"", 0),
    ]
    found = _read(tmp_path / "other.pcap", packets)
    assert not found.is_ipv4.any()
    assert not found.outer_bytes.any()
    assert not found.tos.any()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(min_size=12, max_size=90), min_size=1, max_size=8))
def test_any_bytes_are_read(tmp_path_factory: pytest.TempPathFactory, texts: list[bytes]) -> None:
    """Whatever follows the EtherType of IPv6, nothing is read beyond what was captured."""
    path = tmp_path_factory.mktemp("any") / "any.pcap"
    frames = [(n, bytes(12) + b"\x86\xdd" + text) for n, text in enumerate(texts)]
    write_pcap(path, frames, 65_535)
    found = read_pcap(path)
    assert (found.payload_captured <= found.captured_bytes - found.outer_bytes).all()
    assert (found.payload_bytes >= 0).all()
    assert (found.outer_bytes[~found.is_ipv4] == 0).all()
