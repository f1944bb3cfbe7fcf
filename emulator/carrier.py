"""Waiting for links: a port drops what it is given until the kernel's link watch has started it."""

from __future__ import annotations

import errno
import time
from collections.abc import Collection

from emulator import rtnetlink
from emulator.blueprint import LOOPBACK
from emulator.counters import running
from emulator.netlink import NetlinkSocket

_FIRST_PAUSE_S = 1e-6
_LONGEST_PAUSE_S = 1e-3


def await_carrier(
    netlink: NetlinkSocket, wanted: Collection[int], node: str, deadline_s: float = 30.0
) -> None:
    """Returns when the interfaces `wanted` of the socket's namespace are up and their queues run.

    A port reads as up just before its queue starts, within one hold of the kernel's rtnl lock
    (linkwatch_do_dev in net/core/link_watch.c); the last request here takes that lock, so it waits
    for the end of the hold. Raises OSError (ETIMEDOUT) after `deadline_s`.
    """
    deadline = time.monotonic() + deadline_s
    pause = _FIRST_PAUSE_S  # short at first: on the virtual kernel a pause is the fabric's time
    while not running(netlink).issuperset(wanted):
        if time.monotonic() > deadline:
            raise OSError(errno.ETIMEDOUT, f"the links of {node} do not come up")
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)
    netlink.execute([rtnetlink.set_state(LOOPBACK, True, "lo")])
