"""The scapy backend: one L2 listen socket per port, packets taken raw, none dissected."""

from __future__ import annotations

import socket
import struct
from typing import Any, Final

import scapy.layers.l2  # noqa: F401  # so that scapy knows Ethernet when it opens a socket
from scapy.arch.linux import L2ListenSocket
from scapy.interfaces import InterfaceProvider, NetworkInterface

from emulator.capture.packet_filter import PacketFilter
from emulator.capture.packet_socket import SOL_PACKET
from emulator.capture.pcap_file import RECORD, PcapFile

_SO_RCVBUFFORCE: Final = 33
_SO_TIMESTAMPNS: Final = 35
_PACKET_AUXDATA: Final = 8
_AUXDATA_LENGTH: Final = struct.Struct("II")  # tpacket_auxdata: tp_status, tp_len
_TIMESPEC: Final = struct.Struct("qq")
_ANCILLARY_BYTES: Final = 256
_RECEIVE_BUFFER_BYTES: Final = 256 << 20


class ListenSocket(L2ListenSocket):  # type: ignore[misc]  # scapy gives mypy no types
    """scapy's listen socket with whole nanoseconds and the length on the wire.

    scapy's own `_recv_raw` returns the time as a float, which holds today's date to about
    240 ns only, and drops the length that was cut.
    """

    def _recv_raw(self, sock: socket.socket, x: int) -> tuple[bytes, Any, Any]:
        packet, ancillary, _, address = sock.recvmsg(x, _ANCILLARY_BYTES)
        time_ns, wire_bytes = 0, len(packet)
        for level, kind, data in ancillary:
            if level == SOL_PACKET and kind == _PACKET_AUXDATA:
                wire_bytes = _AUXDATA_LENGTH.unpack_from(data)[1]
            elif level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
                seconds, nanoseconds = _TIMESPEC.unpack_from(data)
                time_ns = seconds * 1_000_000_000 + nanoseconds
        return packet, address, (time_ns, wire_bytes)


class ScapySocket:
    """Capture at one interface of the calling thread's network namespace.

    Raises OSError when the interface cannot be opened.
    """

    def __init__(self, interface: str, snaplen: int, keep: PacketFilter) -> None:
        self._snaplen = snaplen
        # A name would have scapy list the interfaces and addresses of each namespace anew, 20 ms a
        # port. They are point to point, so promiscuous mode would add nothing.
        known = {"name": interface, "network_name": interface}
        self._listen = ListenSocket(
            iface=NetworkInterface(InterfaceProvider(), known), promisc=False, nofilter=1
        )
        self.socket: socket.socket = self._listen.ins
        # Until it was bound, the socket heard every interface: begin with an empty queue.
        PacketFilter.nothing().attach(self.socket)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
        while self._next() is not None:
            pass
        self._keep = keep

    def open(self) -> None:
        """Let packets in."""
        self._keep.attach(self.socket)

    def drain(self, file: PcapFile) -> int:
        records = []
        while (found := self._next()) is not None:
            packet, time_ns, wire_bytes = found
            seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
            records.append(RECORD.pack(seconds, nanoseconds, len(packet), wire_bytes))
            records.append(packet)
        if records:
            file.write_records(b"".join(records), len(records) // 2)
        return len(records) // 2

    def close(self) -> None:
        self._listen.close()

    def _next(self) -> tuple[bytes, int, int] | None:
        try:
            _, packet, (time_ns, wire_bytes) = self._listen.recv_raw(self._snaplen)
        except BlockingIOError:
            return None
        return packet, time_ns, wire_bytes
