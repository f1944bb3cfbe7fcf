"""The collectives that this rank has called last, in a file that outlives it however it ends.

Ranks that call different collectives fail by what Gloo happens to meet first, or wait for ever. Who
reads the files of all ranks afterwards can name the calls. `observer.py` beside this file loads it;
it imports nothing but the standard library and the module beside it.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from .operations import OPERATIONS, is_sparse

SLOT_BYTES = 128
_SLOTS = 64


class Posts:
    """A ring of lines: number in the group, group, kind, size in bytes, root. A size of -1 is one
    that differs between ranks by right, or is not known."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._written = 0

    def add(self, name: str, args: Any, label: str, ranks: int) -> None:
        """Operation `name` of `OPERATIONS` is about to be posted to a group."""
        kind, _, describe = OPERATIONS[name]
        size, root, uneven = (-1, 0, False) if describe is None else describe(args, ranks)
        if uneven or kind in ("gather", "scatter") or is_sparse(args[0]):
            size = -1
        with self._lock:
            number = self._counts.get(label, 0)
            self._counts[label] = number + 1
            line = f"{number} {label} {kind} {size} {root}".encode()[: SLOT_BYTES - 1]
            place = self._written % _SLOTS * SLOT_BYTES
            self._written += 1
            os.pwrite(self._file, line.ljust(SLOT_BYTES - 1) + b"\n", place)
