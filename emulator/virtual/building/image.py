"""A built kernel."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class KernelImage:
    """A built kernel: the program to run, and where its symbols are."""

    path: Path
    symbols: Path
    key: str
