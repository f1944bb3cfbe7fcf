"""The socket backend: one packet socket per port, read packet by packet, none dissected.

scapy's own sockets are not used. They give the time as a float, which holds today's date to 240 ns
only, leave out the length that was cut, and dissect each packet (docs/capture.md has the price).
"""

from __future__ import annotations

import socket
from typing import Final

from emulator.capture.packet_filter import PacketFilter
from emulator.capture.packet_socket import (
    AUXDATA_LENGTH,
    ETH_P_ALL,
    PACKET_AUXDATA,
    SO_TIMESTAMPNS,
    SOL_PACKET,
    TIMESPEC,
)
from emulator.capture.pcap_file import RECORD, PcapFile

_SO_RCVBUFFORCE: Final = 33
_ANCILLARY_BYTES: Final = 256
_RECEIVE_BUFFER_BYTES: Final = 256 << 20


class PlainSocket:
    """Capture at one interface of the calling thread's network namespace.

    Raises OSError when the interface cannot be opened.
    """

    def __init__(self, interface: str, snaplen: int, keep: PacketFilter) -> None:
        self._snaplen = snaplen
        self._keep = keep
        # Protocol 0 hears nothing until the socket is bound to its interface.
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        try:
            PacketFilter.nothing().attach(self.socket)
            self.socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
            self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            self.socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
            self.socket.bind((interface, ETH_P_ALL))
        except OSError:
            self.socket.close()
            raise
        self.socket.setblocking(False)

    def open(self) -> None:
        """Let packets in."""
        self._keep.attach(self.socket)

    def drain(self, file: PcapFile) -> int:
        records: list[bytes] = []
        while (found := self._next()) is not None:
            records += found
        if records:
            file.write_records(b"".join(records), len(records) // 2)
        return len(records) // 2

    def close(self) -> None:
        self.socket.close()

    def _next(self) -> tuple[bytes, bytes] | None:
        """The next packet, behind the header of its record."""
        try:
            packet, ancillary, _, _ = self.socket.recvmsg(self._snaplen, _ANCILLARY_BYTES)
        except BlockingIOError:
            return None
        seconds, nanoseconds, wire_bytes = 0, 0, len(packet)
        for level, kind, data in ancillary:
            if level == SOL_PACKET and kind == PACKET_AUXDATA:
                (wire_bytes,) = AUXDATA_LENGTH.unpack_from(data)
            elif level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
                seconds, nanoseconds = TIMESPEC.unpack_from(data)
        return RECORD.pack(seconds, nanoseconds, len(packet), wire_bytes), packet
