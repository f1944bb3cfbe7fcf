"""The directory of built kernels: the user's cache folder, never the clone."""

import os
import re
from pathlib import Path

from emulator.virtual.failure import VirtualKernelError
from topologies.cache_folder import NoCacheFolder, cache_folder

_NOT_FOR_MAKE = re.compile(r"""[\s:%#$'"`&();*?\\<>|]""")


def kernel_cache() -> Path:
    """The folder of kernels. Raises VirtualKernelError for a user without a home."""
    try:
        return cache_folder("kernel", "the virtual kernel")
    except NoCacheFolder as error:
        raise VirtualKernelError(str(error)) from error


def writable_kernel_cache() -> Path:
    """`kernel_cache()`, where a kernel can be built and kept.

    Raises VirtualKernelError: it is none (see there), can neither be written nor made, or has a
    name that make, or the shell that it calls, would take apart.
    """
    cache = kernel_cache()
    taken_apart = _NOT_FOR_MAKE.search(str(cache))
    if taken_apart is not None:
        raise VirtualKernelError(
            f"{cache}: Linux cannot be built in a directory with {taken_apart[0]!r} in its name; "
            "set XDG_CACHE_HOME to another"
        )
    nearest = next(path for path in (cache, *cache.parents) if os.path.exists(path))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise VirtualKernelError(f"{cache}: {nearest} is no directory that can be written")
    return cache
