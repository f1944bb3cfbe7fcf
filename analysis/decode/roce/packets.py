"""The RoCEv2 headers of a capture as numpy columns, all packets at once as in `read_pcap`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.decode.roce.wire_format import (
    BTH_BYTES,
    ICRC_BYTES,
    IMMEDIATE_BYTES,
    PSN_MASK,
    RETH_BYTES,
    TRAITS,
    TRIMMED_DSCPS,
    UDP_PORT,
    Opcode,
    Trait,
    header_bytes,
)
from analysis.decode.tcp.pcap import Packets

Int64 = npt.NDArray[np.int64]

# The base transport header (chapter 9.2), and the longest that may follow it: RETH and immediate.
_BTH = np.dtype(
    [
        ("opcode", "u1"),
        ("flags", "u1"),
        ("partition_key", ">u2"),
        ("destination_qp", ">u4"),
        ("psn", ">u4"),
        ("first", ">u4"),
        ("second", ">u4"),
        ("rkey", ">u4"),
        ("dma_length", ">u4"),
        ("behind_reth", ">u4"),
    ]
)
assert _BTH.itemsize == BTH_BYTES + RETH_BYTES + IMMEDIATE_BYTES

_TRAITS: Final = np.zeros(256, dtype=np.int64)
_HEADERS: Final = np.full(256, BTH_BYTES, dtype=np.int64)
for _opcode in Opcode:
    _TRAITS[_opcode] = TRAITS.get(_opcode, Trait(0))
    _HEADERS[_opcode] = header_bytes(_opcode)


@dataclass(frozen=True)
class RocePackets:
    """The RoCEv2 packets of one capture, in file order. Shape (packets,) each.

    A field that a packet does not have is 0. `row` is the packet's row in `Packets`; `traits` are
    `Trait`s, none of a packet that has lost its payload. `payload_bytes` are on the wire, neither
    padding nor ICRC among them.
    """

    row: Int64
    opcode: Int64
    traits: Int64
    destination_qp: Int64
    psn: Int64
    asks: npt.NDArray[np.bool_]
    """Whether it asks for an acknowledgement."""
    virtual_address: npt.NDArray[np.uint64]
    rkey: Int64
    dma_length: Int64
    """The RETH's length: bytes of the message from this packet on."""
    immediate: Int64
    syndrome: Int64
    message_number: Int64
    """The AETH's count: how many messages its sender has received."""
    payload_bytes: Int64

    def __len__(self) -> int:
        return len(self.row)


def having(traits: Int64, trait: Trait) -> npt.NDArray[np.bool_]:
    """The packets that have this trait."""
    found: npt.NDArray[np.bool_] = traits & trait != 0
    return found


def roce_packets(packets: Packets) -> RocePackets:
    """The RoCEv2 packets of a capture whose headers were captured as far as their opcode says and
    whose length has room for these; anything else that is sent to the port is left out."""
    held = packets.is_udp & (packets.destination_port == UDP_PORT)
    row = np.flatnonzero(held & (packets.payload_captured >= BTH_BYTES))
    bth = _gather(packets, row)
    opcode = bth["opcode"].astype(np.int64)
    padding = (bth["flags"] >> 4 & 3).astype(np.int64)
    # Version 0 of the transport is the only one there is.
    payload = packets.payload_bytes[row] - _HEADERS[opcode] - padding - ICRC_BYTES
    trimmed = np.isin(packets.tos[row] >> 2, TRIMMED_DSCPS)
    whole = (
        (bth["flags"] & 0x0F == 0)
        & ((payload >= 0) | trimmed)
        & (packets.payload_captured[row] >= _HEADERS[opcode])
    )
    row, bth, opcode, payload = row[whole], bth[whole], opcode[whole], payload[whole]
    traits = np.where(trimmed[whole], 0, _TRAITS[opcode])
    reth, immediate, aeth = (
        having(traits, trait) for trait in (Trait.RETH, Trait.IMMEDIATE, Trait.AETH)
    )
    first = bth["first"].astype(np.int64)
    address = bth["first"].astype(np.uint64) << np.uint64(32) | bth["second"].astype(np.uint64)
    number = np.where(reth, bth["behind_reth"].astype(np.int64), first)
    return RocePackets(
        row,
        opcode,
        traits,
        bth["destination_qp"].astype(np.int64) & PSN_MASK,
        bth["psn"].astype(np.int64) & PSN_MASK,
        bth["psn"] >> 31 != 0,
        np.where(reth, address, np.uint64(0)),
        np.where(reth, bth["rkey"], 0).astype(np.int64),
        np.where(reth, bth["dma_length"], 0).astype(np.int64),
        np.where(immediate, number, 0),
        np.where(aeth, first >> 24, 0),
        np.where(aeth, first & PSN_MASK, 0),
        np.where(having(traits, Trait.CARRIES), payload, 0),
    )


def _gather(packets: Packets, row: Int64) -> npt.NDArray[np.void]:
    windows = np.lib.stride_tricks.sliding_window_view(packets.data, _BTH.itemsize)
    begin = np.minimum(packets.payload_offset[row], len(windows) - 1)
    return windows[begin].view(_BTH).reshape(len(row))
