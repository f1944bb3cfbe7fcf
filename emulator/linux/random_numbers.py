"""The virtual kernel's random numbers."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

_ONLY_IN_THE_VIRTUAL_KERNEL = Path("/proc/busy_pollers")
# _IO('R', 0x06), _IOW('R', 0x03, int[2]) and _IO('R', 0x07), include/uapi/linux/random.h
_RNDCLEARPOOL, _RNDADDENTROPY, _RNDRESEEDCRNG = 0x5206, 0x40085203, 0x5207
_SEED = struct.Struct("iiQ")
"""The argument of `RNDADDENTROPY`: bits to be counted, bytes, and these."""


def renew_random_numbers(seed: int | None = None) -> None:
    """Have what is drawn from here on depend on the guest's seed, and on nothing drawn before;
    with a `seed` on that as well. Outside of the virtual kernel it does nothing."""
    if not _ONLY_IN_THE_VIRTUAL_KERNEL.exists():
        return
    file = os.open("/dev/random", os.O_RDONLY)
    try:
        fcntl.ioctl(file, _RNDCLEARPOOL)
        if seed is not None:
            fcntl.ioctl(file, _RNDADDENTROPY, _SEED.pack(0, 8, seed % 2**64))
            fcntl.ioctl(file, _RNDRESEEDCRNG)
    finally:
        os.close(file)
