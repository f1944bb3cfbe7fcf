"""When a message is over, told by a thread that waits for it.

torch gives point-to-point works no future, so that otherwise a message ends when its rank gets to
waiting for it, which is later where a rank has several under way.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class WatchedWork:
    """A point-to-point work of torch's with what other works have: a future. `watchers` has a
    thread for each message under way."""

    def __init__(self, work: Any, watchers: ThreadPoolExecutor) -> None:
        self._work = work
        self._watchers = watchers
        self._over: Future[None] | None = None

    def get_future(self) -> WatchedWork:
        return self

    def add_done_callback(self, told: Callable[[object], None]) -> None:
        """Call `told` when the message is over; once."""

        def watch() -> None:
            self._work.wait()
            told(self)

        self._over = self._watchers.submit(watch)

    def wait(self) -> None:
        """Raises what the work raises."""
        assert self._over is not None
        self._over.result()
