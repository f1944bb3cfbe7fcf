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
    """A participant's way to the switch above it; nothing is told at the root."""

    def __init__(self, place: TreePlace) -> None:
        self._above: int | None = None
        if place.parent is not None:
            # For both ways: to open it for writing alone would wait for its reader (fifo(7)).
            self._above = os.open(place.requests_of(place.parent), os.O_RDWR)

    def tell(self, request: Request) -> None:
        """Say what comes next, to be called before it is started."""
        self._write(asdict(request))

    def leave(self) -> None:
        """Say that nothing comes any more."""
        self._write({})
        if self._above is not None:
            os.close(self._above)
            self._above = None

    def _write(self, what: dict[str, Any]) -> None:
        if self._above is not None:
            # In one piece: it is shorter than PIPE_BUF (pipe(7)).
            os.write(self._above, (json.dumps(what) + "\n").encode())


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
