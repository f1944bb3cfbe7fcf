"""Classic BPF programs for packet sockets: what is kept of each packet, if anything."""

from __future__ import annotations

import ctypes
import socket
from dataclasses import dataclass
from typing import Final

from emulator.capture.port import CaptureError

_SO_ATTACH_FILTER: Final = 26
_RETURN_CONSTANT: Final = 0x06  # BPF_RET | BPF_K
_DLT_EN10MB: Final = 1
_LOAD_HALF: Final = 0x28  # BPF_LD | BPF_H | BPF_ABS
_JUMP_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_AT_ETHERTYPE: Final = 12


class _Instruction(ctypes.Structure):
    """struct sock_filter of linux/filter.h."""

    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    """struct sock_fprog of linux/filter.h."""

    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


@dataclass(frozen=True)
class PacketFilter:
    """A program as (code, jt, jf, k) instructions."""

    instructions: tuple[tuple[int, int, int, int], ...]

    @classmethod
    def keep(cls, snaplen: int) -> PacketFilter:
        """Every packet, its first `snaplen` bytes."""
        return cls(((_RETURN_CONSTANT, 0, 0, snaplen),))

    @classmethod
    def nothing(cls) -> PacketFilter:
        return cls(((_RETURN_CONSTANT, 0, 0, 0),))

    @classmethod
    def compiled(cls, expression: str, snaplen: int) -> PacketFilter:
        """A pcap filter expression (pcap-filter(7)), compiled by libpcap.

        Raises CaptureError for an expression that libpcap refuses, with its own message,
        and where libpcap is not installed.
        """
        from scapy.arch.common import compile_filter, free_filter
        from scapy.error import Scapy_Exception

        try:
            program = compile_filter(expression, linktype=_DLT_EN10MB)
        except (Scapy_Exception, ImportError) as error:
            raise CaptureError(f"capture filter {expression!r}: {error}") from error
        try:
            found = [program.bf_insns[index] for index in range(program.bf_len)]
            instructions = [(i.code, i.jt, i.jf, i.k) for i in found]
        finally:
            free_filter(program)
        # libpcap's programs keep whole packets; the kernel cuts them when told to here.
        return cls(
            tuple(
                (code, jt, jf, snaplen if code == _RETURN_CONSTANT and k else k)
                for code, jt, jf, k in instructions
            )
        )

    def without(self, ethertype: int) -> PacketFilter:
        """The same, but for frames of an EtherType, of which none is kept."""
        return PacketFilter(
            (
                (_LOAD_HALF, 0, 0, _AT_ETHERTYPE),
                (_JUMP_EQUAL, 0, 1, ethertype),
                *PacketFilter.nothing().instructions,
                *self.instructions,
            )
        )

    def attach(self, packet_socket: socket.socket) -> None:
        """Replace the socket's filter. Raises OSError."""
        array = (_Instruction * len(self.instructions))(
            *(_Instruction(*fields) for fields in self.instructions)
        )
        program = _Program(len(self.instructions), array)
        packet_socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, bytes(program))
