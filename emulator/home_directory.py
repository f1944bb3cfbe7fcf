"""The home directory of programs in a guest: the user's as it is, and writable. Files that are
written there stay in the run, so that no run depends on another and nothing of the user's
changes."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from emulator.guest_entry import STAGE
from emulator.linux import namespaces
from emulator.ranks.caller import Caller, programs_of
from topologies.spec.spec import Spec

HOME = "home"
"""The folder of the run directory that holds what programs wrote into their homes."""


@contextmanager
def writable_homes(spec: Spec, run_directory: Path) -> Iterator[None]:
    """From here on, in this guest, the home of each program can be written to. At the end of the
    block what was written is in the run directory, too, below `home/`. Raises OSError."""
    homes = {
        Path((dict(Caller.read(place).environment) | workload.env)["HOME"])
        for workload, place in programs_of(spec, run_directory)
    }
    with ExitStack() as stack:
        for number, home in enumerate(sorted(home for home in homes if _needs_layer(home))):
            layer = Path(STAGE, HOME, str(number))
            layer.mkdir(parents=True)
            namespaces.mount_tmpfs(layer)
            written = namespaces.mount_writable_layer(home, layer)
            stack.callback(_keep, written, run_directory / HOME)
        yield


def _needs_layer(home: Path) -> bool:
    """Whether it is a directory that no guest can write to: /tmp and the like are its own."""
    return (
        home.is_absolute() and home != Path("/") and home.is_dir() and not os.access(home, os.W_OK)
    )


def _keep(written: Path, kept: Path) -> None:
    """Copies files and links. A device in a layer says that a file has been removed."""
    for folder, _, names in os.walk(written):
        for name in names:
            source = Path(folder, name)
            target = kept / source.relative_to(written)
            mode = source.lstat().st_mode
            if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target, follow_symlinks=False)
