"""The user's folder for what is built once and kept: kernels, the packet engine, virtual GPUs."""

from __future__ import annotations

import os
from pathlib import Path


class NoCacheFolder(RuntimeError):
    """The user has no home directory; the message says what to set."""


def cache_folder(name: str, what: str) -> Path:
    """`$XDG_CACHE_HOME/groundwire/NAME`, by default below `~/.cache`. A relative path counts as
    none (XDG base directories): `what` would be built wherever a command is run. Raises
    NoCacheFolder for a user without a home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        try:
            base = str(Path.home() / ".cache")
        except RuntimeError as error:
            raise NoCacheFolder(
                f"this user has no home directory to keep {what} in; set HOME, or XDG_CACHE_HOME "
                "to a directory that can be written"
            ) from error
    return Path(base) / "groundwire" / name
