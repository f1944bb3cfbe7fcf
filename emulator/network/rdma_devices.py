"""The RDMA devices of a fabric: one on each port of a host, by the kernel's Soft-RoCE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from emulator.linux.netlink import NetlinkSocket
from emulator.linux.rdma_netlink import NETLINK_RDMA, make_rdma_device
from emulator.network.registry import Session
from emulator.ports.arrangement import PortContext


def make_devices(
    session: Session,
    hosts: Mapping[str, tuple[PortContext, ...]],
    enter: Callable[[str], AbstractContextManager[None]],
) -> dict[str, tuple[str, ...]]:
    """Makes those of `hosts`, recorded first, and returns their names by host. The ports have their
    addresses already. Raises OSError."""
    made = {}
    for host, ports in hosts.items():
        names = {f"gw{session.id}-{port.port.interface}": port.port.interface for port in ports}
        session.record(*({"kind": "rdma-device", "path": name} for name in names))
        with enter(host), NetlinkSocket(NETLINK_RDMA) as netlink:
            netlink.execute(make_rdma_device(name, interface) for name, interface in names.items())
        made[host] = tuple(names)
    return made
