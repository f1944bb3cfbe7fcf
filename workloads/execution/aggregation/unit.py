"""The reduction unit of an aggregation node: one operation after the other, at its rate."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from threading import Lock

from collectives.in_network.node import Aggregator
from workloads.execution.clock import now_ns, sleep_until_ns

_TIME = struct.Struct("!q")


class ReductionUnit:
    """Operations take it in the order in which their contributions are complete. Its latency, which
    it adds to each, does not keep the next one waiting.

    Where several jobs share the switch, each has a process there, and `shared` is the file in which
    they keep when the unit is free. It takes no virtual time."""

    def __init__(self, node: Aggregator, shared: Path | None = None) -> None:
        """Raises OSError for a file that cannot be made."""
        self._node = node
        self._lock = Lock()
        self._free_ns = 0
        self._file = None
        if shared is not None:
            self._file = os.open(shared, os.O_RDWR | os.O_CREAT, 0o600)

    def take(self, size_bytes: int, follows: bool = False) -> None:
        """Sleep until an operation of so many bytes is through; it `follows` another one of its
        sequence."""
        with self._lock:
            if self._file is None:
                self._free_ns = self._after(self._free_ns, size_bytes)
            else:
                self._free_ns = self._take_among_processes(self._file, size_bytes)
            done_ns = self._free_ns + self._node.latency_of_ns(follows)
        sleep_until_ns(done_ns)

    def _after(self, free_ns: int, size_bytes: int) -> int:
        """When it is free after an operation that comes now."""
        return max(now_ns(), free_ns) + self._node.occupied_ns(size_bytes)

    def _take_among_processes(self, file: int, size_bytes: int) -> int:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            known = os.pread(file, _TIME.size, 0)
            free_ns = self._after(_TIME.unpack(known)[0] if known else 0, size_bytes)
            os.pwrite(file, _TIME.pack(free_ns), 0)
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)
        return free_ns
