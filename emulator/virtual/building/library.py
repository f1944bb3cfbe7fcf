"""A library for processes of a guest, compiled where it is used and kept in the cache."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path

from emulator.virtual.building.build_process import build_environment
from emulator.virtual.building.cache import writable_kernel_cache
from emulator.virtual.failure import VirtualKernelError


def compiled_library(
    path: Path, uses: str, *, folder: str, needed_by: str, packages: str = "gcc libc6-dev"
) -> Path:
    """The library of a C file, compiled when it is absent from a `folder` of the cache. `uses` is
    the linker's option for what it uses, `needed_by` who needs it, in words. Raises
    VirtualKernelError: it cannot be compiled, as the compiler or headers of `packages` are
    missing."""
    source = path.read_bytes()
    directory = writable_kernel_cache() / folder
    library = directory / f"{path.stem}-{hashlib.sha256(source).hexdigest()[:16]}.so"
    if library.exists():
        return library
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        made = Path(scratch) / library.name
        command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(made), str(path), uses]
        try:
            done = subprocess.run(
                command, env=build_environment(), capture_output=True, text=True, check=False
            )
        except FileNotFoundError:
            said = "there is no gcc"
        else:
            said = "" if done.returncode == 0 else done.stderr.strip()
        if said:
            raise VirtualKernelError(
                f"{needed_by} a library that cannot be compiled here: {said}\n"
                f"Install what it needs with `sudo apt-get install {packages}`"
            )
        made.rename(library)
    return library
