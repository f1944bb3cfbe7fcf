"""The guest's virtual clock as seen from the host."""

from pathlib import Path

from emulator.virtual.variable import KernelVariable


class VirtualClock:
    """Reads how far virtual time has come, without the guest noticing."""

    def __init__(self, pid: int, symbols: Path) -> None:
        self._time_ns = KernelVariable(pid, symbols, "time_travel_time")
        self._last_ns = 0

    def read_ns(self) -> int:
        """Virtual nanoseconds since boot; the last known value once the guest is gone."""
        now_ns = self._time_ns.read()
        if now_ns is not None:
            self._last_ns = now_ns
        return self._last_ns
