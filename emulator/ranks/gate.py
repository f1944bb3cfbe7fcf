"""A gate at which the processes of several jobs wait for each other, to set out from a common
time."""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from workloads.execution.clock import round_time_ns, sleep_until_ns

# Far enough ahead for everybody to be asleep by then; a round time, so that what a process took to
# get ready moves nothing that follows.
_MARGIN_NS = 50_000_000
_GRID_NS = 100_000_000
_SEAT = struct.Struct("!I")
_TIME = struct.Struct("!q")


@dataclass(frozen=True, slots=True)
class Seat:
    """The owner of a waiting process: of which job, by name and number, which begins `start_ns`
    after the common time."""

    job: str
    number: int
    start_ns: int


class Gate:
    """Two pipes between a server and the processes that it forks.

    A rank is ready when its connections are made, a program before it is executed. When everybody
    is, the server says what the common time is. To be made before the fork.
    """

    def __init__(self) -> None:
        self._ready, self._tell_ready = os.pipe()
        self._origin, self._tell_origin = os.pipe()
        os.set_blocking(self._ready, False)

    # -- in a process ------------------------------------------------------------------------------

    def wait(self, seat: Seat) -> None:
        """Say that one is ready, and sleep until one's job begins."""
        os.write(self._tell_ready, _SEAT.pack(seat.number))
        (origin_ns,) = _TIME.unpack(os.read(self._origin, _TIME.size))
        sleep_until_ns(origin_ns + seat.start_ns)

    # -- in the server -----------------------------------------------------------------------------

    @property
    def descriptor(self) -> int:
        """Readable when somebody has become ready."""
        return self._ready

    def arrived(self) -> Counter[int]:
        """How many have become ready since the last call, by the number of their job."""
        found: Counter[int] = Counter()
        while True:
            try:
                data = os.read(self._ready, 1024 * _SEAT.size)
            except BlockingIOError:
                return found
            found.update(number for (number,) in _SEAT.iter_unpack(data))

    def open(self, waiting: Mapping[int, int]) -> int:
        """Let go so many of each job; returns the common time."""
        origin_ns = round_time_ns(_MARGIN_NS, _GRID_NS)
        for _ in range(sum(waiting.values())):
            os.write(self._tell_origin, _TIME.pack(origin_ns))
        return origin_ns
