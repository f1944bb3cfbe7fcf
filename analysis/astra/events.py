"""The clock: callbacks at integer nanoseconds, first in first out within one nanosecond."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Callback = Callable[[Any], None]


class EventQueue:
    """Runs callbacks in order of time and, within one time, of scheduling.

    ASTRA-sim's results depend on this order: who queues first on a link, which chunk enters a
    dimension first. An event scheduled for the time being processed runs in the same pass.
    """

    __slots__ = ("_buckets", "_times", "now")

    def __init__(self) -> None:
        self.now = 0
        self._buckets: dict[int, list[tuple[Callback, Any]]] = {}
        self._times: list[int] = []

    def at(self, time_ns: int, callback: Callback, argument: Any) -> None:
        """Call `callback(argument)` at `time_ns`, which must not be in the past."""
        bucket = self._buckets.get(time_ns)
        if bucket is None:
            self._buckets[time_ns] = [(callback, argument)]
            heappush(self._times, time_ns)
        else:
            bucket.append((callback, argument))

    def run(self) -> None:
        """Process events until none is left."""
        buckets, times = self._buckets, self._times
        while times:
            self.now = now = heappop(times)
            # The list may grow while it is walked: events for this very time.
            for callback, argument in buckets[now]:
                callback(argument)
            del buckets[now]

    def first_time(self) -> int | None:
        """When the next event is due; None if there is none."""
        return self._times[0] if self._times else None


class LocalEvents:
    """One rank's own events, grouped: all of one time run together, at the place in the global
    order where the first of them was scheduled."""

    __slots__ = ("_pending", "_queue")

    def __init__(self, queue: EventQueue) -> None:
        self._queue = queue
        self._pending: dict[int, list[tuple[Callback, Any]]] = {}

    @property
    def now(self) -> int:
        """The time, in nanoseconds."""
        return self._queue.now

    def after(self, delay_ns: int, callback: Callback, argument: Any) -> None:
        """Call `callback(argument)` in `delay_ns`; zero means later in this same nanosecond."""
        time_ns = self._queue.now + delay_ns
        pending = self._pending.get(time_ns)
        if pending is None:
            self._pending[time_ns] = [(callback, argument)]
            self._queue.at(time_ns, self._run, time_ns)
        else:
            pending.append((callback, argument))

    def _run(self, time_ns: int) -> None:
        for callback, argument in self._pending[time_ns]:
            callback(argument)
        del self._pending[time_ns]
