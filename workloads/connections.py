"""The TCP connections of a process group: their ports say which way ECMP routers send them."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address


@dataclass(frozen=True, slots=True)
class Connection:
    """An established connection, seen from one end."""

    port: int
    peer_address: IPv4Address
    peer_port: int


def established() -> list[Connection]:
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
                    address, peer_port = end.getpeername()
                    _, port = end.getsockname()
                    found.append(Connection(port, IPv4Address(address), peer_port))
    return found


def ports_to_later_ranks(
    rank: int, addresses: Mapping[int, str], store_port: int
) -> dict[int, tuple[int, int]]:
    """(this rank's port, the peer's) by higher rank, of the default group's full mesh.

    The TCPStore's own connections are left out. To be called before other groups connect: which
    of several connections to the same peer belongs to which group cannot be told afterwards.
    """
    peers = {IPv4Address(address): peer for peer, address in addresses.items() if peer > rank}
    return {
        peers[c.peer_address]: (c.port, c.peer_port)
        for c in established()
        if c.peer_address in peers and store_port not in (c.port, c.peer_port)
    }
