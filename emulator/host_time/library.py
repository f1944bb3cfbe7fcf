"""The library that charges hosts their costs, compiled where it is used, and its variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from emulator.virtual.building.library import compiled_library
from topologies.spec.host_section import HostSpec

_SOURCE = Path(__file__).with_name("charging.c")
_COSTS, _OUTSIDE = "GROUNDWIRE_HOST", "GROUNDWIRE_HOST_OUTSIDE"


def charging_environment(host: HostSpec) -> dict[str, str]:
    """The variables of a guest's processes whose hosts are charged, for traffic or for their disk;
    none where nothing is. Raises VirtualKernelError: see `charging_library`."""
    if not host.preloads:
        return {}
    costs = (
        f"syscall={host.syscall_ns},wakeup={host.wakeup_ns},packet={host.per_packet_ns},"
        f"copy={host.copy_bytes_per_s or 0},cores={host.cores or 0},"
        f"write={host.disk_write_bytes_per_s or 0},read={host.disk_read_bytes_per_s or 0}"
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
    return compiled_library(_SOURCE, "-ldl", folder="host", needed_by="host needs")
