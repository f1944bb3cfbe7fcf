"""TCP connections of a run, put together from captures that hold headers only.

Sequence numbers place every payload byte in its direction's stream whether the snap length
kept the byte or not. Bytes that were kept are available through `Direction.read`; where the bytes
of one connection were captured at several ports, any copy will do.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from analysis.decode.capture_view import CaptureView
from analysis.decode.tcp.pcap import Packets


@dataclass(frozen=True, order=True)
class Endpoint:
    """An IPv4 address (as a number) and a TCP port."""

    address: int
    port: int

    def __str__(self) -> str:
        octets = ".".join(str(self.address >> shift & 0xFF) for shift in (24, 16, 8, 0))
        return f"{octets}:{self.port}"


@dataclass(frozen=True)
class Direction:
    """One direction of a connection: a stream of bytes, parts of which were captured."""

    source: Endpoint
    destination: Endpoint
    views: tuple[CaptureView, ...]
    origin_known: bool
    """False when no capture holds the handshake: positions then count from the lowest seen."""
    length_bytes: int
    """Highest stream position seen."""
    windows: list[tuple[int, int, int, int]] = field(repr=False)
    """Captured runs of bytes, ascending: start, end, file, offset in that file's data."""
    window_ends: list[int] = field(repr=False)
    fresh_starts: list[int] = field(repr=False)
    """Positions from which on nothing had been seen before the segments of `fresh_times`."""
    fresh_times: list[int] = field(repr=False)
    holes: list[tuple[int, int]] = field(repr=False)
    """Parts of the stream of which no capture saw a packet, ascending."""
    files: Sequence[Packets] = field(repr=False)

    def read(self, position: int, count: int) -> bytes:
        """The captured bytes from `position` on: `count` of them, or fewer where cut."""
        parts = []
        index = bisect_right(self.window_ends, position)
        while count > 0 and index < len(self.windows):
            start, end, file, offset = self.windows[index]
            if start > position:
                break
            skip = position - start
            taken = min(end - position, count)
            data = self.files[file].data[offset + skip : offset + skip + taken]
            parts.append(data.tobytes())
            position += taken
            count -= taken
            index += 1
        return b"".join(parts)

    def runs_from(self, position: int) -> Iterator[tuple[int, bytes]]:
        """Every captured run that ends behind `position`: (start, bytes), ascending."""
        for index in range(bisect_right(self.window_ends, position), len(self.windows)):
            start, end, file, offset = self.windows[index]
            skip = max(0, position - start)
            yield (
                start + skip,
                self.files[file].data[offset + skip : offset + end - start].tobytes(),
            )

    def is_whole(self, start: int, end: int) -> bool:
        """Whether packets for all bytes from `start` to `end` were seen."""
        index = bisect_right(self.holes, (start, self.length_bytes))
        before = index > 0 and self.holes[index - 1][1] > start
        return not before and (index == len(self.holes) or self.holes[index][0] >= end)

    def time_ns(self, position: int) -> int:
        """When `position` or a later one was first seen, so that it was written by then; 0 where
        nothing was."""
        index = bisect_right(self.fresh_starts, position) - 1
        return self.fresh_times[max(index, 0)] if self.fresh_times else 0


@dataclass(frozen=True)
class TcpConnection:
    """One TCP connection: `forward` flows from the side that connected."""

    opened_ns: int
    forward: Direction
    backward: Direction

    @property
    def carried(self) -> bool:
        """Never."""
        return False

    @property
    def directions(self) -> tuple[Direction, Direction]:
        return self.forward, self.backward

    def __str__(self) -> str:
        return f"{self.forward.source} -> {self.forward.destination}"
