"""A rank has acknowledged what its store said before its collectives begin."""

from __future__ import annotations

import socket
import struct

import pytest

from workloads.execution.store_client import StoreClient

_OWN, _STORE = "127.0.0.2", "127.0.0.1"
_UNACKED = 24
"""tcpi_unacked of struct tcp_info (include/uapi/linux/tcp.h)"""


def test_the_last_answer_is_acknowledged_at_once() -> None:
    """A client that asks and is answered delays its acknowledgements by 40 ms."""
    with socket.create_server((_STORE, 0)) as server:
        port = server.getsockname()[1]
        client = StoreClient(_OWN, _STORE, port)
        with (
            socket.create_connection((_STORE, port), source_address=(_OWN, 0)) as asks,
            server.accept()[0] as answers,
        ):
            for _ in range(100):
                _exchange(asks, answers)
                waited = _unacknowledged(answers)
                assert client.acknowledge()
                if waited:  # else it took those 40 ms, or the connection is too young
                    assert not _unacknowledged(answers)
                    return
    pytest.skip("this kernel delays no acknowledgements")


def test_others_connections_are_left_alone() -> None:
    """That of another rank of the process, and one to another port."""
    with socket.create_server((_STORE, 0)) as server:
        port = server.getsockname()[1]
        clients = StoreClient(_OWN, _STORE, port + 1), StoreClient("127.0.0.3", _STORE, port)
        with socket.create_connection((_STORE, port), source_address=(_OWN, 0)):
            assert not any(each.acknowledge() for each in clients)


def _exchange(asks: socket.socket, answers: socket.socket) -> None:
    asks.sendall(b"what")
    answers.recv(4)
    answers.sendall(b"this")
    asks.recv(4)


def _unacknowledged(end: socket.socket) -> int:
    told = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    return int(struct.unpack_from("=I", told, _UNACKED)[0])
