"""The TCP connections of a process group: their ports say which way ECMP routers send them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

_ESTABLISHED = "01"


@dataclass(frozen=True, slots=True)
class Connection:
    """An established connection, seen from one end."""

    port: int
    peer_address: IPv4Address
    peer_port: int


def established(table: Path = Path("/proc/thread-self/net/tcp")) -> list[Connection]:
    """Established IPv4 connections of this thread's network namespace (proc(5), /proc/net/tcp)."""
    found = []
    for line in table.read_text().splitlines()[1:]:
        _, local, remote, state, *_ = line.split()
        if state == _ESTABLISHED:
            address, port = remote.split(":")
            # The kernel prints the address as a number in the machine's byte order.
            peer = IPv4Address(bytes.fromhex(address)[::-1])
            found.append(Connection(int(local.split(":")[1], 16), peer, int(port, 16)))
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
