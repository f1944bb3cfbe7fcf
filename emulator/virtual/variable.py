"""A variable of the guest's kernel as seen from the host, without the guest noticing."""

import os
import re
from pathlib import Path


class KernelVariable:
    """One variable of a running guest, read out of its first process's memory.

    The kernel is linked at fixed addresses, so its variables are where System.map says. A parent
    may read its child's memory wherever ptrace works at all, and without that there is no guest.
    """

    def __init__(
        self, pid: int, symbols: Path, name: str, size_bytes: int = 8, index: int = 0
    ) -> None:
        """`symbols` is the kernel's System.map; `index` counts in an array of such variables.
        Raises ValueError when the kernel does not have `name`."""
        found = re.search(rf"^([0-9a-f]+) \w {name}$", symbols.read_text(), re.MULTILINE)
        if found is None:
            raise ValueError(f"{symbols} has no symbol {name}")
        self._address = int(found.group(1), 16) + index * size_bytes
        self._size_bytes = size_bytes
        self._memory = Path(f"/proc/{pid}/mem")

    def read(self) -> int | None:
        """Its value, taken as a signed number; None when the guest has none yet or is gone."""
        try:
            with open(self._memory, "rb", buffering=0) as memory:
                data = os.pread(memory.fileno(), self._size_bytes, self._address)
        except OSError:
            return None
        if len(data) != self._size_bytes:
            return None
        return int.from_bytes(data, "little", signed=True)
