"""What kernels that share a fabric keep in step by: a socket between each two, and a file."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

_NONE = -1
_64_BITS = 2**64 - 1


@dataclass(frozen=True)
class PeerSockets:
    """One kernel's. `sockets` are file descriptors by the index of the other kernel, -1 at its own
    place; `exchange` is that of a memory file, the same for all kernels. No frame from one kernel
    reaches another in less than `lookahead_ns`."""

    index: int
    lookahead_ns: int
    exchange: int
    sockets: tuple[int, ...]

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What the kernel's process must inherit."""
        return (self.exchange, *(fd for fd in self.sockets if fd != _NONE))

    @property
    def variable(self) -> str:
        """The value of UM_PEERS in the environment of the kernel's process."""
        fields = (self.index, len(self.sockets), self.lookahead_ns, self.exchange, *self.sockets)
        return ",".join(map(str, fields))


@contextmanager
def peer_sockets(count: int, lookahead_ns: int) -> Iterator[tuple[PeerSockets, ...]]:
    """Those of `count` kernels, by index. This process's are closed at the end of the context,
    which must come when all kernels have been started, and no later: a kernel knows by the end of
    a socket that another is gone."""
    with ExitStack() as held:
        exchange = os.memfd_create("groundwire-exchange")
        held.callback(os.close, exchange)
        ends = [[_NONE] * count for _ in range(count)]
        for low in range(count):
            for high in range(low + 1, count):
                pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
                for end in pair:
                    held.enter_context(end)
                ends[low][high], ends[high][low] = (end.fileno() for end in pair)
        yield tuple(
            PeerSockets(index, lookahead_ns, exchange, tuple(fds)) for index, fds in enumerate(ends)
        )


def seed_of(seed: int, index: int) -> int:
    """What seeds the random numbers of kernel `index`: for kernel 0 the seed itself, for the others
    an output of splitmix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number
    generators") that starts at the seed, so that no two kernels draw the same numbers."""
    if index == 0:
        return seed & _64_BITS
    mixed = (seed + index * 0x9E3779B97F4A7C15) & _64_BITS
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _64_BITS
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _64_BITS
    return mixed ^ mixed >> 31
