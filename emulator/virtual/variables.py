"""Variables of the guest's kernel, its virtual clock among them, read from the host without the
guest noticing."""

import functools
import os
from collections.abc import Mapping
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
        self._address = address_of(symbols, name) + index * size_bytes
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


def address_of(symbols: Path, name: str) -> int:
    """The address of a variable. Raises ValueError when the kernel does not have `name`."""
    address = _addresses(symbols).get(name)
    if address is None:
        raise ValueError(f"{symbols} has no symbol {name}")
    return address


@functools.cache  # a kernel's files never change: their directory is named by what they are made of
def _addresses(symbols: Path) -> Mapping[str, int]:
    """Name -> address, from lines like "000000006060fac0 b vm_zone_stat"."""
    lines = (line.split() for line in symbols.read_text().splitlines())
    return {name: int(address, 16) for address, _, name in lines}


class VirtualClock:
    """Reads how far virtual time has come, without the guest noticing."""

    def __init__(self, pid: int, symbols: Path) -> None:
        self._time_ns = KernelVariable(pid, symbols, "time_travel_time")
        self._sent_bytes = KernelVariable(pid, symbols, "gwport_tx_bytes")
        self._last_ns = 0

    def sent_bytes(self) -> int:
        """By all ports of fabrics together, once for each link that a frame takes."""
        return self._sent_bytes.read() or 0

    def read_ns(self) -> int:
        """Virtual nanoseconds since boot; the last known value once the guest is gone."""
        now_ns = self._time_ns.read()
        if now_ns is not None:
            self._last_ns = now_ns
        return self._last_ns
