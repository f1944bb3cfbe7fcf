"""The TCP connections of each process group, as they come with it.

Which of several connections of two ranks belongs to which group cannot be told afterwards, so they
are looked for whenever a group has been made. `observer.py` beside this file loads it; it imports
nothing but the standard library and the modules beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from .connections import Connection, connections_of, new_sockets
from .handshakes import handshake_of


class GroupSockets:
    """The connections of one rank. `addresses` are those of all ranks' hosts, `store_port` is where
    their store listens."""

    def __init__(self, addresses: Sequence[str], store_port: int) -> None:
        self._addresses, self._store_port = addresses, store_port
        self._seen: set[int] = set()
        self._made: list[list[Connection]] = []

    def pass_by(self) -> None:
        """A group is about to be made: the connections that there are belong to no further one."""
        self._made.clear()
        self._new()

    def made(self) -> None:
        """Each two ranks of the group that is being made have one connection more."""
        self._made.append(self._new())

    def lines(self, label: str, ranks: Sequence[int], rank: int) -> Iterator[dict[str, Any]]:
        """The lines of the log of `rank` for a group that has been made, of these ranks. Those of
        further connections have the group's label with a number (docs/formats.md)."""
        if not self._made:
            self.made()
        stores = {self._store_port, int(os.environ.get("MASTER_PORT") or 0)}
        for number, sockets in enumerate(self._made):
            name = f"{label}#{number}" if number else label
            own = [each for each in sockets if not stores & {each.port, each.peer_port}]
            yield from self._lines(name, ranks, rank, own)
        self._made.clear()

    def _lines(
        self, name: str, ranks: Sequence[int], rank: int, sockets: Sequence[Connection]
    ) -> Iterator[dict[str, Any]]:
        peers = {each: self._addresses[each] for each in ranks if each != rank}
        if len(set(self._addresses)) < len(self._addresses):
            # Which of the ranks of a host is at the other end, its own log tells.
            others = set(peers.values()) - {self._addresses[rank]}
            for each in sockets:
                if each.address in others:
                    ports = {"port": each.port, "peer_port": each.peer_port}
                    ends = {"peer_address": each.address} | ports
                    yield {"event": "socket", "group": name} | ends
            return
        for peer, end in sorted(connections_of(peers, sockets).items()):
            told = {"group": name, "peer": peer}
            if peer > rank:
                ports = {"port": end.port, "peer_port": end.peer_port}
                yield {"event": "connection"} | told | ports
            # The rank of the higher number in the group connects (gloo/transport/tcp/device.cc).
            if end.info:
                connected = ranks.index(peer) < ranks.index(rank)
                yield {"event": "handshake"} | told | handshake_of(end.info, connected)._asdict()

    def _new(self) -> list[Connection]:
        found, self._seen = new_sockets(self._seen)
        return found
