"""The words of the guest's kernel when memory runs out, as a sentence."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from emulator.virtual.memory.host_memory import PAGE_BYTES, mb

_PANIC = "Kernel panic - not syncing: Out of memory"
_INVOKER = re.compile(r"\] (.+) invoked oom-killer:")
# pid, uid, tgid, total_vm, rss, rss_anon, rss_file, rss_shmem, pgtables_bytes, swapents, adj, name
_PROCESS = re.compile(r"\] \[ *(\d+)\] +\d+ +\d+ +\d+ +(\d+)(?: +-?\d+){6} (.*)$")
_USED = ("active_anon", "inactive_anon", "active_file", "inactive_file", "unevictable")
_COUNT = re.compile(rf"\b({'|'.join(_USED)}|shmem|free):(\d+)\b")
_TOTAL = re.compile(r"\] (\d+) pages (RAM|reserved)$")
_NAMED_PROCESSES = 4


@dataclass(frozen=True)
class _Process:
    pid: int
    name: str
    resident_bytes: int


def describe_out_of_memory(console: Sequence[str], memory_bytes: int) -> str | None:
    """The end of the guest's `memory_bytes`: who asked for more, what the memory was used
    for and which processes held most. None when `console` does not say that memory ran out.

    The lines are those of the kernel's mm/oom_kill.c and lib/show_mem.c (Linux 6.12); its counts
    are pages.
    """
    if not any(_PANIC in line for line in console):
        return None
    asker = "the kernel"
    processes: list[_Process] = []
    counts: dict[str, int] = {}
    for line in console:
        if found := _INVOKER.search(line):
            asker, processes, counts = found[1], [], {}
        elif found := _PROCESS.search(line):
            resident_bytes = int(found[2]) * PAGE_BYTES
            processes.append(_Process(int(found[1]), found[3], resident_bytes))
        elif found := _TOTAL.search(line):
            counts[found[2]] = int(found[1]) * PAGE_BYTES
        else:
            for name, pages in _COUNT.findall(line):
                counts.setdefault(name, int(pages) * PAGE_BYTES)
    said = f"the guest's {mb(memory_bytes)} were not enough when {asker} asked for more"
    return said + _uses(counts) + _largest(processes)


def _uses(counts: dict[str, int]) -> str:
    try:
        files = counts["shmem"]
        processes = sum(counts[name] for name in _USED) - files
        whole = counts["RAM"] - counts["reserved"]
        kernel = whole - processes - files - counts["free"]
    except KeyError:
        return ""  # the beginning was lost
    return (
        f": {mb(processes)} were processes', {mb(files)} files' in /tmp, /run and /dev/shm, "
        f"{mb(kernel)} the kernel's and its sockets', {mb(counts['free'])} free"
    )


def _largest(processes: list[_Process]) -> str:
    if not processes:
        return ""
    most = sorted(processes, key=lambda process: -process.resident_bytes)[:_NAMED_PROCESSES]
    named = ", ".join(f"{p.name} (pid {p.pid}) {mb(p.resident_bytes)}" for p in most)
    return f". The largest of {len(processes)} processes, shared pages counted in each: {named}"
