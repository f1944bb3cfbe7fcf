"""The library that charges hosts their costs, compiled where it is used, and its variables."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from emulator.virtual.building.build_process import build_environment
from emulator.virtual.building.cache import writable_kernel_cache
from emulator.virtual.failure import VirtualKernelError
from topologies.spec.host_section import HostSpec

_SOURCE = Path(__file__).with_name("charging.c")
_COSTS, _OUTSIDE = "GROUNDWIRE_HOST", "GROUNDWIRE_HOST_OUTSIDE"


def charging_environment(host: HostSpec) -> dict[str, str]:
    """The variables of a guest's processes whose hosts are charged; none where nothing is. Raises
    VirtualKernelError: see `charging_library`."""
    if not host.charged:
        return {}
    costs = (
        f"syscall={host.syscall_ns},wakeup={host.wakeup_ns},packet={host.per_packet_ns},"
        f"copy={host.copy_bytes_per_s or 0},cores={host.cores or 0}"
    )
    return {"LD_PRELOAD": str(charging_library()), _COSTS: costs}


def charged_variables(preloaded: str | None) -> Mapping[str, str]:
    """In a guest: those that a program started from here is to have so that it is charged, too,
    beside a library that it is `preloaded` with."""
    if _COSTS not in os.environ:
        return {}
    libraries = [os.environ["LD_PRELOAD"], *([preloaded] if preloaded else [])]
    passed = {name: os.environ[name] for name in (_COSTS, _OUTSIDE) if name in os.environ}
    return {"LD_PRELOAD": ":".join(libraries), **passed}


@cache
def charging_library() -> Path:
    """The library, compiled when it is absent. Raises VirtualKernelError: it cannot be compiled."""
    source = _SOURCE.read_bytes()
    directory = writable_kernel_cache() / "host"
    library = directory / f"charging-{hashlib.sha256(source).hexdigest()[:16]}.so"
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
                f"host needs a library that cannot be compiled here: {said}\n"
                "Install what it needs with `sudo apt-get install gcc libc6-dev`"
            )
        made.rename(library)
    return library
