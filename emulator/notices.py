"""What kernels that share a run tell each other while it goes on, in files on the host."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from workloads.clock import sleep_until_ns

_SETTLED_NS = 1_000_000


class Notices:
    """Kernel `kernel`'s end; each kernel writes to its own of the `directories`.

    No kernel is ahead of another by more than the lookahead. So who waits for longer than that
    finds what all of them have written at the instant from which it has waited, on every run.
    """

    def __init__(self, directories: Sequence[Path], kernel: int, lookahead_ns: int) -> None:
        self._directories = directories
        self._kernel = kernel
        self.takes_ns = lookahead_ns + _SETTLED_NS
        self._last: Path | None = None

    def exchange(self, text: str, at_ns: int) -> list[str]:
        """What the kernels say at `at_ns`, which is now in all of them; by kernel, "" of those that
        said nothing. Takes `takes_ns`; that must have passed before the next one. Raises OSError.
        """
        if self._last is not None:
            self._last.unlink()
            self._last = None
        if text:
            self._last = self._path(self._kernel, at_ns)
            with self._last.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())  # the guest's own memory of the file is not the host's
        sleep_until_ns(at_ns + self.takes_ns)
        return [self._read(kernel, at_ns) for kernel in range(len(self._directories))]

    def _path(self, kernel: int, at_ns: int) -> Path:
        return self._directories[kernel] / f"notice-{at_ns}"

    def _read(self, kernel: int, at_ns: int) -> str:
        try:
            return self._path(kernel, at_ns).read_text()
        except FileNotFoundError:
            return ""
