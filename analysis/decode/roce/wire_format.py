"""The headers of a RoCEv2 packet behind its UDP header.

Sources: InfiniBand Architecture Specification, volume 1, chapter 9 (transport layer) and its annex
A17 (RoCEv2). Which UDP port a queue pair sends from is Linux's own choice
(`rdma_get_udp_sport`, include/rdma/ib_verbs.h of 6.12).
No scapy here: `analysis.decode.roce.scapy_layers` holds the layers for it.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

UDP_PORT: Final = 4791
"""The destination port of every RoCEv2 packet (IANA)."""

BTH_BYTES: Final = 12
RETH_BYTES: Final = 16
AETH_BYTES: Final = 4
IMMEDIATE_BYTES: Final = 4
BITMAP_BYTES: Final = 12
ICRC_BYTES: Final = 4

PSN_BITS: Final = 24
PSN_MASK: Final = (1 << PSN_BITS) - 1


class Opcode(IntEnum):
    """The opcodes of reliable connections (table 38 of the specification), the CNP, and those of
    selective repeat and of many paths, which are a manufacturer's (emulator/kernel/rxe)."""

    SEND_FIRST = 0x00
    SEND_MIDDLE = 0x01
    SEND_LAST = 0x02
    SEND_LAST_WITH_IMMEDIATE = 0x03
    SEND_ONLY = 0x04
    SEND_ONLY_WITH_IMMEDIATE = 0x05
    WRITE_FIRST = 0x06
    WRITE_MIDDLE = 0x07
    WRITE_LAST = 0x08
    WRITE_LAST_WITH_IMMEDIATE = 0x09
    WRITE_ONLY = 0x0A
    WRITE_ONLY_WITH_IMMEDIATE = 0x0B
    READ_REQUEST = 0x0C
    READ_RESPONSE_FIRST = 0x0D
    READ_RESPONSE_MIDDLE = 0x0E
    READ_RESPONSE_LAST = 0x0F
    READ_RESPONSE_ONLY = 0x10
    ACKNOWLEDGE = 0x11
    ATOMIC_ACKNOWLEDGE = 0x12
    COMPARE_SWAP = 0x13
    FETCH_ADD = 0x14
    SEND_LAST_WITH_INVALIDATE = 0x16
    SEND_ONLY_WITH_INVALIDATE = 0x17
    CNP = 0x81
    """Congestion Notification Packet (annex A17.9.3)."""
    SELECTIVE_WRITE_MIDDLE = 0xC7
    SELECTIVE_WRITE_LAST = 0xC8
    SELECTIVE_WRITE_LAST_WITH_IMMEDIATE = 0xC9
    SELECTIVE_ACKNOWLEDGE = 0xD1
    TRIMMED_NACK = 0xDD
    """As SELECTIVE_ACKNOWLEDGE, of a request whose payload has not come."""
    PROBE = 0xDE
    """A probe of an entropy value, which is its PSN: a BTH alone, and so is its answer."""
    PROBE_ANSWER = 0xDF


class Trait(IntFlag):
    """The parts of an opcode's packets."""

    FIRST = 1
    """A message begins."""
    LAST = 2
    """A message ends."""
    RETH = 4
    IMMEDIATE = 8
    AETH = 16
    CARRIES = 32
    """Payload of a SEND or WRITE. Its PSN is a number of its own in the sender's sequence."""
    ANSWERS = 64
    """An acknowledgement: its PSN is one of the other direction's."""
    WRITES = 128
    """A packet of an RDMA WRITE, which a receiver's buffer has been told for."""
    CNP = 256
    BITMAP = 512
    """Behind the AETH: the PSN that is answered, and which of the 64 up to it have come."""


_F, _L, _C = Trait.FIRST, Trait.LAST, Trait.CARRIES
_W = Trait.CARRIES | Trait.WRITES
_RETH, _IMMEDIATE = Trait.RETH, Trait.IMMEDIATE
TRAITS: Final[dict[Opcode, Trait]] = {
    Opcode.SEND_FIRST: _C | _F,
    Opcode.SEND_MIDDLE: _C,
    Opcode.SEND_LAST: _C | _L,
    Opcode.SEND_LAST_WITH_IMMEDIATE: _C | _L | _IMMEDIATE,
    Opcode.SEND_ONLY: _C | _F | _L,
    Opcode.SEND_ONLY_WITH_IMMEDIATE: _C | _F | _L | _IMMEDIATE,
    Opcode.WRITE_FIRST: _W | _F | _RETH,
    Opcode.WRITE_MIDDLE: _W,
    Opcode.WRITE_LAST: _W | _L,
    Opcode.WRITE_LAST_WITH_IMMEDIATE: _W | _L | _IMMEDIATE,
    Opcode.WRITE_ONLY: _W | _F | _L | _RETH,
    Opcode.WRITE_ONLY_WITH_IMMEDIATE: _W | _F | _L | _RETH | _IMMEDIATE,
    Opcode.ACKNOWLEDGE: Trait.AETH | Trait.ANSWERS,
    Opcode.CNP: Trait.CNP,
    Opcode.SELECTIVE_WRITE_MIDDLE: _W | _RETH,
    Opcode.SELECTIVE_WRITE_LAST: _W | _L | _RETH,
    Opcode.SELECTIVE_WRITE_LAST_WITH_IMMEDIATE: _W | _L | _RETH | _IMMEDIATE,
    Opcode.SELECTIVE_ACKNOWLEDGE: Trait.AETH | Trait.ANSWERS | Trait.BITMAP,
    Opcode.TRIMMED_NACK: Trait.AETH | Trait.ANSWERS | Trait.BITMAP,
}
"""The headers of the opcodes that are followed: others (reads, atomics) keep their BTH alone."""


class Syndrome(IntEnum):
    """The meanings of the upper three bits of an AETH's syndrome (tables 46 and 47)."""

    ACK = 0
    RNR_NAK = 1
    NAK = 3


TRIMMED_DSCPS: Final = (58, 59)
"""The DSCPs of packets that have lost their payload (emulator/kernel/gwport_trim.h)."""

NAK_SEQUENCE_ERROR: Final = 0x60
"""The syndrome of a NAK for a PSN that was not the expected one; its PSN is the expected one."""


def header_bytes(opcode: Opcode) -> int:
    """From the BTH to the payload, both optional headers included."""
    traits = TRAITS.get(opcode, Trait(0))
    return (
        BTH_BYTES
        + RETH_BYTES * bool(traits & Trait.RETH)
        + AETH_BYTES * bool(traits & Trait.AETH)
        + IMMEDIATE_BYTES * bool(traits & Trait.IMMEDIATE)
        + BITMAP_BYTES * bool(traits & Trait.BITMAP)
    )


def udp_source_port(local_qpn: int, remote_qpn: int) -> int:
    """The UDP port that a queue pair without a flow label sends from: the same at both ends.

    As Linux has it: `rdma_calc_flow_label`, then `rdma_flow_label_to_udp_sport`.
    """
    product = local_qpn * remote_qpn
    product ^= product >> 20
    product ^= product >> 40
    label = product & 0xF_FFFF
    return 0xC000 | (label & 0x3FFF) ^ (label >> 14)


def value_port(port: int, value: int) -> int:
    """The UDP port of an entropy value of a queue pair that sends from `port` without such values
    (emulator/kernel/rxe/rxe_paths.c)."""
    return 0xC000 | (port + value) & 0x3FFF
