"""Aggregation nodes whose death ranks survive: they go on by hosts (`when_lost: fall-back`)."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from emulator.ranks.aggregation.process import AggregationJob


class LosableNodes:
    """The nodes among the processes of a run, or of a job. When one dies, all others are ended, so
    that no tree is left half, and all ranks are told."""

    def __init__(self, processes: Iterable[object]) -> None:
        self._nodes = {
            each.rank: each for each in processes if isinstance(each, AggregationJob) and each.tells
        }
        self._over = False

    def lost(
        self, rank: int, pids: Mapping[int, int], report: Callable[[dict[str, object]], None]
    ) -> bool:
        """A process has ended badly; `pids` are those that are left, by number. Whether the run
        goes on without it: then it is reported."""
        node = self._nodes.get(rank)
        if node is None:
            return False
        if self._over:
            return True
        self._over = True
        report({"lost": node.plan.node.name, "at_ns": time.monotonic_ns()})
        for number in self._nodes:
            if number in pids:
                with suppress(ProcessLookupError):
                    os.kill(pids[number], signal.SIGKILL)
        told = (json.dumps({"lost": node.plan.node.name}) + "\n").encode()
        for pipe in node.tells:
            # For both ways, so that nobody is waited for: a rank may have ended (fifo(7)).
            descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
            os.write(descriptor, told)
            os.close(descriptor)
        return True
