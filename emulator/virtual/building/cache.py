"""Where built kernels live: the user's cache folder, never the clone."""

import os
import re
from pathlib import Path

from emulator.virtual.failure import VirtualKernelError

_NOT_FOR_MAKE = re.compile(r"""[\s:%#$'"`&();*?\\<>|]""")


def kernel_cache() -> Path:
    """`$XDG_CACHE_HOME/groundwire/kernel`, by default below `~/.cache`. A relative path counts as
    none (XDG base directories): a kernel would be built wherever a command is run.

    Raises VirtualKernelError for a user without a home.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        try:
            base = str(Path.home() / ".cache")
        except RuntimeError as error:
            raise VirtualKernelError(
                "this user has no home directory to keep the virtual kernel in; set HOME, or "
                "XDG_CACHE_HOME to a directory that can be written"
            ) from error
    return Path(base) / "groundwire" / "kernel"


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
