"""The reduction unit of an aggregation node: one operation after the other, at its rate."""

from __future__ import annotations

from threading import Lock

from collectives.in_network.node import Aggregator
from workloads.execution.clock import now_ns, sleep_until_ns


class ReductionUnit:
    """Operations take it in the order in which their contributions are complete. What it adds to
    each, its latency, does not keep the next one waiting."""

    def __init__(self, node: Aggregator) -> None:
        self._node = node
        self._lock = Lock()
        self._free_ns = 0

    def take(self, size_bytes: int) -> None:
        """Sleep until an operation of so many bytes is through."""
        with self._lock:
            self._free_ns = max(now_ns(), self._free_ns) + self._node.occupied_ns(size_bytes)
            done_ns = self._free_ns + self._node.latency_ns
        sleep_until_ns(done_ns)
