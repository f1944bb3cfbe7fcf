"""Round trips that TCP measured when ranks connected, in whole microseconds: windows grow by them
later."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from ipaddress import IPv4Address

from workloads.observer.handshakes import Handshake, handshake_of, sent_segments

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_NLM_F_REQUEST, _NLM_F_DUMP, _NLMSG_ERROR, _NLMSG_DONE = 0x1, 0x300, 2, 3
_INET_DIAG_INFO, _ESTABLISHED = 2, 1
"""sock_diag(7), include/net/tcp_states.h"""
_HEADER_BYTES, _MESSAGE_BYTES = 16, 72
"""struct nlmsghdr; struct inet_diag_msg"""
_RECEIVED_BYTES = 1 << 16


class HandshakesHere:
    """Those of the connections of the calling thread's network namespace with the hosts of other
    ranks. Each rank connects to those before it (gloo/context.cc)."""

    def __init__(self, rank: int, addresses: Mapping[int, str], store_port: int) -> None:
        self._rank, self._store_port = rank, store_port
        self._peers = {IPv4Address(each): peer for peer, each in addresses.items() if peer != rank}
        if len(set(addresses.values())) != len(addresses):
            self._peers = {}
        self._told: set[tuple[IPv4Address, int, int]] = set()
        self._greets: dict[tuple[IPv4Address, int, int], str] = {}
        """The groups of connections whose greeting had not been acknowledged yet."""

    def of_new(self, group: str = "") -> dict[int, Handshake]:
        """By peer, of the connections that were made since this was last asked: to be asked once
        for each group, when it has connected and before the next one is made. Nothing where ranks
        share hosts, or the kernel does not tell."""
        found: dict[int, Handshake] = {}
        if not self._peers:
            return found
        with suppress(OSError):
            for port, address, peer_port, info in _connections():
                peer, told = self._peers.get(address), (address, port, peer_port)
                if peer is None or self._store_port in told[1:] or told in self._told:
                    continue
                self._told.add(told)
                found[peer] = handshake_of(info, peer < self._rank)
                if peer < self._rank and found[peer].greeting_us is None:
                    self._greets[told] = group
        return found

    def of_late_greetings(self) -> dict[str, dict[int, Handshake]]:
        """By group and peer, of the connections whose greeting was not acknowledged when they
        were told of, but is now; those that have sent more by now no longer tell."""
        found: dict[str, dict[int, Handshake]] = {}
        if not self._greets:
            return found
        with suppress(OSError):
            for port, address, peer_port, info in _connections():
                group = self._greets.get((address, port, peer_port))
                if group is None or sent_segments(info) != 1:
                    continue
                told = handshake_of(info, connected=True)
                if told.greeting_us is not None:
                    found.setdefault(group, {})[self._peers[address]] = told
        self._greets.clear()
        return found


def _connections() -> Iterator[tuple[int, IPv4Address, int, bytes]]:
    """Own port, peer's address and port, and struct tcp_info, of all that are established."""
    wants, states = 1 << (_INET_DIAG_INFO - 1), 1 << _ESTABLISHED
    asked = struct.pack("=BBBxI48x", socket.AF_INET, socket.IPPROTO_TCP, wants, states)
    length, flags = _HEADER_BYTES + len(asked), _NLM_F_REQUEST | _NLM_F_DUMP
    header = struct.pack("=IHHII", length, _SOCK_DIAG_BY_FAMILY, flags, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
        netlink.send(header + asked)
        while True:
            data = netlink.recv(_RECEIVED_BYTES)
            at = 0
            while at < len(data):
                size, kind = struct.unpack_from("=IH", data, at)
                if kind in (_NLMSG_DONE, _NLMSG_ERROR):
                    return
                yield from _told(data[at + _HEADER_BYTES : at + size])
                at += (size + 3) & ~3


def _told(message: bytes) -> Iterator[tuple[int, IPv4Address, int, bytes]]:
    """struct inet_diag_msg has the ends after 4 bytes, ports first, in the network's order."""
    port, peer_port = struct.unpack_from("!HH", message, 4)
    peer = IPv4Address(message[24:28])
    at = _MESSAGE_BYTES
    while at + 4 <= len(message):
        size, kind = struct.unpack_from("=HH", message, at)
        if kind == _INET_DIAG_INFO:
            yield port, peer, peer_port, message[at + 4 : at + size]
        at += max(4, (size + 3) & ~3)
