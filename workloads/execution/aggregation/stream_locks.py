"""The locks of streams: a switch, or ports of it.

SHARP locks a tree before it streams (SHArP v3.0 release notes: streaming jobs lock exclusively).
The root of a group's tree takes all locks of its stream, in an order that is the same for all
groups, so that no two wait for each other. Locks are files of the run, as the aggregation manager
is beside the network: that takes no bytes, and no virtual time but the waiting. The first piece's
way up to the root and down again stands for the request that takes a tree.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path


class StreamLocks:
    """The locks of a run; `directory` is one that all its switches see."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextmanager
    def held(self, locks: Sequence[tuple[int, int]]) -> Iterator[None]:
        """Wait for all of them, and give them back at the end."""
        with ExitStack() as taken:
            for switch, port in locks:
                path = self._directory / f"stream.{switch}.{port}"
                # An open file of its own, as two of them exclude each other (flock(2)).
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
                taken.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
