"""Where built kernels live: the user's cache folder, never the clone."""

import os
from pathlib import Path


def kernel_cache() -> Path:
    """`$XDG_CACHE_HOME/groundwire/kernel`, by default below `~/.cache` (XDG base directories)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "groundwire" / "kernel"
