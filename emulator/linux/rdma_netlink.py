"""The requests of RDMA's netlink that a fabric needs.

Formats: include/uapi/rdma/rdma_netlink.h.
"""

from __future__ import annotations

from emulator.linux.netlink import NetlinkSocket, Request, attribute, parse_attributes, text

NETLINK_RDMA = 20
_NLDEV = 5 << 10
_GET, _NEWLINK, _DELLINK = _NLDEV + 1, _NLDEV + 3, _NLDEV + 4
_DEV_INDEX, _DEV_NAME, _NDEV_NAME, _LINK_TYPE = 1, 2, 51, 65


def make_rdma_device(name: str, interface: str) -> Request:
    """Makes the Soft-RoCE device `name` of an interface, to be sent in the interface's namespace.
    Names are the machine's, whatever the namespace."""
    payload = text(_DEV_NAME, name) + text(_LINK_TYPE, "rxe") + text(_NDEV_NAME, interface)
    return Request(_NEWLINK, 0, payload, f"make the RDMA device {name} of {interface}")


def remove_rdma_device(name: str) -> bool:
    """Removes a device, in whatever namespace it is; False when there is none of this name. Raises
    OSError."""
    with NetlinkSocket(NETLINK_RDMA) as netlink:
        for body in netlink.dump(Request(_GET, 0, b"", "list RDMA devices")):
            found = parse_attributes(body)
            if found[_DEV_NAME] == name.encode() + b"\0":
                index = attribute(_DEV_INDEX, found[_DEV_INDEX])
                netlink.execute([Request(_DELLINK, 0, index, f"remove the RDMA device {name}")])
                return True
    return False
