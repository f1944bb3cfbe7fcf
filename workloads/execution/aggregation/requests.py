"""The collective that comes next, as the headers of SHARP's aggregation requests say it.

Whoever starts a collective tells the switch above it, which starts it too and tells the one above.
This goes beside the wire: it takes no bytes and, in virtual time, no time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from topologies.spec.workload_types import ReduceOp
from workloads.execution.aggregation.place import TreePlace


@dataclass(frozen=True, slots=True)
class Request:
    """The `number`th collective of a tree: what it is, and the first of its messages' tags."""

    number: int
    kind: str
    size_bytes: int
    element_bytes: int
    root: int
    dtype: str
    op: ReduceOp
    first_slot: int
    entry: dict[str, Any]


class Requests:
    """A participant's way to the switches above it; nothing is told at the root."""

    def __init__(self, place: TreePlace) -> None:
        # For both ways: to open it for writing alone would wait for its reader (fifo(7)).
        pipes = map(place.requests_of, place.above)
        self._above = [os.open(pipe, os.O_RDWR) for pipe in pipes]

    def tell(self, request: Request) -> None:
        """Say what comes next, to be called before it is started."""
        self._write(asdict(request))

    def leave(self) -> None:
        """Say that nothing comes any more."""
        self._write({})
        while self._above:
            os.close(self._above.pop())

    def _write(self, what: dict[str, Any]) -> None:
        for pipe in self._above:
            # In one piece: it is shorter than PIPE_BUF (pipe(7)).
            os.write(pipe, (json.dumps(what) + "\n").encode())


def heard(place: TreePlace) -> Iterator[Request]:
    """The requests that a switch is told, each collective once, in order, until all below have
    left."""
    # Open for writing as well, or it would be at its end whenever nobody else has it open.
    descriptor = os.open(place.requests_of(place.me), os.O_RDWR)
    present, known = len(place.children), 0
    try:
        with os.fdopen(descriptor, closefd=False) as lines:
            while present:
                told = json.loads(lines.readline())
                if not told:
                    present -= 1
                elif told["number"] == known:
                    known += 1
                    yield Request(**told)
    finally:
        os.close(descriptor)
