"""Compute between collectives: a rank *sleeps* for the time that the named device would take.

The roofline itself is the spec's (`topologies.spec.compute_section`); with device `real` the rank
does that many operations on this machine's CPU instead.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from topologies.spec.compute_section import ComputeSpec
from workloads.execution.clock import now_ns, sleep_until_ns
from workloads.execution.events import EventLog

_TILE = 256


class ComputeModel:
    """The compute side of one rank."""

    def __init__(self, spec: ComputeSpec, log: EventLog) -> None:
        self._spec = spec
        self._log = log

    def run(
        self,
        name: str,
        phase: str,
        iteration: int,
        flops: int,
        moved_bytes: int,
        item_bytes: int,
        work: Callable[[], None] | None = None,
    ) -> None:
        """One kernel of `flops` operations that moves `moved_bytes`, on numbers of `item_bytes`.
        `work` is done meanwhile: with device `real` it is the kernel."""
        start_ns = now_ns()
        if work is not None:
            work()
        elif self._spec.device == "real":
            _compute_here(flops, moved_bytes)
        if self._spec.device != "real":
            self._sleep(start_ns, self._spec.time_ns(flops, moved_bytes, item_bytes))
        self._log.compute(name, phase, iteration, start_ns, now_ns(), flops, moved_bytes)

    def pause(self, name: str, phase: str, iteration: int, duration_ns: int) -> None:
        """A kernel whose duration is known, as in a recorded trace."""
        start_ns = now_ns()
        self._sleep(start_ns, duration_ns * self._spec.slowdown)
        self._log.compute(name, phase, iteration, start_ns, now_ns(), 0, 0)

    def _sleep(self, start_ns: int, duration_ns: int) -> None:
        if duration_ns > 0:
            sleep_until_ns(start_ns + duration_ns)


def _compute_here(flops: int, moved_bytes: int) -> None:
    tile = torch.ones(_TILE, _TILE)
    for _ in range(-(-flops // (2 * _TILE**3))):
        torch.mm(tile, tile)
    # A clone reads and writes: half the bytes each.
    torch.ones(max(moved_bytes // 2, 1), dtype=torch.uint8).clone()
