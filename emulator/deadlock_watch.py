"""Watches a run with lossless queues for a deadlock, which TCP would sit out for hours."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

from emulator.deadlock import Deadlock, Dependency, find_deadlocks, read_dependencies, rings
from emulator.network import Network
from emulator.notices import Notices
from emulator.queues import headroom_bytes
from topologies.fabric import Fabric
from topologies.queue_spec import Lossless
from workloads.clock import now_ns, round_time_ns, sleep_until_ns

_SHORTEST_INTERVAL_S = 0.05
_DRAINS = 4
"""Two looks are further apart than any pause that resolves itself: this many times what a port
needs to send all that may have come in by it."""
_MARGIN_NS = 1_000_000
"""A look is not prepared for exactly the instant at which it is due."""


class DeadlockWatch:
    """Looks now and then, in the run's own time; two looks must agree. Use as a context manager.

    With `notices`, kernels that share the fabric look at the same instants, and tell each other
    which ports wait for each other.
    """

    def __init__(
        self,
        network: Network,
        on_deadlock: Callable[[Deadlock], None],
        notices: Notices | None = None,
    ) -> None:
        self._network = network
        self._on_deadlock = on_deadlock
        self._notices = notices
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
        look = self._look if self._notices is None else self._look_together
        before: frozenset[Deadlock] = frozenset()
        while (now := look()) is not None:
            lasting = before & now
            if lasting:
                self._on_deadlock(min(lasting, key=str))
                return
            before = now

    def _look(self) -> frozenset[Deadlock] | None:
        """After the interval; None when the watch is over."""
        if self._done.wait(self._interval_s):
            return None
        return frozenset(find_deadlocks(self._network))

    def _look_together(self) -> frozenset[Deadlock] | None:
        assert self._notices is not None
        interval_ns = max(round(self._interval_s * 1e9), 2 * self._notices.takes_ns)
        at_ns = round_time_ns(_MARGIN_NS, interval_ns)
        if self._done.wait((at_ns - _MARGIN_NS - now_ns()) / 1e9):
            return None
        sleep_until_ns(at_ns)
        own = [[d.priority, d.paused, d.until] for d in read_dependencies(self._network)]
        told = self._notices.exchange(json.dumps(sorted(own)) if own else "", at_ns)
        return frozenset(
            rings(Dependency(*row) for text in told if text for row in json.loads(text))
        )


def _interval_s(fabric: Fabric) -> float:
    longest = _SHORTEST_INTERVAL_S
    for link in fabric.links:
        for queue in (link.a.queue, link.b.queue):
            if isinstance(queue, Lossless):
                held = queue.xoff_bytes + (queue.headroom_bytes or headroom_bytes(link))
                longest = max(longest, _DRAINS * held * 8 / link.rate_bps)
    return longest
