"""UDP for the messages of programs: sockets, which ranks make."""

from __future__ import annotations

from pathlib import Path

from emulator.network.network import Network
from emulator.ports.counters import read_udp
from emulator.transports.tcp import EmulatedTcp
from topologies.spec.spec import Spec
from topologies.spec.transports.udp.section import UdpTransport
from workloads.execution.transports.interface import Place
from workloads.execution.transports.udp import UdpPlace

_SOCKETS_OF_PROCESS = 2048
"""The most sockets of a process, each of which has a file."""


def _of(spec: Spec) -> UdpTransport:
    assert isinstance(spec.transport, UdpTransport)
    return spec.transport


class EmulatedUdp(EmulatedTcp):
    """Nothing in a kernel beside TCP; any kernel has it."""

    starts_alike = False

    def place(self, spec: Spec, network: Network, host: str, logs: Path) -> Place | None:
        """The host's address, and the settings."""
        transport = _of(spec)
        return UdpPlace(
            str(network.fabric.by_name[host].address),
            logs,
            len(spec.plan.hosts),
            transport.ports,
            transport.payload_bytes,
            transport.window_bytes,
            transport.timeout_ns,
            transport.retry_count,
        )

    def counters(self, network: Network) -> dict[str, int] | None:
        """The datagrams of all hosts, and those that found no room at their socket."""
        found = {"received": 0, "sent": 0, "no_room": 0}
        for host in network.fabric.hosts:
            with network.enter(host.name):
                for name, value in read_udp().items():
                    found[name] += value
        return found

    def most_ranks_per_process(self, spec: Spec) -> int:
        """By the sockets of each: its ports and two, in the group of all ranks and one more."""
        return max(1, _SOCKETS_OF_PROCESS // (2 * (_of(spec).ports + 2)))

    def rank_bytes(self, spec: Spec, sent_bytes: int | None) -> int:
        """Unacknowledged datagrams are in queues and sockets, in twice the memory."""
        ranks, window = spec.workload.ranks, _of(spec).window_bytes
        most = ranks * (ranks - 1) * window
        return 2 * (most if sent_bytes is None else min(most, sent_bytes))


PART = EmulatedUdp()
