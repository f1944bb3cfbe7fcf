"""The TCP connections of a process group: their ports say which way ECMP routers send them."""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address

_TCP_ESTABLISHED, _TCP_LISTEN = 1, 10
"""include/net/tcp_states.h"""


@dataclass(frozen=True, slots=True)
class EstablishedConnection:
    """An established connection, seen from one end, which is at `address`."""

    address: IPv4Address
    port: int
    peer_address: IPv4Address
    peer_port: int


def established() -> list[EstablishedConnection]:
    """This process's established IPv4 TCP connections.

    From its own sockets: the kernel's table of all connections has as many rows as there is memory
    for, and each reader goes over all of them.
    """
    found = []
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        # It may be closed meanwhile (the listing's own is), or not be connected.
        with suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as end:
                if (end.family, end.type) == (socket.AF_INET, socket.SOCK_STREAM):
                    peer, peer_port = end.getpeername()
                    address, port = end.getsockname()
                    found.append(
                        EstablishedConnection(
                            IPv4Address(address), port, IPv4Address(peer), peer_port
                        )
                    )
    return found


def listening_here() -> set[int]:
    """The ports at which the calling thread's network namespace listens for IPv4 TCP."""
    return {_end(here)[1] for state, here, _ in _sockets_here() if state == _TCP_LISTEN}


def established_here() -> list[EstablishedConnection]:
    """The established IPv4 TCP connections of the calling thread's network namespace.

    From the kernel's table (proc(5), /proc/net/tcp: addresses are hexadecimal, in the order of
    bytes of this machine). A rank that is one of many threads of a process would otherwise look at
    the sockets of all of them, which are so many calls that it counts as a poller.
    """
    return [
        EstablishedConnection(*_end(here), *_end(there))
        for state, here, there in _sockets_here()
        if state == _TCP_ESTABLISHED
    ]


def _sockets_here() -> Iterator[tuple[int, str, str]]:
    """State and ends of the calling thread's network namespace's sockets."""
    with open("/proc/thread-self/net/tcp", encoding="ascii") as table:
        next(table)
        for line in table:
            _, here, there, state, *_ = line.split()
            yield int(state, 16), here, there


def _end(text: str) -> tuple[IPv4Address, int]:
    address, _, port = text.partition(":")
    return IPv4Address(int(address, 16).to_bytes(4, sys.byteorder)), int(port, 16)


def ports_to_later_ranks(
    connections: Iterable[EstablishedConnection],
    rank: int,
    addresses: Mapping[int, str],
    store_port: int,
) -> dict[int, tuple[int, int]]:
    """(this rank's port, the peer's) by higher rank, of a group's full mesh.

    The TCPStore's own connections are left out. `connections` are those that came with the group:
    which of several to the same peer belongs to which group cannot be told afterwards.
    """
    peers = {IPv4Address(address): peer for peer, address in addresses.items() if peer > rank}
    return {
        peers[c.peer_address]: (c.port, c.peer_port)
        for c in connections
        if c.peer_address in peers and store_port not in (c.port, c.peer_port)
    }
