"""A run directory on a file system that runs full: told in one line, whoever met it first."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emulator.interruption import is_interrupt

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Of a write that finds no room."""

# With no more than this a write may have failed. Linux also says ENOSPC of other things, such as
# network namespaces, of which a user may have so many.
_NO_ROOM_BYTES = 2**20


class RunDirectoryFull(RuntimeError):
    """The message names the directory, what is free there and the file that was written last."""


@contextmanager
def told_when_full(directory: Path) -> Iterator[None]:
    """Has a failure that came from a full `directory` raise RunDirectoryFull instead.

    Ranks, the guest and the report each meet it in their own way, and few with a file's name.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        words = None if is_interrupt(error) else _found_no_room(directory, str(error))
        if words is None:
            raise
        raise RunDirectoryFull(_told(directory, words)) from error


def _found_no_room(directory: Path, said: str) -> str | None:
    """The system's own words, where they are in `said` and are about `directory`."""
    quota, space = os.strerror(errno.EDQUOT), os.strerror(errno.ENOSPC)
    if quota in said:
        return quota
    return space if space in said and _free_bytes(directory) <= _NO_ROOM_BYTES else None


def _told(directory: Path, words: str) -> str:
    files = [path for path in directory.rglob("*") if path.is_file()]
    last = max(files, key=lambda path: path.stat().st_ctime_ns, default=None)
    written = "" if last is None else f"; the file written last is {last.relative_to(directory)}"
    free = _free_bytes(directory)
    return f"the run directory {directory} is full ({words}): {free:,} bytes are free{written}"


def _free_bytes(directory: Path) -> int:
    made = next(path for path in (directory, *directory.absolute().parents) if path.is_dir())
    there = os.statvfs(made)
    return there.f_bavail * there.f_frsize if there.f_favail else 0
