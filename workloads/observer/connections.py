"""The TCP connections of this process to other ranks."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from typing import NamedTuple

_TCP_INFO_BYTES = 256
"""More than struct tcp_info has (include/uapi/linux/tcp.h)."""


class Connection(NamedTuple):
    """A connection by its own port, and the address and port of the other end; `info` is what the
    kernel tells of it (struct tcp_info), nothing where it tells nothing."""

    port: int
    address: str
    peer_port: int
    info: bytes


def connections_of(
    rank: int, addresses: list[str], sockets: list[Connection]
) -> dict[int, Connection]:
    """By rank, where there is just one connection to it. `addresses` are those of all ranks, each
    its own; `sockets` as of `sockets_to`."""
    peers = {address: peer for peer, address in enumerate(addresses) if peer != rank}
    found: dict[int, list[Connection]] = {}
    for each in sockets:
        if each.address in peers:
            found.setdefault(peers[each.address], []).append(each)
    return {peer: ends[0] for peer, ends in found.items() if len(ends) == 1}


def sockets_to(addresses: set[str], stores: set[int]) -> list[Connection]:
    """Each connection to some addresses, but those of stores, which listen at the ports
    `stores`."""
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
                info = b""
                with suppress(OSError):
                    info = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        except OSError:
            continue  # it is closed by now, or not connected
        if address in addresses and not stores & {port, peer_port}:
            found.append(Connection(port, address, peer_port, info))
    return sorted(found)
