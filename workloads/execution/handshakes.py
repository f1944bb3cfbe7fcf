"""Round trips that TCP measured when ranks connected, in whole microseconds: windows grow by them
later."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_NLM_F_REQUEST, _NLM_F_DUMP, _NLMSG_ERROR, _NLMSG_DONE = 0x1, 0x300, 2, 3
_INET_DIAG_INFO, _ESTABLISHED = 2, 1
"""sock_diag(7), include/net/tcp_states.h"""
_HEADER_BYTES, _MESSAGE_BYTES = 16, 72
"""struct nlmsghdr; struct inet_diag_msg"""
_RECEIVED_BYTES = 1 << 16
_PACE = 80_000 * 200
"""tcp_update_pacing_rate: 2 * 2^3 * 10^6 bytes of a segment over eighths of the smoothed round trip
in microseconds, while the window is below half of ssthresh."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """Round trips in microseconds: of the handshake, and of the greeting's acknowledgement, at the
    end that connected; None where it had not come, or where the end listened."""

    handshake_us: int
    greeting_us: int | None


def handshakes_here(
    rank: int, addresses: Mapping[int, str], store_port: int
) -> dict[int, Handshake]:
    """By peer, of the connections of the calling thread's network namespace with the hosts of other
    ranks, which are to be of one group that has just connected. Each rank connects to those before
    it (gloo/context.cc). Nothing where ranks share hosts, or the kernel does not tell."""
    if len(set(addresses.values())) != len(addresses):
        return {}
    peers = {IPv4Address(address): peer for peer, address in addresses.items() if peer != rank}
    found: dict[int, Handshake] = {}
    with suppress(OSError):
        for port, peer_address, peer_port, info in _connections():
            peer = peers.get(peer_address)
            if peer is not None and store_port not in (port, peer_port):
                found[peer] = _handshake(info, peer < rank)
    return found


def _handshake(info: bytes, connected: bool) -> Handshake:
    """From struct tcp_info (include/uapi/linux/tcp.h). It has the smoothed round trip in whole
    microseconds; its eighths are what the pacing rate goes by."""
    segment_bytes, unacked = (struct.unpack_from("=I", info, at)[0] for at in (16, 24))
    rtt_us, cwnd, least_us = (struct.unpack_from("=I", info, at)[0] for at in (68, 80, 148))
    (rate,) = struct.unpack_from("=Q", info, 104)
    if not connected or unacked or not rate:
        return Handshake(rtt_us, None)
    eighths = next(
        (
            each
            for each in range(8 * rtt_us, 8 * rtt_us + 8)
            if each and segment_bytes * _PACE * cwnd // each == rate
        ),
        8 * rtt_us,
    )
    # The first one counts 7 eighths then, the second one 1; the least is one of both.
    first, left = divmod(eighths - least_us, 7)
    if left == 0 and first > least_us:
        return Handshake(first, least_us)
    return Handshake(least_us, max(least_us, eighths - 7 * least_us))


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
