"""Watches a run with lossless queues for a deadlock, which TCP would sit out for hours."""

from __future__ import annotations

import threading
from collections.abc import Callable

from emulator.deadlock import Deadlock, find_deadlocks
from emulator.network import Network
from emulator.queues import headroom_bytes
from topologies.fabric import Fabric
from topologies.queue_spec import Lossless

_SHORTEST_INTERVAL_S = 0.05
_DRAINS = 4
"""Two looks are further apart than any pause that resolves itself: this many times what a port
needs to send all that may have come in by it."""


class DeadlockWatch:
    """Looks now and then, in the run's own time; two looks must agree. Use as a context manager."""

    def __init__(self, network: Network, on_deadlock: Callable[[Deadlock], None]) -> None:
        self._network = network
        self._on_deadlock = on_deadlock
        self._interval_s = _interval_s(network.fabric)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="deadlock-watch", daemon=True)

    def __enter__(self) -> DeadlockWatch:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        before: frozenset[Deadlock] = frozenset()
        while not self._done.wait(self._interval_s):
            now = frozenset(find_deadlocks(self._network))
            lasting = before & now
            if lasting:
                self._on_deadlock(min(lasting, key=str))
                return
            before = now


def _interval_s(fabric: Fabric) -> float:
    longest = _SHORTEST_INTERVAL_S
    for link in fabric.links:
        for queue in (link.a.queue, link.b.queue):
            if isinstance(queue, Lossless):
                held = queue.xoff_bytes + (queue.headroom_bytes or headroom_bytes(link))
                longest = max(longest, _DRAINS * held * 8 / link.rate_bps)
    return longest
