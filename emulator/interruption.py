"""Signals that end a command: Ctrl-C, a polite kill, a terminal that goes away."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

_INTERRUPTED = 128 + signal.SIGINT

_WORDS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "ended, as its terminal has gone",
}
# A second Ctrl-C so soon is the same wish, and would only disturb the cleaning up.
_SAME_WISH_S = 2.0
_TRY_AGAIN_S = 0.01


class _Heeded:
    """Signals become KeyboardInterrupt; `last` is the one that did.

    Python drops what is raised in some places (what runs at a fork, a finaliser, a callback of C)
    and goes on: there it is raised again a moment later.
    """

    def __init__(self) -> None:
        self.last = signal.SIGINT
        self._at_s = float("-inf")

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if now_s - self._at_s >= _SAME_WISH_S:
            self._at_s, self.last = now_s, signal.Signals(number)
            raise KeyboardInterrupt

    def on_dropped(self, dropped: sys.UnraisableHookArgs) -> None:
        """In place of sys.unraisablehook."""
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, _TRY_AGAIN_S)
        else:
            sys.__unraisablehook__(dropped)


def run_heeding_signals(body: Callable[[], None]) -> None:
    """Run `body`, in which SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt, so that whatever it
    has made is cleaned up. If that ends it, say so on stderr and exit with 128 and the signal's
    number."""
    heeded = _Heeded()
    for number in _WORDS:
        # SIGINT also in a shell's background job, which starts with interrupts ignored; but who
        # starts us with SIGHUP ignored (nohup) means it.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, heeded.on_signal)
    signal.signal(signal.SIGALRM, signal.default_int_handler)  # it raises KeyboardInterrupt
    sys.unraisablehook = heeded.on_dropped
    try:
        body()
        return
    except BaseException as end:
        if not is_interrupt(end):
            raise
    with suppress(OSError):  # the terminal may have gone
        print(f"groundwire: {_WORDS[heeded.last]}", file=sys.stderr, flush=True)
    # Python's own ending would meet a second signal, and has its own view of who was interrupted.
    os._exit(128 + heeded.last)


def is_interrupt(end: BaseException) -> bool:
    """Whether a signal is behind this: typer makes an exit code of it, Python a RuntimeError while
    it makes a class, and who cleans up without a terminal meets an OSError."""
    if isinstance(end, SystemExit):
        return end.code == _INTERRUPTED
    found: BaseException | None = end
    while found is not None and not isinstance(found, KeyboardInterrupt):
        found = found.__cause__ or found.__context__
    return found is not None


def leave_signals_to_parent() -> None:
    """Called by a child that its parent ends: a terminal and a service manager send these signals
    to all processes of a command."""
    for number in _WORDS:
        signal.signal(number, signal.SIG_IGN)
