"""Waiting for links: a port drops what it is given until the kernel's link watch has started it."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Collection

from emulator.linux import rtnetlink
from emulator.linux.ethtool import ethtool
from emulator.linux.netlink import NetlinkSocket
from emulator.network.blueprint import LOOPBACK
from emulator.ports.counters import running

_ETHTOOL_GLINK = 0xA
_DEADLINE_S = 30.0
_FIRST_PAUSE_S = 1e-6
_LONGEST_PAUSE_S = 1e-3


def refresh_link_state(interface: str) -> None:
    """Makes the kernel's link watch look at an interface of the calling thread's namespace now.

    It looks once a second where nothing is urgent. So a port that went down and up again within
    that second still reads as up, while its queue has not started. Asking for the link state brings
    the watch up to date (ethtool_op_get_link in net/ethtool/ioctl.c). Raises OSError.
    """
    with socket.socket() as control:
        ethtool(control, interface, _ETHTOOL_GLINK)


def await_carrier(netlink: NetlinkSocket, wanted: Collection[int], node: str) -> None:
    """Returns when the interfaces `wanted` of the socket's namespace are up and their queues run.

    A port reads as up just before its queue starts, within one hold of the kernel's rtnl lock
    (linkwatch_do_dev in net/core/link_watch.c); the last request here takes that lock, so it waits
    for the end of the hold. Raises OSError (ETIMEDOUT) after 30 s.
    """
    deadline = time.monotonic() + _DEADLINE_S
    pause = _FIRST_PAUSE_S  # short at first: on the virtual kernel a pause is the fabric's time
    while not running(netlink).issuperset(wanted):
        if time.monotonic() > deadline:
            raise OSError(errno.ETIMEDOUT, f"the links of {node} do not come up")
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)
    netlink.execute([rtnetlink.set_state(LOOPBACK, True, "lo")])
