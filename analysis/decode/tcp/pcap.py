"""Packet headers of a pcap file as numpy columns.

The file is indexed in one pass over the record headers and every protocol field is then
read for all packets at once, which is two orders of magnitude faster than building one
object per packet. Ethernet II, IPv4, TCP and UDP are decoded, also of IPv4 that is wrapped in IPv6
with or without a segment routing header (RFC 8754); every other packet keeps its time stamp and
its lengths, so that totals always add up to the file.

Format: the classic libpcap file (draft-ietf-opsawg-pcap, section 4), microsecond and
nanosecond magic, both byte orders. pcapng is refused.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from analysis.decode.tcp.options import timestamp_options
from analysis.decode.tcp.outer_headers import outer_headers
from topologies.ethernet import ETHERNET_HEADER_BYTES

Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]
Bool = npt.NDArray[np.bool_]

LINKTYPE_ETHERNET: Final = 1
FILE_HEADER_BYTES: Final = 24
RECORD_HEADER_BYTES: Final = 16
PROTOCOL_TCP: Final = 6
PROTOCOL_UDP: Final = 17

FIN: Final = 0x01
SYN: Final = 0x02
RST: Final = 0x04
PSH: Final = 0x08
ACK: Final = 0x10
ECE: Final = 0x40
CWR: Final = 0x80

ECN_CE: Final = 3

_MAGIC: Final = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
_PCAPNG_MAGIC: Final = b"\x0a\x0d\x0d\x0a"

# Ethernet II and the fixed part of IPv4 (RFC 791 section 3.1).
_NETWORK = np.dtype(
    [
        ("ethernet_destination", "u1", 6),
        ("ethernet_source", "u1", 6),
        ("ethertype", ">u2"),
        ("version_ihl", "u1"),
        ("tos", "u1"),
        ("total_length", ">u2"),
        ("identification", ">u2"),
        ("fragment", ">u2"),
        ("ttl", "u1"),
        ("protocol", "u1"),
        ("checksum", ">u2"),
        ("source", ">u4"),
        ("destination", ">u4"),
    ]
)
# The fixed part of TCP (RFC 9293 section 3.1) and room for its options.
_TRANSPORT = np.dtype(
    [
        ("source_port", ">u2"),
        ("destination_port", ">u2"),
        ("sequence", ">u4"),
        ("acknowledgement", ">u4"),
        ("data_offset", "u1"),
        ("flags", "u1"),
        ("window", ">u2"),
        ("checksum", ">u2"),
        ("urgent", ">u2"),
        ("options", "u1", 40),
    ]
)
_ETHERTYPE_IPV4: Final = 0x0800
_CHUNK_PACKETS: Final = 32_768  # keeps the gathered headers of one chunk inside the L2 cache


class CaptureFormatError(ValueError):
    """A capture file that cannot be read: names the file, the offset and what was found."""


@dataclass(frozen=True)
class Packets:
    """All packets of one capture file, one row per packet, in file order.

    Every array has shape (packets,). `payload_*` describe the bytes behind the TCP or UDP
    header. A field of a protocol that a packet does not have, or whose header was cut off
    by the snap length, is 0; `is_tcp`, `is_udp` and `is_ipv4` say which fields count.
    """

    path: Path
    snaplen: int
    data: UInt8
    """The whole file, followed by zero bytes (so that gathers never run past its end)."""
    timestamp_ns: Int64
    wire_bytes: Int64
    """Frame length as the capture saw it: Ethernet header included, L1 overhead and FCS not."""
    captured_bytes: Int64
    offset: Int64
    """Position in `data` of the packet's first byte."""
    is_ipv4: Bool
    is_tcp: Bool
    is_udp: Bool
    source: Int64
    destination: Int64
    source_port: Int64
    destination_port: Int64
    ip_identification: Int64
    ttl: Int64
    tos: Int64
    """IPv4 type of service: DSCP in the upper six bits, ECN in the lower two (RFC 3168). That of
    the outer header where a packet is wrapped: ports on its way read and mark it."""
    sequence: Int64
    acknowledgement: Int64
    flags: Int64
    window: Int64
    payload_bytes: Int64
    """Payload bytes on the wire, from the IP total length: Ethernet padding is not payload."""
    payload_offset: Int64
    payload_captured: Int64
    """Payload bytes present in the file: at most `payload_bytes`, less where cut."""
    has_timestamps: Bool
    timestamp_value: Int64
    timestamp_echo: Int64
    outer_bytes: Int64
    """Bytes of the IPv6 headers that wrap an IPv4 packet; 0 where nothing does."""

    def __len__(self) -> int:
        return len(self.timestamp_ns)

    @property
    def header_bytes(self) -> Int64:
        """Everything of each frame that is not TCP or UDP payload, padding included."""
        return self.wire_bytes - self.payload_bytes


def read_pcap(path: str | Path) -> Packets:
    """Decode the headers of every packet in a pcap file.

    Raises:
        CaptureFormatError: not a pcap file, a link type other than Ethernet, a record that
            claims more captured than wire bytes, or a file that ends inside a record.
        OSError: the file cannot be opened.
    """
    path = Path(path)
    size = path.stat().st_size
    padding = _NETWORK.itemsize + _TRANSPORT.itemsize + 64
    data = np.empty(size + padding, dtype=np.uint8)
    data[size:] = 0
    with path.open("rb") as file:
        read = file.readinto(data[:size].data)
    if read != size:
        raise CaptureFormatError(f"{path}: read {read} of {size} bytes; is it being written?")
    return decode_pcap(data, size, path)


def decode_pcap(data: UInt8, size: int, path: Path) -> Packets:
    """Decode a pcap file held in memory: `size` bytes, then at least 200 zero bytes."""
    order, tick_ns, snaplen = _file_header(bytes(data[:FILE_HEADER_BYTES]), size, path)
    records = _record_offsets(data, size, order, path)
    count = len(records)
    headers = np.lib.stride_tricks.sliding_window_view(data, RECORD_HEADER_BYTES)[records]
    words = headers.view(np.dtype(order + "u4")).astype(np.int64).reshape(count, 4)
    captured, wire = words[:, 2].copy(), words[:, 3].copy()
    wrong = np.flatnonzero(captured > wire)
    if wrong.size:
        first = int(wrong[0])
        raise CaptureFormatError(
            f"{path}: record {first} at offset {int(records[first])} claims {captured[first]} "
            f"captured bytes of a frame of {wire[first]}"
        )
    columns: dict[str, npt.NDArray[Any]] = {
        name: np.zeros(count, dtype=np.bool_ if name in _BOOLEAN else np.int64) for name in _DECODED
    }
    offset = records + RECORD_HEADER_BYTES
    for start in range(0, count, _CHUNK_PACKETS):
        rows = slice(start, start + _CHUNK_PACKETS)
        _decode_chunk(data, offset[rows], captured[rows], wire[rows], columns, rows)
    return Packets(
        path=path,
        snaplen=snaplen,
        data=data,
        timestamp_ns=words[:, 0] * 1_000_000_000 + words[:, 1] * tick_ns,
        wire_bytes=wire,
        captured_bytes=captured,
        offset=offset,
        **columns,
    )


_BOOLEAN: Final = ("is_ipv4", "is_tcp", "is_udp", "has_timestamps")
_DECODED: Final = (
    *_BOOLEAN,
    "source",
    "destination",
    "source_port",
    "destination_port",
    "ip_identification",
    "ttl",
    "tos",
    "sequence",
    "acknowledgement",
    "flags",
    "window",
    "payload_bytes",
    "payload_offset",
    "payload_captured",
    "timestamp_value",
    "timestamp_echo",
    "outer_bytes",
)


def _file_header(header: bytes, size: int, path: Path) -> tuple[str, int, int]:
    """Byte order, nanoseconds per fraction tick, and snap length of the file."""
    if size < FILE_HEADER_BYTES:
        raise CaptureFormatError(
            f"{path}: {size} bytes, shorter than a pcap file header ({FILE_HEADER_BYTES})"
        )
    magic = header[:4]
    if magic == _PCAPNG_MAGIC:
        raise CaptureFormatError(
            f"{path}: pcapng is not read; convert it with `editcap -F nsecpcap`"
        )
    if magic not in _MAGIC:
        raise CaptureFormatError(f"{path}: not a pcap file (magic {magic.hex()})")
    order, tick_ns = _MAGIC[magic]
    snaplen, link = struct.unpack(order + "II", header[16:24])
    # The upper bits carry the FCS length, not the link type.
    if link & 0x03FF_FFFF != LINKTYPE_ETHERNET:
        raise CaptureFormatError(
            f"{path}: link type {link & 0x03FF_FFFF}; only Ethernet (1) is decoded"
        )
    return order, tick_ns, snaplen


def _record_offsets(data: UInt8, size: int, order: str, path: Path) -> Int64:
    """Position of every record header: the only pass that cannot be vectorised."""
    captured_length = struct.Struct(order + "I").unpack_from
    view = data.data
    offsets: list[int] = []
    append = offsets.append
    position = FILE_HEADER_BYTES
    last = size - RECORD_HEADER_BYTES
    while position <= last:
        append(position)
        position += RECORD_HEADER_BYTES + captured_length(view, position + 8)[0]
    if position != size:
        start = offsets[-1] if offsets and position > size else position
        raise CaptureFormatError(
            f"{path}: ends inside record {len(offsets)} at offset {start} "
            f"(file of {size} bytes, next record due at {position})"
        )
    return np.asarray(offsets, dtype=np.int64)


def _decode_chunk(
    data: UInt8,
    offset: Int64,
    captured: Int64,
    wire: Int64,
    columns: dict[str, npt.NDArray[Any]],
    rows: slice,
) -> None:
    network = _gather(data, offset, _NETWORK)
    outer, traffic_class = outer_headers(data, offset, captured, network["ethertype"])
    is_wrapped = outer > 0
    is_bare = network["ethertype"] == _ETHERTYPE_IPV4
    if is_wrapped.any():
        network = _gather(data, offset + outer, _NETWORK)
    ihl = (network["version_ihl"] & 0x0F).astype(np.int64) * 4
    inside = ETHERNET_HEADER_BYTES + outer
    is_ipv4 = (
        (is_bare | is_wrapped)
        & (network["version_ihl"] >> 4 == 4)
        & (ihl >= 20)
        & (captured >= inside + ihl)
        & (captured >= _NETWORK.itemsize + outer)
    )
    total = network["total_length"].astype(np.int64)
    # A super-packet above 64 KiB (BIG TCP) carries a total length of 0.
    total = np.where(total == 0, wire - inside, total)
    first_fragment = (network["fragment"] & 0x1FFF) == 0
    transport_offset = inside + ihl
    transport = _gather(data, offset + transport_offset, _TRANSPORT)
    header = (transport["data_offset"] >> 4).astype(np.int64) * 4
    whole = is_ipv4 & first_fragment & (total <= wire - inside)
    is_tcp = (
        whole
        & (network["protocol"] == PROTOCOL_TCP)
        & (header >= 20)
        & (captured >= transport_offset + 20)
        & (total >= ihl + header)
    )
    is_udp = (
        whole
        & (network["protocol"] == PROTOCOL_UDP)
        & (captured >= transport_offset + 8)
        & (total >= ihl + 8)
    )
    header = np.where(is_udp, 8, header)
    either = is_tcp | is_udp
    payload = np.where(either, total - ihl - header, 0)
    # Bytes behind a datagram in its packet are none of it (RFC 9868).
    datagram = (transport["sequence"] >> 16).astype(np.int64)
    payload = np.where(is_udp, np.clip(datagram - header, 0, payload), payload)
    payload_start = np.where(either, transport_offset + header, 0)
    payload_captured = np.clip(np.minimum(payload, captured - payload_start), 0, None)

    columns["is_ipv4"][rows] = is_ipv4
    columns["is_tcp"][rows] = is_tcp
    columns["is_udp"][rows] = is_udp
    for name, field in (
        ("source", "source"),
        ("destination", "destination"),
        ("ip_identification", "identification"),
        ("ttl", "ttl"),
    ):
        columns[name][rows] = np.where(is_ipv4, network[field], 0)
    tos = np.where(is_wrapped, traffic_class, network["tos"])
    columns["tos"][rows] = np.where(is_ipv4, tos, 0)
    columns["outer_bytes"][rows] = np.where(is_ipv4, outer, 0)
    for name in ("source_port", "destination_port"):
        columns[name][rows] = np.where(either, transport[name], 0)
    for name in ("sequence", "acknowledgement", "flags", "window"):
        columns[name][rows] = np.where(is_tcp, transport[name], 0)
    columns["payload_bytes"][rows] = payload
    begins = offset + np.minimum(payload_start, captured)
    columns["payload_offset"][rows] = np.where(either, begins, 0)
    columns["payload_captured"][rows] = np.where(either, payload_captured, 0)

    room = np.clip(np.minimum(header, captured - transport_offset) - 20, 0, 40)
    present, value, echo = timestamp_options(transport["options"], np.where(is_tcp, room, 0))
    columns["has_timestamps"][rows] = present
    columns["timestamp_value"][rows] = value
    columns["timestamp_echo"][rows] = echo


def options_of(packets: Packets, rows: Int64) -> tuple[UInt8, Int64]:
    """The bytes behind the fixed header of these TCP packets, shape (rows, 40), and how many of
    them are options that were captured, shape (rows,)."""
    offset, captured = packets.offset[rows], packets.captured_bytes[rows]
    inside = ETHERNET_HEADER_BYTES + packets.outer_bytes[rows]
    version_ihl = packets.data[offset + inside]
    start = inside + (version_ihl & 0x0F).astype(np.int64) * 4
    transport = _gather(packets.data, offset + start, _TRANSPORT)
    header = (transport["data_offset"] >> 4).astype(np.int64) * 4
    room = np.clip(np.minimum(header, captured - start) - 20, 0, 40)
    return transport["options"], room


def _gather(data: UInt8, offset: Int64, layout: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """The `layout` structure at every offset, shape (len(offset),)."""
    windows = np.lib.stride_tricks.sliding_window_view(data, layout.itemsize)
    clipped = np.minimum(offset, len(windows) - 1)
    return windows[clipped].view(layout).reshape(len(offset))
