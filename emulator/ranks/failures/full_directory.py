"""A run directory whose file system is full: reported in one line, whichever part met it first."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emulator.linux.signals import is_interrupt

FULL = (errno.ENOSPC, errno.EDQUOT)
"""The error numbers of a write that finds no room."""

# A write may have failed when no more than this is free. Linux also returns ENOSPC for other
# things, such as a user's limit on network namespaces.
_NO_ROOM_BYTES = 2**20


class RunDirectoryFull(RuntimeError):
    """The message names the directory, what is free there and the file that was written last."""


@contextmanager
def full_directory_reported(directory: Path) -> Iterator[None]:
    """Inside the block, a failure that came from a full `directory` raises RunDirectoryFull.

    Ranks, the guest and the report each fail in their own way, and few of them name a file.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        words = None if is_interrupt(error) else _no_space_message(directory, str(error))
        if words is None:
            raise
        raise RunDirectoryFull(_describe(directory, words)) from error


def _no_space_message(directory: Path, said: str) -> str | None:
    """The system's own message, if `said` contains it and it is about `directory`."""
    quota, space = os.strerror(errno.EDQUOT), os.strerror(errno.ENOSPC)
    if quota in said:
        return quota
    return space if space in said and _free_bytes(directory) <= _NO_ROOM_BYTES else None


def _describe(directory: Path, words: str) -> str:
    files = [path for path in directory.rglob("*") if path.is_file()]
    last = max(files, key=lambda path: path.stat().st_ctime_ns, default=None)
    written = "" if last is None else f"; the file written last is {last.relative_to(directory)}"
    free = _free_bytes(directory)
    return f"the run directory {directory} is full ({words}): {free:,} bytes are free{written}"


def _free_bytes(directory: Path) -> int:
    made = next(path for path in (directory, *directory.absolute().parents) if path.is_dir())
    there = os.statvfs(made)
    return there.f_bavail * there.f_frsize if there.f_favail else 0
