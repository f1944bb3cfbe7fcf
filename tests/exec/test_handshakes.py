"""Ranks log of their handshakes what TCP measured of them."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from ipaddress import IPv4Address

import pytest

from workloads.execution import handshakes
from workloads.execution.handshakes import HandshakesHere
from workloads.observer.handshakes import Handshake, handshake_of

_STORE = 1
_HOSTS = {0: "10.0.0.1", 1: "10.0.0.2"}


def test_each_end_tells_what_it_measured() -> None:
    """The rank of the higher number connects, and sends first. Rank 0 is at 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0)) as one:
            accepted, _ = server.accept()
            with accepted:
                one.sendall(b"greeting")
                accepted.recv(8)
                addresses = {0: "127.0.0.1", 1: "127.0.0.2"}
                here = HandshakesHere(0, addresses, _STORE)
                found, again = here.of_new(), here.of_new()
                theirs = HandshakesHere(1, addresses, _STORE).of_new()
                (listens_us,) = struct.unpack_from("=I", _info(accepted), 68)
                rtt_us, least_us = _round_trips(_info(one))
    if not found:
        pytest.skip("the kernel does not tell of connections (CONFIG_INET_DIAG)")
    assert found == {1: Handshake(listens_us, None)}
    assert again == {}  # of connections that are new, those of a group that is made next
    (connects,) = theirs.values()
    assert connects.greeting_us is not None
    assert min(connects.handshake_us, connects.greeting_us) == least_us
    # RFC 6298: the second round trip counts an eighth.
    assert (7 * connects.handshake_us + connects.greeting_us) // 8 == rtt_us


def test_ranks_that_share_hosts_have_none() -> None:
    assert HandshakesHere(0, {0: "127.0.0.1", 1: "127.0.0.1"}, _STORE).of_new() == {}


def _info(end: socket.socket) -> bytes:
    return end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)


def _round_trips(info: bytes) -> tuple[int, int]:
    return struct.unpack_from("=I", info, 68)[0], struct.unpack_from("=I", info, 148)[0]


@pytest.mark.parametrize("sent", [1, 2])
def test_a_greeting_that_was_on_its_way_is_told_of_later(
    sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it is acknowledged, unless the connection has sent more by then: 4 us, and a greeting of
    5."""
    way, here = (IPv4Address("10.0.0.1"), 1000, 2000), HandshakesHere(1, _HOSTS, _STORE)
    asked = iter([_told_info(unacked=1, eighths=32, sent=1), _told_info(0, 33, sent)])

    def connections() -> list[tuple[int, IPv4Address, int, bytes]]:
        return [(way[1], way[0], way[2], next(asked))]

    monkeypatch.setattr(handshakes, "_connections", connections)
    assert here.of_new("default") == {0: Handshake(4, None)}
    assert here.of_late_greetings() == ({"default": {0: Handshake(4, 5)}} if sent == 1 else {})
    assert here.of_late_greetings() == {}


@pytest.mark.parametrize("grown", [0, 1])
def test_the_pace_of_bbr_tells_of_the_handshake(grown: int) -> None:
    """A handshake of 3 us and a greeting of 2: the smoothed round trip is 2, and the least one."""
    pace = (((10 << 24) // 3 * 4148 * 739 >> 8) * 990_000) >> 24
    info = _written_info({16: 4148, 68: 2, 80: 10 + grown, 148: 2}, pace)
    assert handshake_of(info, connected=True) == Handshake(3, 2)


def _told_info(unacked: int, eighths: int, sent: int) -> bytes:
    """struct tcp_info of a connection that is not paced, with a least round trip of 4 us."""
    told = {16: 4148, 24: unacked, 68: eighths // 8, 80: 10, 148: 4, 156: sent}
    return _written_info(told, 4148 * 16_000_000 * 10 // eighths)


def _written_info(numbers: Mapping[int, int], pace: int) -> bytes:
    info = bytearray(200)
    for at, value in numbers.items():
        struct.pack_into("=I", info, at, value)
    struct.pack_into("=Q", info, 104, pace)
    return bytes(info)
