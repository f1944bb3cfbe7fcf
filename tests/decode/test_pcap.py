"""The numpy decoder against scapy, and against files that are not what they seem."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Raw
from scapy.utils import PcapReader

from analysis.decode.tcp.pcap import CaptureFormatError, Packets, decode_pcap, read_pcap
from tests.decode.synthetic_gloo import write_pcap

ADDRESS = st.integers(0, 2**32 - 1).map(
    lambda n: ".".join(str(n >> shift & 255) for shift in (24, 16, 8, 0))
)
PORT = st.integers(0, 65_535)
WORD = st.integers(0, 2**32 - 1)
PAYLOAD = st.binary(max_size=80)


@st.composite
def tcp_frames(draw: st.DrawFn) -> Packet:
    options = draw(
        st.lists(
            st.sampled_from(
                [
                    ("NOP", None),
                    ("MSS", 1460),
                    ("WScale", 7),
                    ("SAckOK", b""),
                    ("SAck", (1, 2)),
                    ("Timestamp", (draw(WORD), draw(WORD))),
                ]
            ),
            max_size=3,
        )
    )
    return (
        Ether()
        / IP(src=draw(ADDRESS), dst=draw(ADDRESS), tos=draw(st.integers(0, 255)), id=draw(PORT))
        / TCP(sport=draw(PORT), dport=draw(PORT), seq=draw(WORD), ack=draw(WORD),
              flags=draw(st.integers(0, 255)), window=draw(PORT), options=options)
        / Raw(draw(PAYLOAD))
    )  # fmt: skip


@st.composite
def udp_frames(draw: st.DrawFn) -> Packet:
    ip = IP(src=draw(ADDRESS), dst=draw(ADDRESS), ttl=draw(st.integers(0, 255)))
    return Ether() / ip / UDP(sport=draw(PORT), dport=draw(PORT)) / Raw(draw(PAYLOAD))


FRAMES = st.one_of(
    tcp_frames(),
    udp_frames(),
    st.just(Ether() / ARP()),
    st.just(Ether() / IP(proto=1) / Raw(b"ping")),
    st.just(Ether() / IP(frag=3, proto=6) / Raw(b"the middle of a datagram, no header")),
    st.binary(min_size=1, max_size=60).map(Raw),
)


@settings(max_examples=60, deadline=None)
@given(
    frames=st.lists(FRAMES, max_size=6),
    order=st.sampled_from("<>"),
    nanoseconds=st.booleans(),
)
def test_same_fields_as_scapy(
    frames: list[Packet], order: str, nanoseconds: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    packets = [(1_700_000_000_123_456_000 + 7_000 * i, bytes(f)) for i, f in enumerate(frames)]
    path = tmp_path_factory.mktemp("pcap") / "a.pcap"
    write_pcap(path, packets, order=order, nanoseconds=nanoseconds)
    assert_agrees_with_scapy(path)


def assert_agrees_with_scapy(path: Path) -> None:
    ours = read_pcap(path)
    theirs = list(PcapReader(str(path)))
    assert len(ours) == len(theirs)
    for row, packet in enumerate(theirs):
        assert ours.timestamp_ns[row] == int(packet.time * 1_000_000_000)
        assert ours.wire_bytes[row] == packet.wirelen
        ip = packet.getlayer(IP)
        if ip is None:
            assert not ours.is_tcp[row] and not ours.is_udp[row]
            continue
        assert ours.is_ipv4[row]
        assert (ours.tos[row], ours.ttl[row], ours.ip_identification[row]) == (
            ip.tos, ip.ttl, ip.id,
        )  # fmt: skip
        assert ".".join(str(int(ours.source[row]) >> s & 255) for s in (24, 16, 8, 0)) == ip.src
        whole = packet.wirelen == len(packet)
        for layer, flag in ((TCP, ours.is_tcp), (UDP, ours.is_udp)):
            found = ip.payload if isinstance(ip.payload, layer) else None
            assert bool(flag[row]) == (found is not None)
            if found is None:
                continue
            assert (ours.source_port[row], ours.destination_port[row]) == (
                found.sport, found.dport,
            )  # fmt: skip
            if whole:
                payload = bytes(found.payload)
                at = int(ours.payload_offset[row])
                assert ours.payload_bytes[row] == len(payload)
                assert ours.data[at : at + len(payload)].tobytes() == payload
            if layer is TCP:
                assert (ours.sequence[row], ours.acknowledgement[row], ours.window[row]) == (
                    found.seq, found.ack, found.window,
                )  # fmt: skip
                assert ours.flags[row] == int(found.flags) & 0xFF
                stamps = [value for name, value in found.options if name == "Timestamp"]
                assert bool(ours.has_timestamps[row]) == bool(stamps)
                if stamps:
                    assert stamps[0] == (ours.timestamp_value[row], ours.timestamp_echo[row])


def test_real_capture_agrees_with_scapy(three_ranks: Path) -> None:
    for path in sorted(three_ranks.glob("*.pcap")):
        assert_agrees_with_scapy(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "shorter than a pcap file header"),
        (b"\x0a\x0d\x0d\x0a" + bytes(40), "pcapng"),
        (b"PK\x03\x04" + bytes(40), "not a pcap file"),
        (struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 160, 113), "link type 113"),
        (
            struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 160, 1)
            + struct.pack("<IIII", 1, 1, 60, 60)
            + bytes(59),
            "ends inside record 1 at offset 24",
        ),
        (
            struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 160, 1)
            + struct.pack("<IIII", 1, 1, 4, 3)
            + bytes(4),
            "claims 4 captured bytes of a frame of 3",
        ),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "damaged.pcap"
    path.write_bytes(content)
    with pytest.raises(CaptureFormatError, match=words) as error:
        read_pcap(path)
    assert str(path) in str(error.value)


@settings(max_examples=150, deadline=None)
@given(body=st.binary(max_size=400), valid_header=st.booleans())
def test_garbage_never_raises_anything_else(body: bytes, valid_header: bool) -> None:
    header = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 160, 1) if valid_header else b""
    content = np.frombuffer(header + body + bytes(300), dtype=np.uint8)
    try:
        packets = decode_pcap(content, len(header) + len(body), Path("garbage"))
    except CaptureFormatError:
        return
    assert isinstance(packets, Packets)
    assert (packets.payload_bytes <= packets.wire_bytes).all()
    assert (packets.payload_captured <= packets.payload_bytes).all()
    assert (packets.header_bytes >= 0).all()


@settings(max_examples=100, deadline=None)
@given(frames=st.lists(tcp_frames(), min_size=1, max_size=3), data=st.data())
def test_damaged_headers_never_lie_outside_the_packet(
    frames: list[Packet], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Bytes of real frames overwritten at will: lengths stay consistent with each other."""
    packets = []
    for number, frame in enumerate(frames):
        content = bytearray(bytes(frame))
        for _ in range(data.draw(st.integers(0, 6))):
            at = data.draw(st.integers(0, len(content) - 1))
            content[at] = data.draw(st.integers(0, 255))
        packets.append((number, bytes(content)))
    path = tmp_path_factory.mktemp("pcap") / "a.pcap"
    snaplen = data.draw(st.integers(1, 200))
    ours = read_pcap(write_pcap(path, packets, snaplen=snaplen))
    end = ours.offset + ours.captured_bytes
    held = ours.is_tcp | ours.is_udp
    assert (ours.payload_offset[held] + ours.payload_captured[held] <= end[held]).all()
    assert (ours.payload_bytes <= ours.wire_bytes).all()
