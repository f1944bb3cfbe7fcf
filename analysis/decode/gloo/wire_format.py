"""Gloo's bytes in a TCP connection, as torch's ProcessGroupGloo and XLA use it.

Sources: gloo/transport/tcp/pair.h (`Op`), gloo/transport/tcp/device.cc (connection set-up)
and gloo/types.h (`Slot`); confirmed against captures, see docs/gloo-wire-format.md. XLA's slots
are those of xla/backends/cpu/collectives/gloo_communicator.cc.
No scapy here: `analysis.decode.gloo.scapy_layer` holds the layer for it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Final

from collectives.schedule.gloo import PREAMBLE_BYTES

HELLO_BYTES: Final = 8
"""The connecting side first writes its rank within the group (u64), once, and nothing else."""

MAX_MESSAGE_BYTES: Final = 1 << 48
"""Above any buffer a host can address: a larger length is not a preamble."""

MAX_BOUND_SLOT: Final = 1 << 32
"""Above what a program of Gloo's older algorithms counts to: an all-reduce takes at most 4 n^2."""

_PREAMBLE: Final = struct.Struct("<6Q")
_U64: Final = 1 << 64


class GlooFormatError(ValueError):
    """Bytes that are not what Gloo writes at this place."""


class Opcode(IntEnum):
    """`Op::Opcode` of gloo/transport/tcp/pair.h."""

    SEND_BUFFER = 0
    SEND_UNBOUND_BUFFER = 1
    NOTIFY_SEND_READY = 2
    NOTIFY_RECV_READY = 3


class Prefix(IntEnum):
    """`k*SlotPrefix` of gloo/types.h, and XLA's; 0 is a slot chosen by the user (send/recv)."""

    USER = 0
    GATHER = 1
    ALLGATHER = 2
    REDUCE = 3
    ALLREDUCE = 4
    SCATTER = 5
    BROADCAST = 6
    BARRIER = 7
    ALLTOALL = 8
    COLLECTIVE_PERMUTE = 0x40


_PREFIXES: Final = frozenset(Prefix)


def is_slot(value: int) -> bool:
    """Whether a number can be the slot of a message: its prefix is one that is known."""
    return value >> 56 in _PREFIXES


@dataclass(frozen=True, order=True)
class Slot:
    """A 64-bit slot: prefix (8 bits), tag (32 bits), delta (24 bits, of which Gloo uses 8).

    `tag` is torch's count of the collectives of one process group. Slots of `send` and
    `recv` are the user's own tag as a plain number: prefix 0, and `user_tag` is its value.
    """

    prefix: int
    tag: int
    delta: int

    def __post_init__(self) -> None:
        for name, bits in (("prefix", 8), ("tag", 32), ("delta", 24)):
            value = getattr(self, name)
            if not 0 <= value < 1 << bits:
                raise GlooFormatError(f"slot {name} {value}: allowed are 0 to {(1 << bits) - 1}")

    @classmethod
    @lru_cache(maxsize=1 << 16)
    def decode(cls, value: int) -> Slot:
        if not 0 <= value < _U64:
            raise GlooFormatError(f"slot {value}: allowed are 0 to {_U64 - 1}")
        return cls(value >> 56, (value >> 24) & 0xFFFF_FFFF, value & 0xFF_FFFF)

    def encode(self) -> int:
        return self.prefix << 56 | self.tag << 24 | self.delta

    @property
    def user_tag(self) -> int:
        return self.tag << 24 | self.delta


@dataclass(frozen=True)
class Preamble:
    """The 48 bytes in front of every message. All lengths in bytes."""

    nbytes: int
    """Bytes of the message on the connection, this preamble included."""
    opcode: Opcode
    slot: Slot
    offset: int
    length: int
    """Size of the buffer sent, or announced by a notification."""
    roffset: int

    @classmethod
    def decode(cls, data: bytes) -> Preamble:
        """Read the first 48 bytes of `data`.

        Raises:
            GlooFormatError: too few bytes, an unknown opcode, or lengths that contradict
                each other.
        """
        if len(data) < PREAMBLE_BYTES:
            raise GlooFormatError(f"{len(data)} bytes: a preamble has {PREAMBLE_BYTES}")
        nbytes, opcode, slot, offset, length, roffset = _PREAMBLE.unpack_from(data)
        if opcode > Opcode.NOTIFY_RECV_READY:
            raise GlooFormatError(f"opcode {opcode}: allowed are 0 to 3")
        preamble = cls(nbytes, Opcode(opcode), Slot.decode(slot), offset, length, roffset)
        if length > MAX_MESSAGE_BYTES or nbytes != preamble.expected_nbytes:
            raise GlooFormatError(
                f"nbytes {nbytes} with length {length} in {preamble.opcode.name}: "
                f"expected {preamble.expected_nbytes}"
            )
        return preamble

    def encode(self) -> bytes:
        """The 48 bytes; raises GlooFormatError for a field that does not fit 64 bits."""
        fields = (self.nbytes, self.opcode, self.slot.encode(), self.offset)
        try:
            return _PREAMBLE.pack(*fields, self.length, self.roffset)
        except struct.error as error:
            raise GlooFormatError(f"{self}: {error}") from None

    @property
    def expected_nbytes(self) -> int:
        carries_data = self.opcode <= Opcode.SEND_UNBOUND_BUFFER
        return PREAMBLE_BYTES + (self.length if carries_data else 0)

    @property
    def data_bytes(self) -> int:
        return self.nbytes - PREAMBLE_BYTES


def is_preamble(data: bytes) -> bool:
    """Whether `data` starts with a preamble as torch's process groups and XLA write it.

    Stricter than `Preamble.decode`, because it is used to recognise one in the middle of a
    stream: unbound buffers' offsets stay 0, and their slots have known prefixes. Buffers that are
    bound to a slot (Gloo's older algorithms, which XLA's reduce-scatter is of) have offsets, and
    slots that count from 0 (gloo/context.h, nextSlot).
    """
    if len(data) < PREAMBLE_BYTES:
        return False
    nbytes, opcode, slot, offset, length, roffset = _PREAMBLE.unpack_from(data)
    if length > MAX_MESSAGE_BYTES:
        return False
    if opcode == Opcode.SEND_BUFFER:
        return bool(
            nbytes == PREAMBLE_BYTES + length
            and slot < MAX_BOUND_SLOT
            and max(offset, roffset) <= MAX_MESSAGE_BYTES
        )
    carries_data = opcode == Opcode.SEND_UNBOUND_BUFFER
    notifies = opcode in (Opcode.NOTIFY_SEND_READY, Opcode.NOTIFY_RECV_READY)
    return bool(
        (carries_data or notifies)
        and nbytes == PREAMBLE_BYTES + (length if carries_data else 0)
        and offset == 0
        and roffset == 0
        and is_slot(slot)
    )
