"""Libraries that use verbs, compiled where they are used: for programs that poll (`polling.c`), and
for ranks of ours (`workloads/execution/verbs/verbs.c`)."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import workloads.execution.verbs
from emulator.virtual.building.build_process import build_environment
from emulator.virtual.building.cache import writable_kernel_cache
from emulator.virtual.failure import VirtualKernelError

_POLLING = Path(__file__).with_name("polling.c")
_VERBS = Path(workloads.execution.verbs.__file__).with_name("verbs.c")
_PACKAGES = "gcc libc6-dev libibverbs-dev ibverbs-providers"


def polling_library() -> Path:
    """The library that programs with verbs are started with in virtual time. Raises
    VirtualKernelError: see `_compiled`."""
    return _compiled(_POLLING, "-ldl")


@cache
def verbs_library() -> Path:
    """The library by which ranks use verbs. Raises VirtualKernelError: see `_compiled`."""
    return _compiled(_VERBS, "-libverbs")


def _compiled(path: Path, uses: str) -> Path:
    """A library, compiled when it is absent. Raises VirtualKernelError: it cannot be compiled, as
    the compiler or the headers of libibverbs are missing."""
    source = path.read_bytes()
    directory = writable_kernel_cache() / "verbs"
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
                f"verbs need a library that cannot be compiled here: {said}\n"
                f"Install what it needs with `sudo apt-get install {_PACKAGES}`"
            )
        made.rename(library)
    return library
