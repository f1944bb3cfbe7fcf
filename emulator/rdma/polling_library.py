"""The library that programs with verbs are started with in virtual time (`polling.c`)."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path

from emulator.virtual.building.build_process import build_environment
from emulator.virtual.building.cache import writable_kernel_cache
from emulator.virtual.failure import VirtualKernelError

_SOURCE = Path(__file__).with_name("polling.c")
_PACKAGES = "gcc libc6-dev libibverbs-dev ibverbs-providers"


def polling_library() -> Path:
    """The library, compiled when it is absent. Raises VirtualKernelError: it cannot be compiled, as
    the compiler or the headers of libibverbs are missing."""
    source = _SOURCE.read_bytes()
    directory = writable_kernel_cache() / "verbs"
    library = directory / f"polling-{hashlib.sha256(source).hexdigest()[:16]}.so"
    if library.exists():
        return library
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        made = Path(scratch) / library.name
        command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(made), str(_SOURCE), "-ldl"]
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
                f"programs with verbs need a library that cannot be compiled here: {said}\n"
                f"Install what it needs with `sudo apt-get install {_PACKAGES}`"
            )
        made.rename(library)
    return library
