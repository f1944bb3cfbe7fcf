"""How much memory control groups leave this process: limits of containers, batch systems, users."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

# Version 1 has a number where there is no limit: the most pages that the kernel counts, in bytes.
_NO_LIMIT_BYTES = 2**60
# Files' pages that the kernel drops when the limit is reached; those of memory file systems stay.
_DROPPED = ("active_file", "inactive_file")


@dataclass(frozen=True)
class MemoryLimit:
    """The limit of `group`, a directory of its hierarchy, and what is left of it."""

    group: str
    limit_bytes: int
    left_bytes: int


def tightest_memory_limit(root: Path = Path("/")) -> MemoryLimit | None:
    """The tightest limit that holds for this process. None: there is none.

    Reads /proc/self/cgroup and /proc/self/mountinfo (cgroups(7)); of version 2 memory.max and
    memory.high, above which processes are held up, of version 1 memory.limit_in_bytes.
    """
    limits = [
        limit
        for mounted, group in _memory_groups(root)
        for directory in (group, *group.parents)
        if directory.is_relative_to(mounted) and (limit := _limit(directory, mounted))
    ]
    return min(limits, key=lambda limit: limit.left_bytes, default=None)


def _memory_groups(root: Path) -> Iterator[tuple[Path, Path]]:
    """The mount of each hierarchy that knows of memory, and this process's group below it."""
    paths: dict[str, PurePosixPath] = {}
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, group_path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), PurePosixPath(group_path))
    for line in _lines(root / "proc/self/mountinfo"):
        mount, _, file_system = line.partition(" - ")
        kind, _, options = file_system.split(" ", 2)
        if kind == "cgroup2":
            controller = ""
        elif kind == "cgroup" and "memory" in options.split(","):
            controller = "memory"
        else:
            continue
        if controller not in paths:
            continue
        top, point = mount.split(" ")[3:5]
        mounted, path = root / point.lstrip("/"), paths[controller]
        # A container may be told its path on the host, of which it sees no more than the end.
        group = mounted / path.relative_to(top) if path.is_relative_to(top) else mounted
        yield mounted, group if group.is_dir() else mounted


def _limit(directory: Path, mounted: Path) -> MemoryLimit | None:
    name = "/" + str(directory.relative_to(mounted)).removeprefix(".")
    limits = [
        value
        for file in ("memory.max", "memory.high", "memory.limit_in_bytes")
        if (value := _number(directory / file)) is not None and value < _NO_LIMIT_BYTES
    ]
    used = _number(directory / "memory.current")
    prefix = ""
    if used is None:
        used, prefix = _number(directory / "memory.usage_in_bytes"), "total_"
    if not limits or used is None:
        return None
    counts = dict(line.split(" ", 1) for line in _lines(directory / "memory.stat"))
    dropped = sum(int(counts.get(prefix + kind, 0)) for kind in _DROPPED)
    return MemoryLimit(name, min(limits), max(0, min(limits) - used + dropped))


def _number(path: Path) -> int | None:
    """The file's number; None when there is no such file, or it says "max"."""
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdecimal() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
