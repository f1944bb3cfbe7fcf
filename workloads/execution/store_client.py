"""A rank's connection to rank 0's store, and what it still has to acknowledge there."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

_AT_ONCE = 2
"""TCP_QUICKACK: what waits is acknowledged now, and what comes later is delayed as before
(net/ipv4/tcp.c: __tcp_sock_set_quickack)."""


class StoreClient:
    """The connection of this process from one IPv4 address to the store at another. To be made
    before the store's client is, whose descriptor is then among the first that are looked at."""

    def __init__(self, own: str, store: str, store_port: int) -> None:
        self._own, self._store = own, (store, store_port)
        with open(os.devnull, "rb") as probe:
            self._first = probe.fileno()

    def acknowledge(self) -> bool:
        """Send the acknowledgement of the store's last answer, if it waits: by itself Linux sends
        it 40 ms later, as a packet among those of a collective. Whether there is a connection."""
        open_now = sorted(map(int, os.listdir("/proc/self/fd")))
        for descriptor in sorted(open_now, key=lambda each: each < self._first):
            # It may be no socket, be closed by now, or not be connected.
            with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as end:
                if (end.family, end.type) != (socket.AF_INET, socket.SOCK_STREAM):
                    continue
                if end.getpeername() == self._store and end.getsockname()[0] == self._own:
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, _AT_ONCE)
                    return True
        return False
