"""Writing nanosecond pcap files (draft-ietf-opsawg-pcap)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

_MAGIC_NANOSECONDS: Final = 0xA1B23C4D
_LINKTYPE_ETHERNET: Final = 1
_BUFFER_BYTES: Final = 1 << 18
RECORD: Final = struct.Struct("<IIII")
"""Seconds, nanoseconds, bytes kept, bytes on the wire."""


class PcapFile:
    """One file being written. Raises OSError when the disk does."""

    def __init__(self, path: Path, snaplen: int) -> None:
        self.path = path
        self.packets = 0
        self.size_bytes = 0
        self._file = path.open("wb", buffering=_BUFFER_BYTES)
        self._write(
            struct.pack("<IHHiIII", _MAGIC_NANOSECONDS, 2, 4, 0, 0, snaplen, _LINKTYPE_ETHERNET)
        )

    def write_records(self, records: bytes, count: int) -> None:
        """Append `count` records that are ready to be written."""
        self.packets += count
        self._write(records)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self.size_bytes += len(data)
