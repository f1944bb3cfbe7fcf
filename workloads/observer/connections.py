"""The TCP connections of this process to other ranks."""

from __future__ import annotations

import os
import socket
import stat


def connections_of(
    rank: int, addresses: list[str], sockets: list[tuple[int, str, int]]
) -> dict[int, tuple[int, int]]:
    """(own port, the peer's) by rank above this one, where there is just one connection.
    `addresses` are those of all ranks, each its own; `sockets` as of `sockets_to`."""
    peers = {address: peer for peer, address in enumerate(addresses) if peer > rank}
    found: dict[int, list[tuple[int, int]]] = {}
    for port, address, peer_port in sockets:
        if address in peers:
            found.setdefault(peers[address], []).append((port, peer_port))
    return {peer: ends[0] for peer, ends in found.items() if len(ends) == 1}


def sockets_to(addresses: set[str], stores: set[int]) -> list[tuple[int, str, int]]:
    """(own port, address and port of the other end) of each connection to some addresses, but those
    of stores, which listen at the ports `stores`."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptor = int(name)
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as end:
                if (end.family, end.type) != (socket.AF_INET, socket.SOCK_STREAM):
                    continue
                address, peer_port = end.getpeername()
                port = end.getsockname()[1]
        except OSError:
            continue  # it is closed by now, or not connected
        if address in addresses and not stores & {port, peer_port}:
            found.append((port, address, peer_port))
    return sorted(found)
