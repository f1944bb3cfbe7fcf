"""Whether the kernel at hand has Soft-RoCE for the hosts of a fabric, asked of the kernel itself.

Linux's own hears in the first network namespace only: rxe_net.c opens its socket there and looks
routes up there.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

from emulator.linux import namespaces, rtnetlink
from emulator.linux.netlink import NetlinkSocket
from emulator.linux.rdma_netlink import NETLINK_RDMA, make_rdma_device, remove_rdma_device

CLASS = Path("/sys/class/infiniband")
_PORT_HEX = f"{4791:04X}"
_PROBE, _PEER = 102, 103


@dataclass(frozen=True)
class SoftRoce:
    """`refused` says why there is none, or why it could not be asked. `hears`: a device receives in
    the namespace of its port. `controls`: queue pairs have congestion control (patch 0018)."""

    refused: str | None = None
    hears: bool = False
    controls: bool = False


@functools.cache
def soft_roce() -> SoftRoce:
    """Asks once per process, in a namespace made for it, so that nothing stays."""
    name = f"gwprobe{os.getpid()}"
    try:
        with namespaces.scratch():
            _make_port()
            with NetlinkSocket(NETLINK_RDMA) as netlink:
                netlink.execute([make_rdma_device(name, "probe")])
            try:
                return SoftRoce(hears=_hears(), controls=(CLASS / name / "congestion").exists())
            finally:
                remove_rdma_device(name)
    except OSError as problem:
        return SoftRoce(refused=str(problem))


def _make_port() -> None:
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    ends = (
        rtnetlink.VethEnd("probe", _PROBE, own, "02:47:57:00:00:00"),
        rtnetlink.VethEnd("peer", _PEER, own, "02:47:57:00:00:01"),
    )
    try:
        with NetlinkSocket() as netlink:
            netlink.execute([rtnetlink.veth(*ends, 1500)])
    finally:
        os.close(own)


def _hears() -> bool:
    """Whether somebody has RoCEv2's UDP port in this namespace."""
    rows = Path("/proc/thread-self/net/udp").read_text().splitlines()[1:]
    return any(row.split()[1].endswith(f":{_PORT_HEX}") for row in rows)
