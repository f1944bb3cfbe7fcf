"""The ring backend: the kernel copies packets into memory that it shares with this process.

TPACKET_V2 (Documentation/networking/packet_mmap.rst), not V3: V3 hands over whole blocks and
needs a timer to retire one that is not full, which ticks in virtual time and would make the
end of a capture wait for it. V2 hands over each packet at once.
"""

from __future__ import annotations

import mmap
import socket
import struct
from typing import Final

import numpy as np

from emulator.capture.packet_filter import PacketFilter
from emulator.capture.packet_socket import ETH_P_ALL, SO_TIMESTAMPNS, SOL_PACKET
from emulator.capture.pcap_file import PcapFile
from emulator.capture.ring_room import frame_bytes

_PACKET_VERSION: Final = 10
_PACKET_RX_RING: Final = 5
_TPACKET_V2: Final = 1
_STATUS_KERNEL: Final = 0
_STATUS_USER: Final = 1
_BLOCK_BYTES: Final = 1 << 16

_HEADER = np.dtype(
    [
        ("status", "u4"),
        ("length", "u4"),
        ("captured", "u4"),
        ("mac", "u2"),
        ("net", "u2"),
        ("seconds", "u4"),
        ("nanoseconds", "u4"),
        ("vlan", "u2", 2),
        ("padding", "u1", 4),
    ]
)


class RingSocket:
    """Capture at one interface of the calling thread's network namespace.

    `frames` is how many packets fit before one is dropped. Raises OSError.
    """

    def __init__(self, interface: str, snaplen: int, keep: PacketFilter, frames: int) -> None:
        self._snaplen = snaplen
        self._keep = keep
        size = frame_bytes(snaplen)
        block = max(_BLOCK_BYTES, size)
        blocks = max(1, frames * size // block)
        self._count = blocks * block // size
        # Protocol 0 hears nothing until the socket is bound to its interface.
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        try:
            PacketFilter.nothing().attach(self.socket)
            self.socket.setsockopt(SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
            request = struct.pack("IIII", block, blocks, size, self._count)
            self.socket.setsockopt(SOL_PACKET, _PACKET_RX_RING, request)
            # Makes the kernel stamp every packet when it passes, as the socket backend does;
            # without it the time would be that of the copy into the ring.
            self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            # The virtual kernel tells the reader only when half of the ring has come (patch 0022);
            # Linux heeds this for streams alone.
            half = max(1, self._count // 2)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, half)
            self._memory = mmap.mmap(self.socket.fileno(), blocks * block)
            self.socket.bind((interface, ETH_P_ALL))
        except OSError:
            self.socket.close()
            raise
        self._frames = np.frombuffer(self._memory, dtype=np.uint8).reshape(self._count, size)
        self._headers = self._frames[:, : _HEADER.itemsize].view(_HEADER)[:, 0]
        self._next = 0

    def open(self) -> None:
        """Let packets in."""
        self._keep.attach(self.socket)

    def drain(self, file: PcapFile) -> int:
        written = 0
        while True:
            ready = self._headers["status"][self._next :] & _STATUS_USER
            run = int(np.argmin(ready)) if not ready.all() else len(ready)
            if run:
                self._take(slice(self._next, self._next + run), file)
                self._next = (self._next + run) % self._count
                written += run
            if not run or self._next:
                return written

    def _take(self, frames: slice, file: PcapFile) -> None:
        headers = self._headers[frames]
        captured = np.minimum(headers["captured"], self._snaplen)
        count = len(headers)
        records = np.empty((count, 16 + self._snaplen), dtype=np.uint8)
        words = records[:, :16].view(np.uint32)
        for place, column in enumerate(
            (headers["seconds"], headers["nanoseconds"], captured, headers["length"])
        ):
            words[:, place] = column
        for offset in np.unique(headers["mac"]).tolist():
            rows = np.flatnonzero(headers["mac"] == offset)
            data = self._frames[frames][rows, offset : offset + self._snaplen]
            records[rows, 16 : 16 + data.shape[1]] = data
        keep = np.arange(16 + self._snaplen) < 16 + captured[:, None]
        file.write_records(records[keep].tobytes(), count)
        self._headers["status"][frames] = _STATUS_KERNEL

    def close(self) -> None:
        del self._headers, self._frames
        self._memory.close()
        self.socket.close()
