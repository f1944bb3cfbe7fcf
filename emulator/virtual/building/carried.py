"""A kernel that need not be built: one that a wheel carries, or that a variable names."""

from __future__ import annotations

import os
from pathlib import Path

from emulator.virtual.building.image import KernelImage
from emulator.virtual.building.variant import KernelVariant
from emulator.virtual.failure import VirtualKernelError

KERNEL_VARIABLE = "GROUNDWIRE_KERNEL_IMAGE"
CARRIED = Path(__file__).resolve().parents[2] / "kernel" / "carried"
"""The directory into which `make wheel` puts a kernel; a clone has no such directory."""
PROGRAM, SYMBOLS, KEY = "linux", "System.map", "key"


def carried_kernel(variant: KernelVariant = KernelVariant.USUAL) -> KernelImage | None:
    """The kernel in the directory that `$GROUNDWIRE_KERNEL_IMAGE` names, else the one that this
    installation carries; a variant is in a folder of its name in there, or nowhere.

    Raises VirtualKernelError when the variable names a directory without a kernel.
    """
    named = os.environ.get(KERNEL_VARIABLE)
    directory = (Path(named) if named else CARRIED) / variant.value
    if (directory / PROGRAM).is_file() and (directory / SYMBOLS).is_file():
        key = directory / KEY
        name = key.read_text().strip() if key.is_file() else directory.resolve().name
        return KernelImage(directory / PROGRAM, directory / SYMBOLS, name)
    if named and not variant.value:
        raise VirtualKernelError(
            f"{KERNEL_VARIABLE}={named}: no {PROGRAM} and {SYMBOLS} in it; it must name a "
            "directory with a built kernel"
        )
    return None
