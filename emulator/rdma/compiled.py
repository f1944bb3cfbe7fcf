"""Libraries that use verbs, compiled where they are used: for programs that poll (`polling.c`), and
for ranks of ours (`workloads/execution/verbs/verbs.c`)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import workloads.execution.verbs
from emulator.virtual.building.library import compiled_library

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
    return compiled_library(path, uses, folder="verbs", needed_by="verbs need", packages=_PACKAGES)
