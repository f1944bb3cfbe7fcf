"""MPTCP's path manager in user space: the family of its messages, and subflows."""

from __future__ import annotations

from socket import AF_INET

from pyroute2.netlink import CTRL_CMD_GETFAMILY, GENL_ID_CTRL, ctrlmsg

from emulator.linux.messages import additions
from emulator.linux.messages.shape import Shape, address, u8, u16, u32

SUBFLOWS = {
    "GENERIC_FAMILIES": Shape(ctrlmsg, {"cmd": CTRL_CMD_GETFAMILY, "version": 1}, GENL_ID_CTRL),
    "SUBFLOW": Shape(
        additions.subflow_msg,
        {
            "cmd": additions.MPTCP_PM_CMD_SUBFLOW_CREATE,
            "version": 1,
            "attrs": [
                ("MPTCP_PM_ATTR_TOKEN", u32("token")),
                (
                    "MPTCP_PM_ATTR_ADDR",
                    {
                        "attrs": [
                            ("MPTCP_PM_ADDR_ATTR_FAMILY", AF_INET),
                            ("MPTCP_PM_ADDR_ATTR_ID", u8("local_id")),
                            ("MPTCP_PM_ADDR_ATTR_ADDR4", address("local")),
                        ]
                    },
                ),
                (
                    "MPTCP_PM_ATTR_ADDR_REMOTE",
                    {
                        "attrs": [
                            ("MPTCP_PM_ADDR_ATTR_FAMILY", AF_INET),
                            ("MPTCP_PM_ADDR_ATTR_ADDR4", address("remote")),
                            ("MPTCP_PM_ADDR_ATTR_PORT", u16("remote_port")),
                        ]
                    },
                ),
            ],
        },
    ),
}
"""By name in `formats.py`. The type of a subflow's message is its family's, which the kernel
numbers."""
