"""RDMA WRITEs and immediates as scapy layers, beside those of `scapy.contrib.roce`.

With this module imported, scapy's `rdpcap` shows the headers behind the BTH of every packet of a
reliable connection that has a RETH, an immediate or a bitmap.
"""

from __future__ import annotations

from typing import Any, ClassVar

from scapy.contrib.roce import AETH, BTH
from scapy.fields import IntField, XIntField, XLongField
from scapy.packet import Packet, bind_layers

from analysis.decode.roce.wire_format import TRAITS, Opcode, Trait


class RETH(Packet):  # type: ignore[misc]  # scapy gives mypy no types
    """RDMA Extended Transport Header: where a WRITE or READ goes, and its length in bytes."""

    name = "RETH"
    fields_desc: ClassVar[list[Any]] = [
        XLongField("virtual_address", 0),
        XIntField("rkey", 0),
        IntField("dma_length", 0),
    ]

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        opcode = getattr(self.underlayer, "opcode", None)
        if opcode in (
            Opcode.WRITE_ONLY_WITH_IMMEDIATE,
            Opcode.SELECTIVE_WRITE_LAST_WITH_IMMEDIATE,
        ):
            return ImmediateData
        found: type[Packet] = super().guess_payload_class(payload)
        return found


class ImmediateData(Packet):  # type: ignore[misc]
    """Four bytes for the receiver's completion: here, which message of a program it is."""

    name = "ImmDt"
    fields_desc: ClassVar[list[Any]] = [IntField("immediate", 0)]


class Bitmap(Packet):  # type: ignore[misc]
    """Behind the AETH with selective repeat: the PSN that is answered, and which of the 64 up to it
    have come, the last one by the lowest bit."""

    name = "Bitmap"
    fields_desc: ClassVar[list[Any]] = [XIntField("answers", 0), XLongField("came", 0)]


bind_layers(AETH, Bitmap)
for _opcode, _traits in TRAITS.items():
    if _traits & Trait.BITMAP:
        bind_layers(BTH, AETH, opcode=_opcode.value)
    elif _traits & Trait.RETH:
        bind_layers(BTH, RETH, opcode=_opcode.value)
    elif _traits & Trait.IMMEDIATE:
        bind_layers(BTH, ImmediateData, opcode=_opcode.value)
