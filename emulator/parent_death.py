"""A child process that does not outlive the one that started it (prctl(2), PR_SET_PDEATHSIG)."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1

# Loaded here, as a child between fork and exec must not load anything.
_libc = ctypes.CDLL(None)


def end_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Called by the child: the kernel sends it this signal when its parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
