"""Signals that end a command (Ctrl-C, a polite kill, a terminal that goes away), and those that end
a child with its parent (prctl(2), PR_SET_PDEATHSIG)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

_INTERRUPTED = 128 + signal.SIGINT

_DESCRIPTIONS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "ended, as its terminal has gone",
}
# A second Ctrl-C so soon is the same request; it would only disturb the cleaning up.
_REPEAT_WINDOW_S = 2.0
_RETRY_S = 0.01
_PR_SET_PDEATHSIG = 1

# Loaded here, as a child between fork and exec must not load anything.
_libc = ctypes.CDLL(None)


class _SignalHandler:
    """Turns signals into KeyboardInterrupt; `last` is the latest one.

    Python drops exceptions that are raised in some places (at a fork, in a finaliser, in a callback
    of C) and goes on. Such an exception is raised again a moment later.
    """

    def __init__(self) -> None:
        self.last = signal.SIGINT
        self._at_s = float("-inf")

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if now_s - self._at_s >= _REPEAT_WINDOW_S:
            self._at_s, self.last = now_s, signal.Signals(number)
            raise KeyboardInterrupt

    def on_dropped(self, dropped: sys.UnraisableHookArgs) -> None:
        """In place of sys.unraisablehook."""
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, _RETRY_S)
        else:
            sys.__unraisablehook__(dropped)


def run_interruptible(body: Callable[[], None]) -> None:
    """Run `body`. SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt in it, so that it cleans up
    what it has made. If one of them ends it, say so on stderr and exit with 128 + the signal's
    number."""
    handler = _SignalHandler()
    for number in _DESCRIPTIONS:
        # A shell's background job starts with SIGINT ignored: handle it there too. But SIGHUP that
        # is ignored at the start (nohup) stays ignored.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler.on_signal)
    signal.signal(signal.SIGALRM, signal.default_int_handler)  # it raises KeyboardInterrupt
    sys.unraisablehook = handler.on_dropped
    try:
        body()
        return
    except BaseException as end:
        if not is_interrupt(end):
            raise
    with suppress(OSError):  # the terminal may have gone
        print(f"groundwire: {_DESCRIPTIONS[handler.last]}", file=sys.stderr, flush=True)
    # Not sys.exit(): a second signal could interrupt Python's own shutdown.
    os._exit(128 + handler.last)


def is_interrupt(end: BaseException) -> bool:
    """Whether a signal caused this exception. Typer turns it into an exit code, Python into a
    RuntimeError while a class is made, and cleaning up without a terminal into an OSError."""
    if isinstance(end, SystemExit):
        return end.code == _INTERRUPTED
    found: BaseException | None = end
    while found is not None and not isinstance(found, KeyboardInterrupt):
        found = found.__cause__ or found.__context__
    return found is not None


def ignore_ending_signals() -> None:
    """Called by a child whose parent ends it. A terminal and a service manager send these signals
    to all processes of a command, and the parent handles them."""
    for number in _DESCRIPTIONS:
        signal.signal(number, signal.SIG_IGN)


def end_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Called by the child: the kernel sends it this signal when its parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
