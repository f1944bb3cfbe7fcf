"""The common part of the two backends: counting, and closing without losing a packet."""

from __future__ import annotations

import socket
import struct
from typing import Final, Protocol

from emulator.capture.packet_filter import PacketFilter
from emulator.capture.pcap_file import PcapFile

SOL_PACKET: Final = 263
ETH_P_ALL: Final = 3
SO_TIMESTAMPNS: Final = 35
PACKET_AUXDATA: Final = 8
AUXDATA_LENGTH: Final = struct.Struct("=4xI")  # tpacket_auxdata.tp_len
TIMESPEC: Final = struct.Struct("=qq")
_PACKET_STATISTICS: Final = 6


class CaptureSocket(Protocol):
    """An open capture at one port."""

    @property
    def socket(self) -> socket.socket:
        """The packet socket: poll it, and `drain` when it is readable."""

    def open(self) -> None:
        """Let packets in. Until then nothing is captured."""

    def drain(self, file: PcapFile) -> int:
        """Write all packets that have come, in order; returns how many. Never blocks."""

    def close(self) -> None: ...


class Counter:
    """Packets seen and dropped, over several readings (each one resets the kernel's own)."""

    def __init__(self, packet_socket: socket.socket) -> None:
        self._socket = packet_socket
        self.seen = 0
        self.dropped = 0
        self.read()
        self.seen = self.dropped = 0

    def read(self) -> None:
        raw = self._socket.getsockopt(SOL_PACKET, _PACKET_STATISTICS, 8)
        seen, dropped = struct.unpack("II", raw)
        self.seen += seen
        self.dropped += dropped


def shut(packet_socket: socket.socket) -> None:
    """Let nothing more in; what has come stays to be drained."""
    PacketFilter.nothing().attach(packet_socket)
