"""Guest memory: a sparse, already unlinked file in a memory file system of the host."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from emulator.virtual.failure import VirtualKernelError
from emulator.virtual.memory.cgroup_limit import tightest_memory_limit

PAGE_BYTES = 4096
# Above it, the kernel's addresses would meet user code's (patch 0004).
_MOST_BYTES = 238 * 2**30
# The host keeps so much for itself when guest memory is granted.
_HOST_RESERVE_BYTES = 256 * 2**20


@dataclass(frozen=True)
class AvailableMemory:
    """`size_bytes`, and in words who grants no more."""

    size_bytes: int
    words: str


def memory_directory(memory_bytes: int) -> Path:
    """A host directory that can hold `memory_bytes` of guest memory.

    /dev/shm when it is large enough (containers often have 64 MB of it), else the temporary
    directory. Raises VirtualKernelError, with the figures, when no guest can have so much, the
    host or a control group of ours has less memory available than the guest may use, or no
    directory has the room.
    """
    if memory_bytes > _MOST_BYTES:
        raise VirtualKernelError(
            f"guest memory of {mb(memory_bytes)} refused: a guest has at most {mb(_MOST_BYTES)}"
        )
    available = available_memory()
    if memory_bytes + _HOST_RESERVE_BYTES > available.size_bytes:
        raise VirtualKernelError(
            f"guest memory of {mb(memory_bytes)} refused: {available.words}, and "
            f"{mb(_HOST_RESERVE_BYTES)} of it are kept for others"
        )
    found = []
    for directory in _candidates():
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


def _candidates() -> Iterator[Path]:
    yield Path("/dev/shm")
    with suppress(FileNotFoundError):  # where this machine has no temporary directory
        yield Path(tempfile.gettempdir())


def available_memory() -> AvailableMemory:
    """The memory that this process could use now without swapping: of the host's memory
    (MemAvailable, proc(5)), and within the limits of its control groups."""
    host_bytes = _host_available_bytes()
    limit = tightest_memory_limit()
    if limit is None or limit.left_bytes >= host_bytes:
        return AvailableMemory(host_bytes, f"this host has {mb(host_bytes)} available")
    return AvailableMemory(
        limit.left_bytes,
        f"control group {limit.group} has {mb(limit.left_bytes)} left of its limit of "
        f"{mb(limit.limit_bytes)}",
    )


def killed_for_memory() -> int:
    """How many processes the host's kernel has killed since it booted because memory, or a control
    group's share of it, ran out (oom_kill in /proc/vmstat, Linux 4.13)."""
    lines = (line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return next((int(value) for name, value in lines if name == "oom_kill"), 0)


def _host_available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    raise VirtualKernelError("/proc/meminfo has no MemAvailable line")


def mb(size_bytes: int) -> str:
    """`size_bytes` as messages say it: "1,024 MB"."""
    return f"{size_bytes / 1e6:,.0f} MB"
