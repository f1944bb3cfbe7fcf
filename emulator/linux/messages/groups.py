"""Next hops as objects of their own, resilient groups of them, and routes by a group."""

from __future__ import annotations

from socket import AF_INET, AF_UNSPEC

from pyroute2.netlink.rtnl import rt_proto
from pyroute2.netlink.rtnl.rtmsg import RTNH_F_ONLINK, rtmsg

from emulator.linux.messages import additions
from emulator.linux.messages.shape import REPLACE, Shape, address, content, size, u16, u32

GROUPS = {
    "NEXT_HOP": Shape(
        additions.nhmsg,
        {
            "family": AF_INET,
            "protocol": rt_proto["static"],
            "flags": RTNH_F_ONLINK,
            "attrs": [
                ("NHA_ID", u32("id")),
                ("NHA_OIF", u32("index")),
                ("NHA_GATEWAY", address("gateway")),
            ],
        },
        additions.RTM_NEWNEXTHOP,
        REPLACE,
    ),
    "RESILIENT_GROUP": Shape(
        additions.nhmsg,
        {
            "family": AF_UNSPEC,
            "protocol": rt_proto["static"],
            "attrs": [
                ("NHA_ID", u32("id")),
                ("NHA_GROUP", content("members")),
                ("NHA_GROUP_TYPE", additions.NEXTHOP_GRP_TYPE_RES),
                (
                    "NHA_RES_GROUP",
                    {
                        "attrs": [
                            ("NHA_RES_GROUP_BUCKETS", u16("buckets")),
                            ("NHA_RES_GROUP_IDLE_TIMER", u32("idle_ticks")),
                            ("NHA_RES_GROUP_UNBALANCED_TIMER", u32("unbalanced_ticks")),
                        ]
                    },
                ),
            ],
        },
        additions.RTM_NEWNEXTHOP,
        REPLACE,
    ),
    "NEXT_HOP_DELETED": Shape(
        additions.nhmsg, {"attrs": [("NHA_ID", u32("id"))]}, additions.RTM_DELNEXTHOP
    ),
    "ROUTE_BY_GROUP": Shape(
        additions.group_route,
        {"family": AF_INET, "attrs": [("RTA_NH_ID", u32("id"))]},
        skipped_bytes=size(rtmsg.fields),
    ),
}
"""By name in `formats.py`."""
