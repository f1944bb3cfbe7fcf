"""What this machine's processor has of what the virtual kernel can use."""

from __future__ import annotations

import re
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


def has_xsave() -> bool:
    """Whether there is XSAVE, which Intel's and AMD's processors have since 2011. The kernel looks
    for it, too (patch 0004), and without it has user code run by ptrace, with the same results.

    Virtual machines may lack it that have not been given their host's processor (QEMU's qemu64).
    """
    flags = re.search(r"^flags\s*:(.*)$", _CPUINFO.read_text(), re.MULTILINE)
    return flags is not None and "xsave" in flags[1].split()
