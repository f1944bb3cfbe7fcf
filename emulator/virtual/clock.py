"""The guest's virtual clock as seen from the host, read out of the kernel process's memory."""

import os
import re
from pathlib import Path

_TIME_SYMBOL = "time_travel_time"


class VirtualClock:
    """Reads how far virtual time has come, without the guest noticing.

    The kernel is linked at fixed addresses, so its variable is where System.map says. A parent
    may read its child's memory wherever ptrace works at all, and without that there is no guest.
    """

    def __init__(self, pid: int, symbols: Path) -> None:
        found = re.search(rf"^([0-9a-f]+) \w {_TIME_SYMBOL}$", symbols.read_text(), re.MULTILINE)
        if found is None:
            raise ValueError(f"{symbols} has no symbol {_TIME_SYMBOL}")
        self._address = int(found.group(1), 16)
        self._memory = Path(f"/proc/{pid}/mem")
        self._last_ns = 0

    def read_ns(self) -> int:
        """Virtual nanoseconds since boot; the last known value once the guest is gone."""
        try:
            with open(self._memory, "rb", buffering=0) as memory:
                data = os.pread(memory.fileno(), 8, self._address)
        except OSError:
            return self._last_ns
        if len(data) == 8:
            self._last_ns = int.from_bytes(data, "little")
        return self._last_ns
