"""The virtual kernel's random numbers."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

_ONLY_IN_THE_VIRTUAL_KERNEL = Path("/proc/busy_pollers")
_RNDCLEARPOOL = 0x5206
"""_IO('R', 0x06), include/uapi/linux/random.h."""


def renew_random_numbers() -> None:
    """Have what is drawn from here on depend on the guest's seed, and on nothing drawn before.
    Outside of the virtual kernel it does nothing."""
    if not _ONLY_IN_THE_VIRTUAL_KERNEL.exists():
        return
    file = os.open("/dev/random", os.O_RDONLY)
    try:
        fcntl.ioctl(file, _RNDCLEARPOOL)
    finally:
        os.close(file)
