"""The network of a rank's GPU. A launcher such as torchrun starts all ranks of a server where it is
itself, in the network of the server's first GPU; each goes into that of its own."""

from __future__ import annotations

import ctypes
import os
from typing import Any

_CLONE_NEWNET = 0x40000000


def enter(plan: dict[str, Any]) -> None:
    """Enter the network of this process's rank, where it has one and the plan names it. Raises
    OSError."""
    places, rank = plan.get("places"), os.environ.get("RANK")
    if not places or rank is None or not rank.isdigit() or int(rank) >= len(places):
        return
    place = places[int(rank)]
    descriptor = os.open(place["netns"], os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"enter the network of rank {rank}: {os.strerror(code)}")
    finally:
        os.close(descriptor)
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["TP_SOCKET_IFNAME"] = place["interface"]
