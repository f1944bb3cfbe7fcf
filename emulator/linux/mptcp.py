"""MPTCP's path manager in user space: events of the connections of a network namespace, and the
subflows that they are to have besides (include/uapi/linux/mptcp_pm.h)."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from emulator.linux.messages import formats
from emulator.linux.netlink import NetlinkSocket, Request, parse_attributes, request

SYSCTLS = Path("/proc/sys/net/mptcp")
"""There where the kernel has MPTCP."""

NETLINK_GENERIC = 16
_HEADER_BYTES = 4  # struct genlmsghdr
_FAMILY, _EVENTS = b"mptcp_pm\0", b"mptcp_pm_events\0"
_LOCAL_ID = 1
"""The number of the address of further subflows. That of the first one is 0 (RFC 8684, 3.2)."""

_ESTABLISHED, _SUBFLOW_ESTABLISHED, _SUBFLOW_CLOSED = 2, 10, 11
"""enum mptcp_event_type."""


@dataclass(frozen=True, slots=True)
class Ends:
    """A connection or a subflow, from the end that tells of it."""

    local: IPv4Address
    local_port: int
    remote: IPv4Address
    remote_port: int


@dataclass(frozen=True, slots=True)
class Established:
    """A connection that may have further subflows from now on. `accepted`: the other end asked for
    it. It has the number `token` in its namespace until it is closed."""

    token: int
    ends: Ends
    accepted: bool


@dataclass(frozen=True, slots=True)
class Joined:
    """A further subflow of a connection that carries data from now on."""

    token: int
    ends: Ends


@dataclass(frozen=True, slots=True)
class Left:
    """A subflow of a connection that is closed."""

    token: int
    ends: Ends


Event = Established | Joined | Left


@dataclass(frozen=True, slots=True)
class Family:
    """The numbers that the kernel has given the messages, and the group of events."""

    number: int
    events: int

    @classmethod
    def here(cls) -> Family:
        """Those of the kernel at hand. Raises OSError: it has no MPTCP."""
        with NetlinkSocket(NETLINK_GENERIC) as netlink:
            bodies = netlink.dump(request(formats.GENERIC_FAMILIES, "list netlink's families"))
        for body in bodies:
            found = parse_attributes(body, _HEADER_BYTES)
            if found.get(formats.CTRL_ATTR_FAMILY_NAME) != _FAMILY:
                continue
            for group in parse_attributes(found[formats.CTRL_ATTR_MCAST_GROUPS]).values():
                named = parse_attributes(group)
                if named[formats.CTRL_ATTR_MCAST_GRP_NAME] == _EVENTS:
                    return cls(
                        _native(found[formats.CTRL_ATTR_FAMILY_ID]),
                        _native(named[formats.CTRL_ATTR_MCAST_GRP_ID]),
                    )
        raise OSError(errno.ENOPROTOOPT, "the kernel has no MPTCP with path managers")


class PathEvents:
    """The events of the network namespace in which the calling thread is when it is made.

    Raises OSError."""

    def __init__(self, family: Family) -> None:
        self._family = family
        self._socket = NetlinkSocket(NETLINK_GENERIC)
        self._socket.join(family.events)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def read(self) -> Iterator[Event]:
        """Those that have come; waits for the first one. Events of other kinds are left out. Raises
        OSError: some were lost."""
        for kind, body in self._socket.messages():
            if kind != self._family.number:
                continue
            event = _event(body)
            if event is not None:
                yield event


def subflow(family: Family, connection: Established) -> Request:
    """One more subflow of a connection, between the same addresses and to the same port, from a
    port that the kernel chooses."""
    ends = connection.ends
    filled = request(
        formats.SUBFLOW,
        f"a subflow from {ends.local} to {ends.remote}:{ends.remote_port}",
        connection.token,
        _LOCAL_ID,
        ends.local.packed,
        ends.remote.packed,
        ends.remote_port,
    )
    return Request(family.number, filled.flags, filled.payload, filled.what)


def _event(body: bytes) -> Event | None:
    kind = body[0]
    if kind not in (_ESTABLISHED, _SUBFLOW_ESTABLISHED, _SUBFLOW_CLOSED):
        return None
    found = parse_attributes(body, _HEADER_BYTES)
    if _native(found[formats.MPTCP_ATTR_FAMILY]) != socket.AF_INET:
        return None
    token = _native(found[formats.MPTCP_ATTR_TOKEN])
    ends = Ends(
        IPv4Address(found[formats.MPTCP_ATTR_SADDR4]),
        int.from_bytes(found[formats.MPTCP_ATTR_SPORT], "big"),
        IPv4Address(found[formats.MPTCP_ATTR_DADDR4]),
        int.from_bytes(found[formats.MPTCP_ATTR_DPORT], "big"),
    )
    if kind == _ESTABLISHED:
        return Established(token, ends, bool(found.get(formats.MPTCP_ATTR_SERVER_SIDE, b"\0")[0]))
    return Joined(token, ends) if kind == _SUBFLOW_ESTABLISHED else Left(token, ends)


def _native(value: bytes) -> int:
    return int.from_bytes(value, "little")
