"""Output directories: one process claims each, before anything is written into it.

A directory that is being filled holds a marker, which its process has locked. The marker goes when
the directory is complete. So a marker that nobody has locked tells of an interrupted run, whose
leavings the next run may replace; without a marker a directory is somebody's, and stays as it is.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import count
from pathlib import Path

MARKER = ".unfinished"
_OF_A_RUN = ("spec.yaml", "environment.json")
_LOCK = ".lock"
_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = _OPEN | os.O_CREAT | os.O_EXCL


class DirectoryBusy(FileExistsError):
    """Another process is at work in the directory."""


@contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Inside the block `directory` exists, is empty at first, and is this process's alone.

    It is made with its parents, or was empty, or held what an interrupted run has left, which goes.
    An error in the block leaves the marker. Raises DirectoryBusy, FileExistsError for a directory
    that is not empty, PermissionError for one that another user owns.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        directory.mkdir()
    _refuse_other_owner(directory)
    refuse_taken(directory)
    marker = directory / MARKER
    descriptor, new = _opened(marker)
    try:
        if not _locked(descriptor, new) or not _is_at(descriptor, marker):
            raise DirectoryBusy(f"{directory}: another run is at work in it; choose another --out")
        left = [path for path in directory.iterdir() if path != marker]
        if new and left:  # filled between the look and the marker
            marker.unlink()
        refuse_taken(directory)
        for path in left:
            _remove(path)
        yield
        marker.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def refuse_taken(directory: Path) -> None:
    """Raises FileExistsError when there is something where a run directory is to be made, other
    than what an interrupted run has left."""
    if directory.exists() and any(directory.iterdir()) and not _is_unfinished(directory):
        raise FileExistsError(
            f"{directory} exists already and is not empty; choose another --out (`groundwire run "
            "--force` replaces a run)"
        )


def remove_run(directory: Path) -> None:
    """Remove a run directory that is to be made anew; what an interrupted run has left stays for
    `claimed` to judge. Raises FileExistsError for a directory that has something else, and
    PermissionError for one that another user owns; nothing of it goes."""
    if not directory.exists() or not any(directory.iterdir()) or _is_unfinished(directory):
        return
    _refuse_other_owner(directory)
    if not all((directory / name).is_file() for name in _OF_A_RUN):
        raise FileExistsError(f"{directory} is no run directory, so that nothing replaces it")
    if (directory / MARKER).exists():
        raise DirectoryBusy(f"{directory}: another run is at work in it; choose another --out")
    shutil.rmtree(directory)


@contextmanager
def new_directory(parent: Path, name: str) -> Iterator[Path]:
    """A new directory `parent`/`name`-TIME, which no other call gets, in this second or another.

    It is gone after the block when nothing was written into it, and so is a `parent` made for it.
    """
    made_parent = not parent.exists()
    made = _made_new(parent, f"{name}-{datetime.now():%Y%m%d-%H%M%S}")
    try:
        yield made
    finally:
        with suppress(OSError):  # it is not empty
            made.rmdir()
            if made_parent:
                parent.rmdir()


@contextmanager
def alone_in(directory: Path, what: str) -> Iterator[None]:
    """Makes a directory that several processes may fill, one after another. Raises DirectoryBusy
    when another process is in such a block for it; `what` names what that does."""
    directory.mkdir(parents=True, exist_ok=True)
    _refuse_other_owner(directory)
    lock = directory / _LOCK
    descriptor, new = _opened(lock)
    try:
        if not _locked(descriptor, new) or not _is_at(descriptor, lock):
            raise DirectoryBusy(f"{directory}: another {what} is at work in it")
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _made_new(parent: Path, name: str) -> Path:
    for number in count(1):
        directory = parent / (name if number == 1 else f"{name}-{number}")
        parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError, FileNotFoundError):  # taken; its parent has just gone
            directory.mkdir()
            break
    return directory


def _refuse_other_owner(directory: Path) -> None:
    """Raises PermissionError: what another user owns can be changed by that user at any time."""
    owner = directory.stat().st_uid
    ours = {os.geteuid()}
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdigit():
        ours.add(int(os.environ["SUDO_UID"]))
    if owner not in ours:
        raise PermissionError(
            f"{directory} belongs to user {owner}; choose a directory of your own, or one that is "
            "not there yet"
        )


def _is_unfinished(directory: Path) -> bool:
    marker = directory / MARKER
    result = directory / "result.json"  # is kept, whatever else is there
    return marker.is_file() and not marker.is_symlink() and not result.exists()


def _opened(path: Path) -> tuple[int, bool]:
    """A file that nobody else has written to, and whether it is new."""
    while True:
        try:
            return os.open(path, _NEW, 0o600), True
        except FileExistsError:
            with suppress(FileNotFoundError):  # it has just gone
                return os.open(path, _OPEN), False


def _locked(descriptor: int, new: bool) -> bool:
    """Whether this process has the file now, and no other. Some file systems have no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        return new  # nothing tells whether the process that made it lives
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file still is the one at `path`: its process may have removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
