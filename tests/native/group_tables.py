"""The tables of resilient groups as a kernel has them."""

from __future__ import annotations

import struct

from emulator.linux.netlink import Request, parse_attributes
from emulator.network.groups import group_numbers
from emulator.network.network import Network
from topologies.routing.buckets import Buckets

_RTM_GETNEXTHOPBUCKET = 118  # include/uapi/linux/rtnetlink.h
_NHMSG_BYTES, _NHA_ID, _NHA_RES_BUCKET = 8, 1, 13  # include/uapi/linux/nexthop.h
_INDEX, _NEXT_HOP = 1, 3


def kernel_buckets(live: Network, node: str, place: str) -> Buckets:
    """The link of each bucket of a node's group; none where it has no such group."""
    number = group_numbers(live.fabric)[place]
    asked = bytes(_NHMSG_BYTES) + struct.pack("HHI", 8, _NHA_ID, number)
    with live.netlink(node) as netlink:
        rows = netlink.dump(Request(_RTM_GETNEXTHOPBUCKET, 0, asked, f"group of {place}"))
    links = {context.ifindex: context.link.index for context in live.contexts(node)}
    found: dict[int, int] = {}
    for row in rows:
        told = parse_attributes(parse_attributes(row, _NHMSG_BYTES)[_NHA_RES_BUCKET])
        (bucket,) = struct.unpack("H", told[_INDEX])
        (hop,) = struct.unpack("I", told[_NEXT_HOP])
        found[bucket] = links[hop]
    return tuple(found[bucket] for bucket in range(len(found)))


def assert_as_computed(live: Network) -> None:
    """The kernel has the groups of the network's routes, and their buckets."""
    groups = live.routes.groups
    assert groups is not None
    for node in live.fabric.nodes:
        for place in groups.of(node.name):
            expected = groups.buckets(node.name, place) or ()
            assert kernel_buckets(live, node.name, place) == expected, (node.name, place)
