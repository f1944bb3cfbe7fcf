"""Makes `formats.py` of the kernel's messages that Groundwire uses, as pyroute2 has them:

    python -m emulator.linux.messages > emulator/linux/messages/formats.py

A test renews that file and compares.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from pyroute2.netlink import ctrlmsg, nla, nlmsg, nlmsgerr
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg
from pyroute2.netlink.rtnl.tcmsg import common, sched_codel, sched_fq_codel, tcmsg

from emulator.linux.messages import additions
from emulator.linux.messages.groups import GROUPS
from emulator.linux.messages.links import LINKS
from emulator.linux.messages.queues import OPTIONS, QUEUES
from emulator.linux.messages.segments import SEGMENTS
from emulator.linux.messages.subflows import SUBFLOWS

LAYOUTS: dict[str, Sequence[tuple[str, str]]] = {
    "MESSAGE_HEADER": nlmsg.header,
    "ATTRIBUTE_HEADER": nla.header,
    "REFUSAL": nlmsgerr.fields,
    "INTERFACE": ifinfmsg.fields,
    "INTERFACE_STATISTICS": ifinfmsg.ifstats64.fields,
    "QDISC_MESSAGE": tcmsg.fields,
    "QDISC_BASIC": common.stats2.basic.fields,
    "QDISC_QUEUE": common.stats2.queue.fields,
    "RED_STATISTICS": additions.sched_red.stats.fields,
    "CODEL_STATISTICS": sched_codel.stats.fields,
    "FQ_CODEL_STATISTICS": sched_fq_codel.qdisc_stats.fields,
    "GROUP_MEMBER": additions.nexthop_grp.fields,
    "GWPORT_PARMS": additions.sched_gwport.options.tc_gwport_qopt.fields,
    "GWPORT_STATISTICS": additions.sched_gwport.stats.fields,
}

NUMBERS: dict[str, Sequence[str]] = {
    "pyroute2.netlink": (
        "NETLINK_ROUTE",
        "NETLINK_EXT_ACK",
        "SOL_NETLINK",
        "NLMSG_NOOP",
        "NLMSG_ERROR",
        "NLMSG_DONE",
        "NLM_F_REQUEST",
        "NLM_F_ACK",
        "NLM_F_ACK_TLVS",
        "NLM_F_DUMP",
        "NLM_F_DUMP_INTR",
    ),
    "pyroute2.netlink.rtnl": ("RTM_DELROUTE", "TC_H_ROOT"),
    "emulator.linux.messages.additions": ("RTM_DELNEXTHOP",),
}
ATTRIBUTES: Sequence[tuple[Any, Sequence[str]]] = (
    (nlmsgerr, ("NLMSGERR_ATTR_MSG",)),
    (ifinfmsg, ("IFLA_OPERSTATE", "IFLA_STATS64")),
    (tcmsg, ("TCA_KIND", "TCA_OPTIONS", "TCA_XSTATS", "TCA_STATS2")),
    (rtmsg.metrics, ("RTAX_RTO_MIN",)),
    (common.stats2, ("TCA_STATS_BASIC", "TCA_STATS_QUEUE")),
    (
        ctrlmsg,
        ("CTRL_ATTR_FAMILY_ID", "CTRL_ATTR_FAMILY_NAME", "CTRL_ATTR_MCAST_GROUPS"),
    ),
    (ctrlmsg.mcast_groups, ("CTRL_ATTR_MCAST_GRP_NAME", "CTRL_ATTR_MCAST_GRP_ID")),
    (
        additions.mptcp_event,
        (
            "MPTCP_ATTR_TOKEN",
            "MPTCP_ATTR_FAMILY",
            "MPTCP_ATTR_SADDR4",
            "MPTCP_ATTR_DADDR4",
            "MPTCP_ATTR_SPORT",
            "MPTCP_ATTR_DPORT",
            "MPTCP_ATTR_SERVER_SIDE",
        ),
    ),
    (additions.nldevmsg, ("RDMA_NLDEV_ATTR_DEV_INDEX", "RDMA_NLDEV_ATTR_DEV_NAME")),
)


def source() -> str:
    """The text of `formats.py`."""
    lines = [
        '"""Netlink\'s messages by pyroute2. Made by `python -m emulator.linux.messages`."""',
        "",
        "# fmt: off",
        "# ruff: noqa: E501",
        "",
        "from __future__ import annotations",
        "",
        "from emulator.linux.messages.template import Blank, Layout, OpenBlank, Template",
        "",
    ]
    for module, names in NUMBERS.items():
        lines += [f"{name} = {getattr(importlib.import_module(module), name)}" for name in names]
    for of, names in ATTRIBUTES:
        of_kind = {row[-2]: row[0] if len(row) == 3 else i for i, row in enumerate(of.nla_map)}
        lines += [f"{name} = {of_kind[name]}" for name in names]
    for name, fields in LAYOUTS.items():
        lines.append(f"{name} = Layout(*{tuple(tuple(each) for each in fields)!r})")
    for name, shape in (LINKS | QUEUES | OPTIONS | SUBFLOWS | SEGMENTS | GROUPS).items():
        payload, blanks = shape.blank()
        places = "".join(f"{type(blank).__name__}{tuple(blank)!r}, " for blank in blanks)
        lines += [
            f"{name} = Template(",
            f"    {shape.type}, {shape.flags:#x}, bytes.fromhex({payload.hex()!r}),",
            f"    ({places.rstrip()}),",
            ")",
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(source(), end="")
