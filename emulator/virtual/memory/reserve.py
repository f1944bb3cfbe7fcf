"""Have the host allocate a guest's memory before the guest gets to it, on another core.

Memory that nobody has touched costs a page fault for each 4 KB, in which the host clears the page:
0.6 us where it has one at hand, 5 to 18 us in a virtual machine whose hypervisor takes free pages
back. A guest of 64 ranks spent a fifth of its time so. It takes memory in the order of its
addresses, so who keeps ahead of it knows what comes next. Asked for in huge pages, the same
memory is also mapped into the guest's processes by one fault for 2 MB, and takes fewer entries of
the TLB, which is cold after most switches between processes; so the blocks that hold the kernel and
what it began with are made huge pages, too. Results do not depend on it: the guest cannot see which
of its memory the host has allocated, nor how.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emulator.virtual.host.core import Core
from emulator.virtual.memory.host_memory import PAGE_BYTES
from emulator.virtual.variables import KernelVariable

_BLOCK_BYTES = 2 * 2**20  # a huge page of x86-64
# The guest takes up to 0.7 GB/s, the host prepares 0.4 to 1 GB/s.
_MOST_AHEAD_BYTES = 256 * 2**20
_LEAST_AHEAD_BYTES = 16 * 2**20
_POLL_S = 0.005

# madvise(2); Python knows none of them
_MADV_POPULATE_READ = 22
_MADV_POPULATE_WRITE = 23
_MADV_COLLAPSE = 25  # heeds no setting below /sys/kernel/mm/transparent_hugepage but "deny"

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_MAP_FAILED = ctypes.c_void_p(-1).value
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_PROT_NONE = 0


class Window:
    """A place of this process's address space where blocks of a file are mapped one by one."""

    def __init__(self) -> None:
        # Twice the size, as a huge page needs an address that is a multiple of its size.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        start = _libc.mmap(None, 2 * _BLOCK_BYTES, _PROT_NONE, flags, -1, 0)
        if start == _MAP_FAILED:
            raise OSError(ctypes.get_errno(), "no room for a window of 4 MB")
        self._start = start
        self._address = -(-start // _BLOCK_BYTES) * _BLOCK_BYTES
        self._collapses = True

    def allocate(self, file: int, offset: int) -> bool:
        """Have memory allocated for the block of `file` that begins at byte `offset`, as a huge
        page if the host gives one. Contents stay as they are. False when it cannot be had."""
        access = mmap.PROT_READ | mmap.PROT_WRITE
        flags = mmap.MAP_SHARED | _MAP_FIXED
        mapped = _libc.mmap(self._address, _BLOCK_BYTES, access, flags, file, offset)
        if mapped == _MAP_FAILED:
            return False
        if self._collapses:
            # A block without any page is refused, so let it have one.
            self._advise(PAGE_BYTES, _MADV_POPULATE_READ)
            failure = self._advise(_BLOCK_BYTES, _MADV_COLLAPSE)
            if failure == 0:
                return True
            # Anything else is about this block: too few huge pages, or the guest is just there.
            self._collapses = failure != errno.EINVAL
        return self._advise(_BLOCK_BYTES, _MADV_POPULATE_WRITE) == 0

    def _advise(self, size_bytes: int, advice: int) -> int:
        done = _libc.madvise(self._address, size_bytes, advice)
        return 0 if done == 0 else ctypes.get_errno()

    def close(self) -> None:
        _libc.munmap(self._start, 2 * _BLOCK_BYTES)


class Reserve:
    """How far a running guest's memory is allocated ahead of its use."""

    def __init__(self, pid: int, symbols: Path) -> None:
        """`pid` is the guest's first process, `symbols` its kernel's System.map."""
        self._file_number = KernelVariable(pid, symbols, "physmem_fd", size_bytes=4)
        self._first_page = KernelVariable(pid, symbols, "min_low_pfn")
        self._total_pages = KernelVariable(pid, symbols, "_totalram_pages")
        # Its first element is NR_FREE_PAGES: include/linux/mmzone.h, enum zone_stat_item.
        self._free_pages = KernelVariable(pid, symbols, "vm_zone_stat")
        self._pid = pid
        self._file: int | None = None
        self._begun: list[int] = []
        self._next = 0
        self._size_bytes = 0
        self._never_used_bytes = 0
        self.allocated_bytes = 0

    def step(self, window: Window) -> bool:
        """Allocate the next block if the guest comes near it. False: for now, nothing to do."""
        total, free = self._total_pages.read(), self._free_pages.read()
        if not total or free is None:  # it has not come so far, or it is gone
            return False
        free_bytes, used_bytes = free * PAGE_BYTES, (total - free) * PAGE_BYTES
        if self._file is None:
            self._file = self._open(free_bytes)
            self._begun = list(blocks_with_data(self._file))
        if self._begun:
            window.allocate(self._file, self._begun.pop(0))
            return True
        holes_bytes = self._size_bytes - os.fstat(self._file).st_blocks * 512
        ahead_bytes = free_bytes - (holes_bytes - self._never_used_bytes)
        if ahead_bytes >= wanted_bytes(used_bytes, self._size_bytes):
            return False
        try:
            hole = os.lseek(self._file, self._next, os.SEEK_HOLE)
        except OSError:
            return False
        block = -(-hole // _BLOCK_BYTES) * _BLOCK_BYTES
        if block + _BLOCK_BYTES > self._size_bytes:
            return False
        if window.allocate(self._file, block):
            self.allocated_bytes += _BLOCK_BYTES
        self._next = block + _BLOCK_BYTES
        return True

    def _open(self, free_bytes: int) -> int:
        """At the first look, no free memory is allocated: what more is not, is never used."""
        number, first_page = self._file_number.read(), self._first_page.read()
        if number is None or first_page is None:
            raise ProcessLookupError(f"guest {self._pid} has just ended")
        file = os.open(f"/proc/{self._pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
        status = os.fstat(file)
        self._size_bytes = status.st_size
        self._next = first_page * PAGE_BYTES
        self._never_used_bytes = status.st_size - status.st_blocks * 512 - free_bytes
        return file

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)


def blocks_with_data(file: int) -> Iterator[int]:
    """Offsets of the blocks of `file` of which any page is allocated, in order."""
    offset = 0
    with contextlib.suppress(OSError):  # ENXIO: there is no more
        while True:
            offset = os.lseek(file, offset, os.SEEK_DATA) // _BLOCK_BYTES * _BLOCK_BYTES
            yield offset
            offset += _BLOCK_BYTES


def wanted_bytes(used_bytes: int, memory_bytes: int) -> int:
    """How much to have ready for a guest that uses `used_bytes`: little for a small one, then half
    of its memory, which all those used whose memory was sized from a spec and that were measured
    (docs/guest-memory.md); as others may not, never more than it uses already."""
    near = min(max(used_bytes // 4, _LEAST_AHEAD_BYTES), _MOST_AHEAD_BYTES)
    return max(near, min(memory_bytes // 2 - used_bytes, used_bytes))


@contextmanager
def kept_reserve(pid: int, symbols: Path, core: Core) -> Iterator[Reserve]:
    """Keep a reserve for this guest as long as the context lasts, on cores other than its own.

    Where there is but one core, nothing is done: it would only take turns with the guest.
    """
    reserve = Reserve(pid, symbols)
    if not core.others():
        yield reserve
        return
    done = threading.Event()
    thread = threading.Thread(target=_keep, args=(reserve, core, done), daemon=True)
    thread.start()
    try:
        yield reserve
    finally:
        done.set()
        thread.join()
        reserve.close()


def _keep(reserve: Reserve, core: Core, done: threading.Event) -> None:
    window = Window()
    others: frozenset[int] = frozenset()
    # The guest may end at any moment, and nothing of it is then to be found.
    with contextlib.suppress(OSError):
        while not done.is_set():
            if others != core.others():
                others = core.others()
                os.sched_setaffinity(0, others)  # of this thread alone
            if not reserve.step(window):
                time.sleep(_POLL_S)
    window.close()
