"""The requests of RDMA's netlink that a fabric needs."""

from __future__ import annotations

from emulator.linux.messages import formats
from emulator.linux.netlink import NetlinkSocket, Request, parse_attributes, request

NETLINK_RDMA = 20


def make_rdma_device(name: str, interface: str) -> Request:
    """Makes the Soft-RoCE device `name` of an interface, to be sent in the interface's namespace.
    Names are the machine's, whatever the namespace."""
    what = f"make the RDMA device {name} of {interface}"
    return request(formats.RDMA_DEVICE, what, name.encode(), interface.encode())


def remove_rdma_device(name: str) -> bool:
    """Removes a device, in whatever namespace it is; False when there is none of this name. Raises
    OSError."""
    with NetlinkSocket(NETLINK_RDMA) as netlink:
        for body in netlink.dump(request(formats.GET_RDMA_DEVICES, "list RDMA devices")):
            found = parse_attributes(body)
            if found[formats.RDMA_NLDEV_ATTR_DEV_NAME] == name.encode() + b"\0":
                index = int.from_bytes(found[formats.RDMA_NLDEV_ATTR_DEV_INDEX], "little")
                what = f"remove the RDMA device {name}"
                netlink.execute([request(formats.RDMA_DEVICE_DELETED, what, index)])
                return True
    return False
