"""Whether a test may make network namespaces in this machine's own kernel."""

from __future__ import annotations

import ctypes
import os


def _missing() -> str | None:
    if os.geteuid() != 0:
        return "needs root"
    pid = os.fork()
    if pid == 0:
        os._exit(0 if ctypes.CDLL(None).unshare(0x40000000) == 0 else 1)  # CLONE_NEWNET
    if os.waitpid(pid, 0)[1] != 0:
        return "this kernel refuses to make network namespaces"
    return None


MISSING = _missing()
"""The thing that this machine lacks for such namespaces, as the reason of a skip; None when it has
all."""
