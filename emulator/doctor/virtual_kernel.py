"""Checks of this machine for the virtual kernel."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from typing import TypeVar

from emulator.doctor.check import Check
from emulator.virtual.building.build import find_kernel, require_tools
from emulator.virtual.building.cache import writable_kernel_cache
from emulator.virtual.building.source import PACKAGE, find_source
from emulator.virtual.failure import VirtualKernelError
from emulator.virtual.host.features import has_seccomp_filters, has_xsave
from emulator.virtual.memory.host_memory import memory_directory
from topologies.installation import in_clone

T = TypeVar("T")

_PTRACE_TRACEME = 0


def virtual_kernel_checks(memory_bytes: int) -> Iterator[Check]:
    """The needs of the virtual kernel, for a guest of `memory_bytes`."""
    image, _ = _answer_of(find_kernel)
    built = image is not None
    source, no_source = _answer_of(find_source)
    try:
        require_tools()
        tools = ""
    except VirtualKernelError as missing:
        tools = str(missing)
    cache, no_cache = _answer_of(writable_kernel_cache)
    possible = source is not None and not tools and cache is not None
    detail = "built" if built else ("not built yet, but can be" if possible else "cannot be built")
    yield Check(
        "virtual kernel",
        "virtual kernel",
        built or possible,
        detail,
        "no runs in exact virtual time, and none without root",
        in_clone("make setup, or ", "") + "groundwire kernel build",
    )
    yield Check(
        "virtual kernel",
        "kernel source",
        source is not None,
        source.version if source else no_source,
        "the virtual kernel cannot be built" + (" again" if built else ""),
        in_clone("./setup.sh run fetches linux-source-6.12", f"apt-get install {PACKAGE}"),
    )
    yield Check(
        "virtual kernel",
        "build tools",
        not tools,
        tools or "all found",
        "the virtual kernel cannot be built" + (" again" if built else ""),
        "apt-get install build-essential flex bison bc libelf-dev libssl-dev",
    )
    yield Check(
        "virtual kernel",
        "cache folder",
        cache is not None,
        str(cache) if cache else no_cache,
        "the virtual kernel cannot be built" + (" again" if built else ""),
        "set XDG_CACHE_HOME to a directory that can be written",
    )
    memory, no_memory = _answer_of(lambda: memory_directory(memory_bytes))
    yield Check(
        "virtual kernel",
        "guest memory",
        memory is not None,
        str(memory) if memory else no_memory,
        "the main job does not fit into a guest",
        "free memory, or set TMPDIR to a directory with room that is not mounted noexec",
    )
    traced = _may_trace()
    yield Check(
        "virtual kernel",
        "ptrace",
        traced,
        "allowed" if traced else "forbidden",
        "the virtual kernel cannot run its processes",
        "docker run --cap-add SYS_PTRACE, or sysctl kernel.yama.ptrace_scope=1",
    )
    xsave = has_xsave()
    yield Check(
        "virtual kernel",
        "XSAVE",
        xsave,
        "can be had" if xsave else "not in this processor",
        "wall time: the guest's processes are run by ptrace, at half the speed, with the same "
        "results",
        "give a virtual machine its host's processor (QEMU: -cpu host)",
    )
    filters = has_seccomp_filters()
    yield Check(
        "virtual kernel",
        "seccomp filters",
        filters,
        "can be had" if filters else "none, or forbidden",
        "wall time: the guest's processes are run by ptrace, at half the speed, with the same "
        "results",
        "a kernel with CONFIG_SECCOMP_FILTER, and a container policy that allows seccomp",
    )


def _answer_of(question: Callable[[], T | None]) -> tuple[T | None, str]:
    """The answer, and why there is none."""
    try:
        return question(), "not found"
    except VirtualKernelError as refusal:
        return None, str(refusal)


def _may_trace() -> bool:
    child = os.fork()
    if child == 0:
        os._exit(0 if ctypes.CDLL(None).ptrace(_PTRACE_TRACEME, 0, 0, 0) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0
