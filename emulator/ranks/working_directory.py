"""The working directory of programs: writable, in the run directory, and showing what lies in the
directory in which they would run otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def working_directory(shown: Path, directory: Path) -> Iterator[None]:
    """Inside the block `directory` has a link to everything in `shown`; afterwards only what was
    written there is left. Raises OSError, such as for a `shown` that is no directory."""
    directory.mkdir()
    links = {directory / entry.name: entry for entry in shown.resolve().iterdir()}
    for link, target in links.items():
        link.symlink_to(target)
    try:
        yield
    finally:
        for link, target in links.items():
            with suppress(OSError):  # it is gone, or has been replaced by something else
                if link.readlink() == target:
                    link.unlink()
