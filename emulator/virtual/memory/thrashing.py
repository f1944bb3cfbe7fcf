"""Whether a guest thrashes: it rereads pages that it had to drop for lack of memory."""

from pathlib import Path

from emulator.virtual.memory.host_memory import PAGE_BYTES, mb
from emulator.virtual.variables import KernelVariable

# Places in vm_node_stat: enum node_stat_item of include/linux/mmzone.h (Linux 6.12), in pages.
_ANONYMOUS, _FILE, _UNEVICTABLE, _REFAULTED_FILE = (0, 1), (2, 3), (4,), (11,)
# A guest that can do nothing else reads 0.2 to 1 GB/s again, with 0.3% of its memory for all files.
_MOST_BYTES = 2**31
_LEAST_SHARE = 0.02


class ThrashingDetector:
    """Watches the pages of programs and files that a guest dropped for lack of memory and rereads
    at one instant of virtual time. No clock in the guest sees it, and Linux never gives up."""

    def __init__(self, pid: int, symbols: Path, memory_bytes: int) -> None:
        """`pid` is the guest's first process, `symbols` its kernel's System.map."""

        def counters(places: tuple[int, ...]) -> list[KernelVariable]:
            return [KernelVariable(pid, symbols, "vm_node_stat", index=i) for i in places]

        self._memory_bytes = memory_bytes
        self._reread = counters(_REFAULTED_FILE)
        self._files = counters(_FILE)
        self._others = counters(_ANONYMOUS + _UNEVICTABLE)
        self._since = 0

    def reset(self) -> None:
        """Virtual time has moved: what was reread before no longer counts."""
        self._since = _bytes(self._reread)

    def is_thrashing(self) -> bool:
        """2 GiB were reread at one instant, and little memory is left for programs and files."""
        reread = _bytes(self._reread) - self._since
        return reread > _MOST_BYTES and _bytes(self._files) < _LEAST_SHARE * self._memory_bytes

    def describe(self) -> str:
        """The explanation, for the user of a guest that thrashes."""
        return (
            f"the guest's {mb(self._memory_bytes)} were not enough: at one instant of virtual "
            f"time it read {mb(_bytes(self._reread) - self._since)} of programs and files that it "
            f"had dropped before. {mb(_bytes(self._others))} were processes' and files' in /tmp, "
            f"/run and /dev/shm, {mb(_bytes(self._files))} were left for files that it reads"
        )


def _bytes(counters: list[KernelVariable]) -> int:
    return sum(counter.read() or 0 for counter in counters) * PAGE_BYTES
