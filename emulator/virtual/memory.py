"""Guest memory: a sparse, already unlinked file in a memory file system of the host."""

import os
import tempfile
from pathlib import Path

from emulator.virtual.failure import VirtualKernelError

PAGE_BYTES = 4096
# Above it, the kernel's addresses would meet user code's (patch 0004).
_MOST_BYTES = 238 * 2**30
# What the host keeps for itself when guest memory is granted.
_HOST_RESERVE_BYTES = 256 * 2**20


def memory_directory(memory_bytes: int) -> Path:
    """A host directory that can hold `memory_bytes` of guest memory.

    /dev/shm when it is large enough (containers often have 64 MB of it), else the temporary
    directory. Raises VirtualKernelError, with the figures, when no guest can have so much, the
    host has less memory available than the guest may use, or no directory has the room.
    """
    if memory_bytes > _MOST_BYTES:
        raise VirtualKernelError(
            f"guest memory of {mb(memory_bytes)} refused: a guest has at most {mb(_MOST_BYTES)}"
        )
    available = available_memory_bytes()
    if memory_bytes + _HOST_RESERVE_BYTES > available:
        raise VirtualKernelError(
            f"guest memory of {mb(memory_bytes)} refused: this host has {mb(available)} "
            f"available and keeps {mb(_HOST_RESERVE_BYTES)} for itself"
        )
    found = []
    for directory in (Path("/dev/shm"), Path(tempfile.gettempdir())):
        if not os.access(directory, os.W_OK | os.X_OK):
            continue
        status = os.statvfs(directory)
        room = status.f_bavail * status.f_frsize
        if room >= memory_bytes and not status.f_flag & os.ST_NOEXEC:
            return directory
        noexec = ", mounted noexec" if status.f_flag & os.ST_NOEXEC else ""
        found.append(f"{directory}: {mb(room)}{noexec}")
    raise VirtualKernelError(
        f"guest memory of {mb(memory_bytes)} refused: no directory can hold it "
        f"({'; '.join(found) or 'none is writable'}). Set TMPDIR to one that can"
    )


def available_memory_bytes() -> int:
    """What the host could give away now without swapping (MemAvailable, proc(5))."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    raise VirtualKernelError("/proc/meminfo has no MemAvailable line")


def mb(size_bytes: int) -> str:
    """`size_bytes` as messages say it: "1,024 MB"."""
    return f"{size_bytes / 1e6:,.0f} MB"
