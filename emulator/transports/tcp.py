"""TCP, which every host has: nothing beside its settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from emulator.linux.capabilities import kernel_capabilities
from emulator.network.network import Network, SetUp
from emulator.transports.interface import EmulatedTransport
from topologies.spec.spec import Spec
from workloads.execution.transports.interface import Place, connections_variable


class EmulatedTcp(EmulatedTransport):
    """Sockets. The memory of connections is counted with the ranks that have them."""

    starts_alike = True

    def missing_natively(self, spec: Spec) -> list[str]:
        """Its congestion control."""
        control = spec.tcp.congestion_control
        found = kernel_capabilities().congestion_controls
        if found and control not in found:
            return [f"this kernel has no congestion control {control} (module tcp_{control})"]
        return []

    def prepare(self, spec: Spec, polls: bool) -> tuple[Path, ...]:
        """Nothing."""
        return ()

    def preloaded_natively(self, spec: Spec) -> tuple[Path, ...]:
        """None."""
        return ()

    def set_up(self, spec: Spec) -> SetUp | None:
        """None."""
        return None

    def place(self, spec: Spec, network: Network, host: str, logs: Path) -> Place | None:
        """None."""
        return None

    def environment(self, spec: Spec, place: Place | None) -> Mapping[str, str]:
        """How many connections ranks are to have, where there are several."""
        return connections_variable(spec.between_sockets)

    def counters(self, network: Network) -> dict[str, int] | None:
        """None."""
        return None

    def write_samples(self, network: Network, directory: Path) -> None:
        """Nothing."""

    def most_ranks_per_process(self, spec: Spec) -> int:
        """All."""
        return spec.workload.ranks

    def rank_bytes(self, spec: Spec, sent_bytes: int | None) -> int:
        """0."""
        return 0

    def fabric_bytes(self, spec: Spec) -> int:
        """0."""
        return 0

    def refuse_memory(self, spec: Spec, memory_bytes: int) -> None:
        """Nothing."""


PART = EmulatedTcp()
