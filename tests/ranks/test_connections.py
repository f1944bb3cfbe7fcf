"""A rank knows the ports of its connections from its own sockets."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from workloads.execution.connections import (
    EstablishedConnection,
    established,
    established_here,
    ports_to_later_ranks,
)

_Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pairs() -> Iterator[list[_Pair]]:
    """(Connecting end, accepted end) of connections to 127.0.0.2, .3, .4 and .2 again."""
    with ExitStack() as held:
        made = []
        for last in (2, 3, 4, 2):
            listener = held.enter_context(socket.create_server((f"127.0.0.{last}", 0)))
            client = held.enter_context(socket.create_connection(listener.getsockname()))
            accepted, _ = listener.accept()
            made.append((client, held.enter_context(accepted)))
        yield made


def _connection(end: socket.socket) -> EstablishedConnection:
    address, port = end.getsockname()
    peer, peer_port = end.getpeername()
    return EstablishedConnection(IPv4Address(address), port, IPv4Address(peer), peer_port)


def test_all_connections_and_nothing_else(pairs: list[_Pair], tmp_path: Path) -> None:
    ends = [_connection(end) for pair in pairs for end in pair]
    with (
        open(tmp_path / "file", "w"),
        socket.socket(),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_UNIX) as local,
    ):
        datagrams.connect(("127.0.0.2", 9))
        local.bind(str(tmp_path / "local"))
        opened = os.listdir("/proc/self/fd")
        assert set(established()) >= set(ends)
        assert not any(c.peer_port == 9 for c in established())
        assert set(established_here()) >= set(ends)
        assert os.listdir("/proc/self/fd") == opened


def test_ports_by_later_rank_without_the_store(pairs: list[_Pair]) -> None:
    clients = [client for client, _ in pairs]
    mine = [(end.getsockname()[1], end.getpeername()[1]) for end in clients]
    store_port = mine[3][1]
    addresses = {0: "127.0.0.2", 1: "127.0.0.9", 2: "127.0.0.3", 3: "127.0.0.4"}
    ends = established()
    assert ports_to_later_ranks(ends, 1, addresses, store_port) == {2: mine[1], 3: mine[2]}
    assert ports_to_later_ranks(ends, -1, addresses, store_port)[0] == mine[0]
