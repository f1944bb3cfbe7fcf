"""Segment routing over IPv6: addresses, neighbours and routes of IPv6, what nodes do with their
segments, and next hops that wrap packets."""

from __future__ import annotations

from socket import AF_INET, AF_INET6
from typing import Any

from pyroute2.netlink import nla, rtnl
from pyroute2.netlink.rtnl import ndmsg as neighbours
from pyroute2.netlink.rtnl import rt_proto, rt_type
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import RTNH_F_ONLINK, rtmsg

from emulator.linux.messages import additions
from emulator.linux.messages.shape import (
    CREATE,
    REPLACE,
    Shape,
    Value,
    address,
    i32,
    mac,
    size,
    u8,
    u32,
)

_RT_TABLE_MAIN = 254


def _address6(name: str) -> Value:
    return Value(name, "16s", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")


def _route(of: Any, *attributes: Any) -> Shape:
    fields = {
        "family": AF_INET6,
        "dst_len": u8("prefix_length"),
        "table": _RT_TABLE_MAIN,
        "proto": rt_proto["static"],
        "type": rt_type["unicast"],
        "attrs": [("RTA_DST", _address6("destination")), *attributes],
    }
    return Shape(of, fields, rtnl.RTM_NEWROUTE, REPLACE)


def _behaviour(*attributes: Any) -> Shape:
    return _route(
        additions.behaviour_route,
        ("RTA_OIF", u32("index")),
        ("RTA_ENCAP_TYPE", additions.LWTUNNEL_ENCAP_SEG6_LOCAL),
        ("RTA_ENCAP", {"attrs": [*attributes]}),
    )


_LIST = {
    "mode": additions.SEG6_IPTUN_MODE_ENCAP_RED,
    "hdrlen": 2,  # of a segment, in units of 8 bytes
    "type": 4,  # IPV6_SRCRT_TYPE_4
    "segment": Value("segment", "16s", bytes(16), bytes([255] * 16)),
}

SEGMENTS = {
    "ADDRESS6": Shape(
        ifaddrmsg,
        {
            "family": AF_INET6,
            "prefixlen": 128,
            "index": u32("index"),
            "attrs": [("IFA_LOCAL", _address6("local"))],
        },
        rtnl.RTM_NEWADDR,
        CREATE,
    ),
    "NEIGHBOUR6": Shape(
        ndmsg,
        {
            "family": AF_INET6,
            "ifindex": i32("index"),
            "state": neighbours.NUD_PERMANENT,
            "attrs": [("NDA_DST", _address6("address")), ("NDA_LLADDR", mac("mac"))],
        },
        rtnl.RTM_NEWNEIGH,
        REPLACE,
    ),
    "ROUTE6": _route(rtmsg, ("RTA_OIF", u32("index")), ("RTA_GATEWAY", _address6("gateway"))),
    "SEGMENT_OF_SWITCH": _behaviour(
        ("SEG6_LOCAL_ACTION", additions.SEG6_LOCAL_ACTION_END),
        (
            "SEG6_LOCAL_FLAVORS",
            {
                "attrs": [
                    (
                        "SEG6_LOCAL_FLV_OPERATION",
                        1 << additions.SEG6_LOCAL_FLV_OP_NEXT_CSID,
                    ),
                    ("SEG6_LOCAL_FLV_LCBLOCK_BITS", u8("block_bits")),
                    ("SEG6_LOCAL_FLV_LCNODE_FN_BITS", u8("segment_bits")),
                ]
            },
        ),
    ),
    "SEGMENT_OF_HOST": _behaviour(
        ("SEG6_LOCAL_ACTION", additions.SEG6_LOCAL_ACTION_END_DX4),
        ("SEG6_LOCAL_NH4", "0.0.0.0"),  # to where the packet inside says
    ),
    "WRAPPING_HOP": Shape(
        additions.wrapping_route,
        {
            "family": AF_INET,
            "attrs": [
                (
                    "RTA_MULTIPATH",
                    [
                        {
                            "hops": 0,
                            "oif": i32("index"),
                            "flags": RTNH_F_ONLINK,
                            "attrs": [
                                ("RTA_GATEWAY", address("gateway")),
                                ("RTA_ENCAP_TYPE", additions.LWTUNNEL_ENCAP_SEG6),
                                ("RTA_ENCAP", {"attrs": [("SEG6_IPTUNNEL_SRH", _LIST)]}),
                            ],
                        }
                    ],
                )
            ],
        },
        skipped_bytes=size(rtmsg.fields) + size(nla.header),
    ),
}
"""By name in `formats.py`."""
