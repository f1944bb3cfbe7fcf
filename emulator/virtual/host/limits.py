"""Limits of this process, which hold for a guest, too: raised where they may be, else told.

A guest's memory is one file, all of it mapped by each of its processes, which are processes of the
host; what they map of it piece by piece are mappings of the host. A file that is open in a guest is
open in the kernel's own process.
"""

from __future__ import annotations

import errno
import os
import re
import resource
from contextlib import suppress
from pathlib import Path

from emulator.virtual.failure import VirtualKernelError
from emulator.virtual.memory.host_memory import mb

# The kernel itself, its stacks and libraries, beside the guest's memory.
_KERNEL_BYTES = 64 * 2**20
_RAISED = (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_AS, resource.RLIMIT_FSIZE)
# arch/um: start_userspace() in os-Linux/skas/process.c, report_enomem() in kernel/tlb.c,
# um_timer_setup() in kernel/time.c.
_NO_PROCESS = re.compile(r"start_userspace : (?:clone|mmap) failed, errno = (\d+)")
_NO_MAPPING = "UML ran out of memory on the host side!"
_NO_TIMER = "creation of timer failed"


def raise_limits() -> None:
    """Have this process heed the hard limits only, which is all that it must."""
    for limit in _RAISED:
        hard = resource.getrlimit(limit)[1]
        with suppress(OSError, ValueError):
            resource.setrlimit(limit, (hard, hard))


def refuse_tight_limits(memory_bytes: int, open_files: int) -> None:
    """Raises VirtualKernelError, with the figures, when a hard limit forbids so much memory or so
    many open files."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY and most < open_files:
        raise VirtualKernelError(
            f"a guest with up to {open_files:,} open files refused: a process may have {most:,} at "
            "most here; raise the hard limit, `ulimit -H -n`"
        )
    for limit, what, option, needed in (
        (resource.RLIMIT_FSIZE, "a file", "f", memory_bytes),
        (resource.RLIMIT_AS, "the address space of a process", "v", memory_bytes + _KERNEL_BYTES),
    ):
        hard = resource.getrlimit(limit)[1]
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise VirtualKernelError(
                f"guest memory of {mb(memory_bytes)} refused: {what} may have {mb(hard)} at most "
                f"here; raise the hard limit, `ulimit -H -{option}`"
            )


def refused_by_host(line: str) -> str | None:
    """The refusal of the host to a guest whose console says `line`, as an error to raise. None:
    this line tells of nothing. No result may be had from such a guest: others would differ from it.
    """
    failed = _NO_PROCESS.search(line)
    if failed is not None:
        code = int(failed[1])
        limits = _address_space()
        if code == errno.EAGAIN:
            processes = _hard_limit(resource.RLIMIT_NPROC)
            limits = f"`ulimit -u`, here {processes}, or pids.max of its control group"
        return f"the host refused it another process ({os.strerror(code)}); raise {limits}"
    if _NO_MAPPING in line:
        mappings = Path("/proc/sys/vm/max_map_count").read_text().strip()
        return (
            "the host refused one of its processes another mapping of memory; raise "
            f"vm.max_map_count, here {mappings}, or {_address_space()}"
        )
    if _NO_TIMER in line:
        pending = _hard_limit(resource.RLIMIT_SIGPENDING)
        return (
            "the host refused it a timer, which counts as a pending signal of this user; raise "
            f"`ulimit -i`, here {pending}"
        )
    return None


def _address_space() -> str:
    return f"`ulimit -v`, here {_hard_limit(resource.RLIMIT_AS)}"


def _hard_limit(limit: int) -> str:
    hard = resource.getrlimit(limit)[1]
    return "unlimited" if hard == resource.RLIM_INFINITY else f"{hard:,}"
