"""TCP's congestion controls of the kernel at hand, those in modules included."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


def loaded() -> frozenset[str]:
    """The controls that the kernel has now; modules that nobody asked for yet are not among
    them."""
    return frozenset(_AVAILABLE.read_text().split())


def ensure(name: str) -> None:
    """Has the kernel load the control's module, if it is in one: asking for it on a socket does.

    Raises OSError (ENOENT) naming what there is when this kernel has no such control.
    """
    if name in loaded():
        return
    with socket.socket() as asking:
        try:
            asking.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError:
            pass  # what counts is whether it is there now
    found = loaded()
    if name not in found:
        raise OSError(
            errno.ENOENT,
            f"this kernel has no congestion control {name}; it has {', '.join(sorted(found))}",
        )
