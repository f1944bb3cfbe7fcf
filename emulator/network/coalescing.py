"""Receive coalescing: a port holds received packets for a moment and hands them up together, as a
NIC's interrupt moderation does. On the virtual kernel it saves wake-ups, which cost wall time.

Generic receive offload on a veth, with the flush timeout of net/core/gro.c and deferred interrupts
(Documentation/networking/napi.rst, "Software IRQ coalescing").
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path

from emulator.linux import namespaces
from emulator.linux.ethtool import ethtool

_ETHTOOL_STSO, _ETHTOOL_SGRO = 0x1F, 0x2C
_DEFERRED_POLLS = 2
"""napi_defer_hard_irqs: empty polls before interrupts are on again; 1 would end the hold at the
first gap, more keeps polling an idle port."""


def coalesce_received(interfaces: Iterable[str], hold_ns: int, sysfs: Path) -> None:
    """Sets up interfaces of the namespace in which the calling thread is.

    `sysfs` is an empty directory of ours: a namespace's interfaces appear in sysfs only when it is
    mounted from inside. Raises OSError.
    """
    with namespaces.mounted_sysfs(sysfs), socket.socket() as control:
        for interface in interfaces:
            ethtool(control, interface, _ETHTOOL_SGRO, 1)
            device = sysfs / "class" / "net" / interface
            (device / "gro_flush_timeout").write_text(str(hold_ns))
            (device / "napi_defer_hard_irqs").write_text(str(_DEFERRED_POLLS))


def disable_segmentation(interfaces: Iterable[str]) -> None:
    """Switches off TSO at the far ends of the interfaces that are to hold packets. A veth's peer
    merges what the veth sends only if the veth does no TSO (veth_skb_is_eligible_for_gro in
    drivers/net/veth.c). Raises OSError.
    """
    with socket.socket() as control:
        for interface in interfaces:
            ethtool(control, interface, _ETHTOOL_STSO, 0)
