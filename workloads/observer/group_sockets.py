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
from .handshakes import handshake_of, unacknowledged
from .pace import let_pass

_LOOK_NS, _MOST_LOOKS = 1_000, 1_000
"""How often it is looked whether a greeting is acknowledged, and at most: round trips of fabrics
are microseconds. Longer ones stay unknown."""


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

    def await_greetings(self) -> None:
        """Wait, in virtual time, until what this rank sent first over each new connection is
        acknowledged: what TCP measures of it is then known, and the same in every run."""
        for _ in range(_MOST_LOOKS):
            sockets, _ = new_sockets(self._seen)
            if not any(unacknowledged(end.info) for end in self._of_ranks(sockets)):
                return
            let_pass(_LOOK_NS)

    def _of_ranks(self, sockets: Sequence[Connection]) -> list[Connection]:
        """Those that are none of a store's."""
        stores = {self._store_port, int(os.environ.get("MASTER_PORT") or 0)}
        return [each for each in sockets if not stores & {each.port, each.peer_port}]

    def made(self) -> None:
        """Each two ranks of the group that is being made have one connection more."""
        self._made.append(self._new())

    def lines(self, label: str, ranks: Sequence[int], rank: int) -> Iterator[dict[str, Any]]:
        """The lines of the log of `rank` for a group that has been made, of these ranks. Those of
        further connections have the group's label with a number (docs/formats.md)."""
        if not self._made:
            self.made()
        for number, sockets in enumerate(self._made):
            name = f"{label}#{number}" if number else label
            yield from self._lines(name, ranks, rank, self._of_ranks(sockets))
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
