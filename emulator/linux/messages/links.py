"""Links, addresses, neighbours, routes and RDMA devices: what is asked of the kernel."""

from __future__ import annotations

from socket import AF_INET
from typing import Any

from pyroute2.netlink import nla, rtnl
from pyroute2.netlink.rtnl import ndmsg as neighbours
from pyroute2.netlink.rtnl import rt_proto, rt_type
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import IFF_UP, ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import RTNH_F_ONLINK, rtmsg

from emulator.linux.messages import additions
from emulator.linux.messages.shape import (
    CREATE,
    REPLACE,
    Shape,
    address,
    composed,
    content,
    i32,
    mac,
    size,
    text,
    u8,
    u32,
)


def _end(which: str, *more: Any) -> dict[str, Any]:
    """One end of a veth pair. A port has one queue: every queue more costs a kobject, half of the
    creation time. One segment a packet: a 64 KB super-packet would be serialised as one unit."""
    return {
        "index": i32(f"{which}_index"),
        "attrs": [
            ("IFLA_IFNAME", text(f"{which}_name")),
            ("IFLA_NET_NS_FD", u32(f"{which}_namespace_fd")),
            ("IFLA_ADDRESS", mac(f"{which}_mac")),
            ("IFLA_MTU", u32(f"{which}_mtu_bytes")),
            ("IFLA_TXQLEN", _TX_QUEUE_PACKETS),
            ("IFLA_NUM_TX_QUEUES", 1),
            ("IFLA_NUM_RX_QUEUES", 1),
            ("IFLA_GSO_MAX_SEGS", 1),
            *more,
        ],
    }


def _link_info(kind: Any, *data: Any) -> tuple[str, Any]:
    return ("IFLA_LINKINFO", {"attrs": [("IFLA_INFO_KIND", kind), *data]})


def _state(flags: int) -> Shape:
    fields = {"index": i32("index"), "flags": flags, "change": IFF_UP}
    return Shape(ifinfmsg, fields, rtnl.RTM_SETLINK)


def _route(kind: str, flags: int = 0) -> Shape:
    """The head of a route; its attributes are parts."""
    fields = {
        "family": AF_INET,
        "dst_len": u8("prefix_length"),
        "table": _RT_TABLE_MAIN,
        "proto": rt_proto["static"],
        "type": rt_type[kind],
        "flags": flags,
    }
    return Shape(rtmsg, fields, rtnl.RTM_NEWROUTE, REPLACE)


def _of_route(*attributes: Any, of: Any = rtmsg) -> Shape:
    values = {"family": AF_INET, "attrs": [*attributes]}
    return Shape(of, values, skipped_bytes=size(rtmsg.fields))


def _metric(name: str) -> Shape:
    return Shape(rtmsg.metrics, {"attrs": [(f"RTAX_{name}", u32("value"))]})


_TX_QUEUE_PACKETS = 1000
_RTEXT_FILTER_SKIP_STATS = 1 << 3
_RT_TABLE_MAIN, _RT_SCOPE_NOWHERE = 254, 255
_HOP = {
    "hops": u8("weight_less_one"),
    "oif": i32("index"),
    "flags": RTNH_F_ONLINK,
    "attrs": [("RTA_GATEWAY", address("gateway"))],
}

_PEER = ("VETH_INFO_PEER", _end("b"))

LINKS = {
    "VETH": Shape(
        ifinfmsg,
        _end(
            "a", _link_info("veth", ("IFLA_INFO_DATA", {"attrs": [("VETH_INFO_PEER", _end("b"))]}))
        ),
        rtnl.RTM_NEWLINK,
        CREATE,
    ),
    "IFB": Shape(
        ifinfmsg,
        {
            "index": i32("index"),
            "flags": IFF_UP,
            "change": IFF_UP,
            "attrs": [
                ("IFLA_IFNAME", text("name")),
                ("IFLA_NET_NS_FD", u32("namespace_fd")),
                ("IFLA_MTU", u32("mtu_bytes")),
                ("IFLA_TXQLEN", _TX_QUEUE_PACKETS),
                ("IFLA_NUM_TX_QUEUES", 1),
                ("IFLA_NUM_RX_QUEUES", 1),
                _link_info("ifb"),
            ],
        },
        rtnl.RTM_NEWLINK,
        CREATE,
    ),
    "DEVICE": Shape(ifinfmsg, {"attrs": [_link_info(text("kind"))]}, rtnl.RTM_NEWLINK, CREATE),
    "LINK_UP": _state(IFF_UP),
    "LINK_DOWN": _state(0),
    "GET_LINKS": Shape(ifinfmsg, {}, rtnl.RTM_GETLINK),
    "GET_LINKS_WITHOUT_STATISTICS": Shape(
        ifinfmsg, {"attrs": [("IFLA_EXT_MASK", _RTEXT_FILTER_SKIP_STATS)]}, rtnl.RTM_GETLINK
    ),
    "ADDRESS": Shape(
        ifaddrmsg,
        {
            "family": AF_INET,
            "prefixlen": 32,
            "index": u32("index"),
            "attrs": [("IFA_LOCAL", address("local")), ("IFA_ADDRESS", address("address"))],
        },
        rtnl.RTM_NEWADDR,
        CREATE,
    ),
    "NEIGHBOUR": Shape(
        ndmsg,
        {
            "family": AF_INET,
            "ifindex": i32("index"),
            "state": neighbours.NUD_PERMANENT,
            "attrs": [("NDA_DST", address("address")), ("NDA_LLADDR", mac("mac"))],
        },
        rtnl.RTM_NEWNEIGH,
        REPLACE,
    ),
    "ROUTE": _route("unicast"),
    "ROUTE_ON_LINK": _route("unicast", RTNH_F_ONLINK),
    "ROUTE_UNREACHABLE": _route("unreachable"),
    "ROUTE_DELETED": Shape(
        rtmsg,
        {
            "family": AF_INET,
            "dst_len": u8("prefix_length"),
            "table": _RT_TABLE_MAIN,
            "proto": rt_proto["static"],
            "scope": _RT_SCOPE_NOWHERE,
        },
        rtnl.RTM_DELROUTE,
    ),
    "ROUTE_TO": _of_route(("RTA_DST", address("destination"))),
    "ROUTE_SOURCE": _of_route(("RTA_PREFSRC", address("source"))),
    "ROUTE_METRICS": _of_route(
        ("RTA_METRICS", content("metrics")), of=composed(rtmsg, "RTA_METRICS")
    ),
    "METRIC_LOCK": _metric("LOCK"),
    "METRIC_MTU": _metric("MTU"),
    "METRIC_WINDOW": _metric("INITCWND"),
    "METRIC_MIN_RTO": _metric("RTO_MIN"),
    "ROUTE_HOP": _of_route(("RTA_OIF", u32("index")), ("RTA_GATEWAY", address("gateway"))),
    "ROUTE_HOPS": _of_route(
        ("RTA_MULTIPATH", content("hops")), of=composed(rtmsg, "RTA_MULTIPATH")
    ),
    "HOP": Shape(
        rtmsg,
        {"family": AF_INET, "attrs": [("RTA_MULTIPATH", [_HOP])]},
        skipped_bytes=size(rtmsg.fields) + size(nla.header),
    ),
    "RDMA_DEVICE": Shape(
        additions.nldevmsg,
        {
            "attrs": [
                ("RDMA_NLDEV_ATTR_DEV_NAME", text("name")),
                ("RDMA_NLDEV_ATTR_LINK_TYPE", "rxe"),
                ("RDMA_NLDEV_ATTR_NDEV_NAME", text("interface")),
            ]
        },
        additions.RDMA_NLDEV_CMD_NEWLINK,
    ),
    "RDMA_DEVICE_DELETED": Shape(
        additions.nldevmsg,
        {"attrs": [("RDMA_NLDEV_ATTR_DEV_INDEX", u32("index"))]},
        additions.RDMA_NLDEV_CMD_DELLINK,
    ),
    "GET_RDMA_DEVICES": Shape(additions.nldevmsg, {}, additions.RDMA_NLDEV_CMD_GET),
}
