"""MPTCP in a kernel: sockets that are MPTCP's whatever a program asks for, and a path manager.

Linux has a hook by which eBPF turns sockets (`update_socket_protocol`). User-Mode Linux has no such
eBPF; the virtual kernel answers the hook by a sysctl of each host (emulator/kernel/gwmptcp.c), for
all programs there are. Natively ranks and programs are started with a library (`sockets.c`), as by
mptcpize: statically linked programs keep TCP there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path

from emulator.linux.mptcp import SYSCTLS
from emulator.network.network import Devices, Network, SetUp
from emulator.network.path_manager import PathManager
from emulator.network.sysctls import write_sysctls
from emulator.ports.arrangement import PortContext
from emulator.transports.tcp import EmulatedTcp
from emulator.virtual.building.library import compiled_library
from topologies.spec.spec import Spec
from topologies.spec.transports.mptcp.section import MptcpTransport

SUBFLOWS = "subflows.jsonl"
"""The file of a run directory with the further subflows of its connections."""

_BY_USER_SPACE = (("mptcp/enabled", "1"), ("mptcp/pm_type", "1"))
"""MPTCP_PM_TYPE_USERSPACE (net/mptcp/protocol.h)."""
_TURNED = "gwmptcp/sockets"
_SOCKETS = Path(__file__).with_name("sockets.c")
_SUBFLOW_BYTES = 6_000
"""A TCP socket with MPTCP's context of it, at one end."""


class EmulatedMptcp(EmulatedTcp):
    """As TCP. A guest that is prepared for any run does for this one."""

    def missing_natively(self, spec: Spec) -> list[str]:
        """As for TCP, and MPTCP."""
        missing = super().missing_natively(spec)
        if not SYSCTLS.is_dir():
            missing.append("transport.kind: mptcp: this kernel has no MPTCP (CONFIG_MPTCP)")
        return missing

    def preloaded_natively(self, spec: Spec) -> tuple[Path, ...]:
        """The library that turns sockets."""
        return (_library(),)

    def set_up(self, spec: Spec) -> SetUp | None:
        """Without devices."""
        assert isinstance(spec.transport, MptcpTransport)
        return partial(_set_up, spec.transport.subflows)

    def counters(self, network: Network) -> dict[str, int] | None:
        """The connections and subflows of all hosts."""
        return None if network.path_manager is None else asdict(network.path_manager.counts)

    def write_samples(self, network: Network, directory: Path) -> None:
        """The ports of subflows, from which their paths follow."""
        if network.path_manager is not None:
            lines = [json.dumps(asdict(one)) + "\n" for one in network.path_manager.subflows]
            (directory / SUBFLOWS).write_text("".join(lines))

    def most_ranks_per_process(self, spec: Spec) -> int:
        """One: a thread cannot tell its connections from their subflows in the kernel's table."""
        return 1

    def rank_bytes(self, spec: Spec, sent_bytes: int | None) -> int:
        """Further subflows of each two ranks, at both ends."""
        assert isinstance(spec.transport, MptcpTransport)
        ranks, count = spec.workload.ranks, spec.between_sockets.count
        return (spec.transport.subflows - 1) * count * ranks * (ranks - 1) * _SUBFLOW_BYTES


@cache
def _library() -> Path:
    return compiled_library(_SOCKETS, "-ldl", folder="mptcp", needed_by="MPTCP needs")


def _set_up(
    subflows: int, network: Network, hosts: Mapping[str, tuple[PortContext, ...]]
) -> Devices:
    by_name = network.fabric.by_name
    manager = network.path_manager = PathManager(
        {by_name[host].address: host for host in hosts}, subflows
    )
    for host in hosts:
        with network.enter(host):
            write_sysctls((*_BY_USER_SPACE, (_TURNED, "1")))
            manager.add_here(host)
    manager.start()
    return {}


PART = EmulatedMptcp()
