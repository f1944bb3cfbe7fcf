"""Gloo as a scapy layer: with this module imported, scapy's `rdpcap` shows Gloo's messages.

Importing this module makes TCP payloads that no other layer claims, and that start with a
preamble (48 bytes whose fields agree with each other), decode as `Gloo`; a segment that
continues a message stays `Raw`. `gloo_messages` puts whole messages together, from captures
that hold headers only as well (scapy's TCPSession takes a message for lost that begins
behind the end of another in the same segment, as most of Gloo's do).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from scapy.config import conf
from scapy.fields import (
    ByteEnumField,
    LEIntField,
    LELongEnumField,
    LELongField,
    LEThreeBytesField,
    StrLenField,
)
from scapy.layers.inet import TCP
from scapy.packet import Packet

from analysis.decode.gloo.rendezvous import resolve
from analysis.decode.gloo.stream import StreamMessage, is_gloo, walk
from analysis.decode.gloo.wire_format import Opcode, Prefix, Slot, is_preamble
from analysis.decode.tcp.assembly import connections
from analysis.decode.tcp.pcap import read_pcap
from analysis.decode.tcp.stream import Direction, Endpoint
from collectives.schedule.gloo import PREAMBLE_BYTES

_OPCODES = {opcode.value: opcode.name for opcode in Opcode}
_PREFIXES = {prefix.value: prefix.name.lower() for prefix in Prefix}


class Gloo(Packet):  # type: ignore[misc]  # scapy gives mypy no types
    """One Gloo message: the preamble, and the data behind it as far as it is present.

    `nbytes` and `length` are filled in from `data` where not given. The slot's three parts
    are fields of their own, in the order in which they lie on the wire.
    """

    name = "Gloo"
    fields_desc: ClassVar[list[Any]] = [
        LELongField("nbytes", None),
        LELongEnumField("opcode", Opcode.SEND_UNBOUND_BUFFER.value, _OPCODES),
        LEThreeBytesField("delta", 0),
        LEIntField("tag", 0),
        ByteEnumField("prefix", 0, _PREFIXES),
        LELongField("offset", 0),
        LELongField("length", None),
        LELongField("roffset", 0),
        StrLenField("data", b"", length_from=lambda packet: packet.data_bytes),
    ]

    @property
    def slot(self) -> Slot:
        return Slot(self.prefix, self.tag, self.delta)

    @property
    def data_bytes(self) -> int:
        """Bytes of data that this message has on the connection."""
        if self.opcode > Opcode.SEND_UNBOUND_BUFFER:
            return 0
        return max(0, (self.nbytes or 0) - PREAMBLE_BYTES)

    def post_build(self, packet: bytes, payload: bytes) -> bytes:
        nbytes, length = self.nbytes, self.length
        if nbytes is None:
            nbytes = PREAMBLE_BYTES + len(self.data)
        if length is None:
            length = len(self.data)
        packet = struct.pack("<Q", nbytes) + packet[8:32] + struct.pack("<Q", length) + packet[40:]
        return packet + payload

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        return Gloo if is_preamble(payload) else conf.raw_layer

    def mysummary(self) -> str:
        kind = _PREFIXES.get(self.prefix, f"prefix {self.prefix}")
        opcode = _OPCODES.get(self.opcode, f"opcode {self.opcode}")
        return f"Gloo {opcode} {kind} tag {self.tag} delta {self.delta} length {self.length}"


class GlooHello(Packet):  # type: ignore[misc]
    """The first 8 bytes of a connection: the connecting side's rank within its group.

    They cannot be told from other data by looking at them, so nothing decodes as this by
    itself: `GlooHello(bytes)` where the stream is known to begin.
    """

    name = "GlooHello"
    fields_desc: ClassVar[list[Any]] = [LELongField("rank", 0)]


def _payload_class(packet: Packet, payload: bytes) -> type[Packet]:
    return Gloo if is_preamble(payload) else conf.raw_layer


# The seam scapy leaves for payloads that no port number claims; ports of Gloo are ephemeral.
TCP.default_payload_class = _payload_class


@dataclass(frozen=True)
class GlooMessage:
    """One message of a stream; `packet` holds its data as far as it was captured.

    `step` counts the messages of one opcode and slot in one direction of the connection.
    `inferred` messages were not captured themselves: the rest of their rendezvous was.
    """

    time_ns: int
    source: Endpoint
    destination: Endpoint
    step: int
    inferred: bool
    packet: Gloo


def gloo_messages(*paths: str | Path) -> list[GlooMessage]:
    """All messages of Gloo in these captures of one run, by time.

    Raises `analysis.decode.tcp.pcap.CaptureFormatError` or OSError for a file that cannot be read.
    """
    found = []
    for connection in connections([read_pcap(path) for path in paths]):
        if not is_gloo(connection):
            continue
        streams = walk(connection.forward, True), walk(connection.backward, False)
        resolve(*streams)
        for stream in streams:
            found += [_assembled(stream.direction, message) for message in stream.messages]
    return sorted(found, key=lambda message: message.time_ns)


def _assembled(direction: Direction, message: StreamMessage) -> GlooMessage:
    slot = Slot.decode(message.slot or 0)
    packet = Gloo(
        nbytes=message.nbytes,
        opcode=0 if message.opcode is None else message.opcode.value,
        delta=slot.delta,
        tag=slot.tag,
        prefix=slot.prefix,
        length=message.length,
        data=direction.read(message.position, message.nbytes)[PREAMBLE_BYTES:],
    )
    return GlooMessage(
        direction.time_ns(message.position),
        direction.source,
        direction.destination,
        message.step,
        message.inferred,
        packet,
    )
