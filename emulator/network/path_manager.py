"""The path manager of MPTCP's connections on a network's hosts: each gets so many subflows, between
the same addresses, from ports of their own, so that routers which hash ports give them paths of
their own.

Linux's own path manager makes subflows between further addresses, which hosts do not have, or to
further ports, which both ends announce: then both make subflows at once, and each refuses those of
the other that exceed the limit. So this is one in user space, as mptcpd is. The end that asked for
a connection adds to it. The other end's namespace has one too, without which its kernel lets
nobody join.
"""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import IPv4Address

from emulator.linux.mptcp import (
    NETLINK_GENERIC,
    Established,
    Event,
    Family,
    Joined,
    Left,
    PathEvents,
    subflow,
)
from emulator.linux.netlink import NetlinkError, NetlinkSocket

_GONE = (errno.EINVAL, errno.ENOTCONN, errno.ESRCH)
"""The kernel says so of a connection that has closed before its subflow is made."""


@dataclass(frozen=True, slots=True)
class Subflow:
    """A further subflow, from the host that asked for it; the connection's first one goes from
    `first_port` to the same port."""

    host: str
    peer: str
    first_port: int
    port: int
    peer_port: int


@dataclass
class Counts:
    """Connections that hosts have asked for, their further subflows, those that could not be made
    though the connection was there, and those that closed."""

    connections: int = 0
    subflows: int = 0
    refused: int = 0
    closed: int = 0


class _Host:
    """A host's events and requests, from within its network namespace."""

    def __init__(self, name: str, family: Family) -> None:
        self.name = name
        self.events = PathEvents(family)
        self.requests = NetlinkSocket(NETLINK_GENERIC)
        self.connections: dict[int, Established] = {}
        """Those that it asked for, by token."""

    def close(self) -> None:
        self.events.close()
        self.requests.close()


class PathManager:
    """Gives each connection `subflows` of them, from `start` to `stop`, on a thread of its own."""

    def __init__(self, names: Mapping[IPv4Address, str], subflows: int) -> None:
        """`names` has the host of each address. Raises OSError: the kernel has no MPTCP."""
        self._names, self._further = names, subflows - 1
        self._family = Family.here()
        self._hosts: dict[int, _Host] = {}
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._held = ExitStack()
        self._held.callback(os.close, self._stop)
        self._thread = threading.Thread(target=self._manage, name="path-manager", daemon=True)
        self.counts = Counts()
        self.subflows: list[Subflow] = []
        """Those that carried data, in the order in which they joined."""

    def add_here(self, host: str) -> None:
        """Manage the connections of the network namespace in which the calling thread is. Raises
        OSError."""
        made = _Host(host, self._family)
        self._held.callback(made.close)
        self._hosts[made.events.fileno()] = made

    def start(self) -> None:
        """Begin; to be called once."""
        self._thread.start()

    def stop(self) -> None:
        """Can be called again."""
        if self._thread.is_alive():
            os.eventfd_write(self._stop, 1)
            self._thread.join()
        self._held.close()

    def _manage(self) -> None:
        with select.epoll() as waiting:
            for descriptor in (*self._hosts, self._stop):
                waiting.register(descriptor, select.EPOLLIN)
            while True:
                # In the order of hosts, whatever that of the kernel's list of those that are ready.
                ready = sorted(descriptor for descriptor, _ in waiting.poll())
                if self._stop in ready:
                    return
                for descriptor in ready:
                    host = self._hosts[descriptor]
                    for event in host.events.read():
                        self._heed(host, event)

    def _heed(self, host: _Host, event: Event) -> None:
        if isinstance(event, Established):
            if not event.accepted:
                self.counts.connections += 1
                host.connections[event.token] = event
                self._add_to(host, event)
            return
        connection = host.connections.get(event.token)
        if connection is None or event.ends == connection.ends:
            return
        if isinstance(event, Left):
            self.counts.closed += 1
        elif isinstance(event, Joined):
            self.counts.subflows += 1
            self.subflows.append(
                Subflow(
                    host.name,
                    self._names.get(event.ends.remote, str(event.ends.remote)),
                    connection.ends.local_port,
                    event.ends.local_port,
                    event.ends.remote_port,
                )
            )

    def _add_to(self, host: _Host, connection: Established) -> None:
        for _ in range(self._further):
            try:
                host.requests.execute([subflow(self._family, connection)])
            except NetlinkError as refusal:
                self.counts.refused += refusal.errno not in _GONE
                return
