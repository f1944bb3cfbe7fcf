"""Streams that wait for switches, or ports of these, as aggregation nodes have it
(`workloads.execution.aggregation.stream_locks`)."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Lock = tuple[int, int]
Stream = tuple[int, int]
"""A collective, and its chunk."""


@dataclass(slots=True)
class _Stream:
    locks: Sequence[Lock]
    granted: Callable[[float], None]
    taken: int = 0


class StreamQueues:
    """The holders of locks. A stream takes its locks one by one and keeps those that it has while
    it waits for the next; the stream that has waited longest gets a lock."""

    def __init__(self) -> None:
        self._streams: dict[Stream, _Stream] = {}
        self._holder: dict[Lock, Stream] = {}
        self._waiting: defaultdict[Lock, deque[Stream]] = defaultdict(deque)

    def ask(
        self, stream: Stream, locks: Sequence[Lock], granted: Callable[[float], None], now: float
    ) -> None:
        """A stream wants all of these; `granted` is called with the time at which it has them."""
        self._streams[stream] = _Stream(locks, granted)
        self._go_on(stream, now)

    def give_back(self, stream: Stream, now: float) -> None:
        """A stream is over."""
        for lock in self._streams.pop(stream).locks:
            del self._holder[lock]
            if self._waiting[lock]:
                self._go_on(self._waiting[lock].popleft(), now)

    def _go_on(self, key: Stream, now: float) -> None:
        stream = self._streams[key]
        while stream.taken < len(stream.locks):
            lock = stream.locks[stream.taken]
            if lock in self._holder:
                self._waiting[lock].append(key)
                return
            self._holder[lock] = key
            stream.taken += 1
        stream.granted(now)
