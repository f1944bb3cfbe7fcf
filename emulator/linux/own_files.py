"""Directories and files that this user alone can have written: what they say may be obeyed.

Whoever can make a name in a shared directory such as /tmp can put a link, or a file of their own,
where ours is looked for. So nothing is followed, and what is open is asked who owns it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class NotOurs(PermissionError):
    """Somebody else could have written it; the message names the file and its owner."""


def make_own_directory(path: Path) -> None:
    """Makes a directory of mode 0700, or finds the one of this user. Raises NotOurs, OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        with own_directory(path):
            pass


@contextmanager
def own_directory(path: Path) -> Iterator[int]:
    """A descriptor of a directory that only this user can write to. Raises NotOurs,
    FileNotFoundError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        raise NotOurs(f"{path} is no directory, or a link: not used") from None
    except PermissionError:
        raise NotOurs(f"{path} cannot be read by user {os.geteuid()}: not used") from None
    try:
        _refuse_others(path, os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


def open_own_file(path: Path) -> TextIO:
    """A file to add to, which this user alone can read and write. Raises OSError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(path, flags, 0o600), "a", encoding="utf-8")


def read_own_file(path: Path) -> str:
    """The text of a file that only this user can have written. Raises NotOurs, OSError,
    UnicodeDecodeError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise NotOurs(f"{path} is a link: not followed") from error
        raise
    with open(descriptor, encoding="utf-8") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise NotOurs(f"{path} is no plain file: not read")
        _refuse_others(path, found)
        return file.read()


def _refuse_others(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise NotOurs(
            f"{path} belongs to user {found.st_uid}, not to user {os.geteuid()}: it is not "
            "obeyed. Have its owner remove it"
        )
    if found.st_mode & _OTHERS_WRITE:
        raise NotOurs(
            f"{path} can be written by others (mode {stat.S_IMODE(found.st_mode):04o}): it is "
            f"not obeyed. If you know its contents: chmod go-w {path}"
        )
