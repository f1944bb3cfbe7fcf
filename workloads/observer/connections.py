"""The TCP connections of this process to other ranks."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Collection, Mapping, Sequence
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
    peers: Mapping[int, str], sockets: Sequence[Connection]
) -> dict[int, Connection]:
    """By rank, where there is just one connection to it. `peers` are the addresses of the other
    ranks, each its own."""
    ranks = {address: peer for peer, address in peers.items()}
    found: dict[int, list[Connection]] = {}
    for each in sockets:
        if each.address in ranks:
            found.setdefault(ranks[each.address], []).append(each)
    return {peer: ends[0] for peer, ends in found.items() if len(ends) == 1}


def new_sockets(seen: Collection[int]) -> tuple[list[Connection], set[int]]:
    """The connections that are none of those `seen` before, and all that there are, by their
    numbers in the kernel."""
    found, there = [], set()
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptor = int(name)
            status = os.fstat(descriptor)
            if not stat.S_ISSOCK(status.st_mode):
                continue
            if status.st_ino in seen:
                there.add(status.st_ino)
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
        there.add(status.st_ino)
        found.append(Connection(port, address, peer_port, info))
    return sorted(found), there
