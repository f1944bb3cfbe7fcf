"""RoCE in a kernel: Soft-RoCE's devices, one on each port of a host, and the memory of queue
pairs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from emulator.linux.soft_roce import soft_roce
from emulator.network.network import Network, SetUp
from emulator.rdma.compiled import polling_library, verbs_library
from emulator.transports.interface import EmulatedTransport
from emulator.transports.roce import memory
from emulator.transports.roce.devices import devices_by, read_counters, write_rates
from emulator.transports.roce.place import roce_place
from emulator.transports.tcp import EmulatedTcp
from topologies.spec.spec import Spec
from topologies.spec.transports.roce.section import RoceTransport
from workloads.execution.transports.interface import Place
from workloads.execution.verbs.place import RocePlace

_MOST_QUEUE_PAIRS = 2048
"""The most queue pairs of a process, whose rings are mappings besides: 16,256 were too many."""


def _of(spec: Spec) -> RoceTransport:
    assert isinstance(spec.transport, RoceTransport)
    return spec.transport


class EmulatedRoce(EmulatedTransport):
    """Queue pairs of Linux's Soft-RoCE, and TCP beside them."""

    starts_alike = False
    counted_as = "roce"

    def missing_natively(self, spec: Spec) -> list[str]:
        """The lacks of TCP, and Soft-RoCE that hears in namespaces and has all that is asked."""
        lacks = EmulatedTcp().missing_natively(spec)
        found = soft_roce()
        if not found.hears:
            why = f" ({found.refused})" if found.refused else ""
            lacks.append(
                "transport.kind: roce: this kernel has no Soft-RoCE that hears in network "
                f"namespaces{why}"
            )
        elif not found.controls and not _of(spec).as_linux_has_it:
            lacks.append(
                "transport: this kernel's Soft-RoCE has neither congestion_control nor ecn, "
                "window, ack_every or loss_recovery: selective-repeat"
            )
        return lacks

    def prepare(self, spec: Spec, polls: bool) -> tuple[Path, ...]:
        """The library by which ranks use verbs, and that of programs that poll."""
        verbs_library()
        return (polling_library(),) if polls else ()

    def preloaded_natively(self, spec: Spec) -> tuple[Path, ...]:
        """None."""
        return ()

    def set_up(self, spec: Spec) -> SetUp | None:
        """A device on each port of a host."""
        return devices_by(_of(spec))

    def place(self, spec: Spec, network: Network, host: str, logs: Path) -> Place | None:
        """Its devices."""
        return roce_place(spec, _of(spec), network, host, logs)

    def environment(self, spec: Spec, place: Place | None) -> Mapping[str, str]:
        """The devices' names, for programs that use verbs themselves."""
        assert isinstance(place, RocePlace)
        return {"GROUNDWIRE_RDMA_DEVICES": ",".join(place.devices)}

    def counters(self, network: Network) -> dict[str, int] | None:
        """Those of all queue pairs."""
        devices = [device for names in network.devices.values() for device in names]
        return read_counters(devices) if devices else None

    def write_samples(self, network: Network, directory: Path) -> None:
        """The rates of queue pairs."""
        write_rates(network, directory / "rates.jsonl")

    def most_ranks_per_process(self, spec: Spec) -> int:
        """By the queue pairs of each with all others."""
        return _MOST_QUEUE_PAIRS // (spec.between_ranks.count * (spec.workload.ranks - 1))

    def rank_bytes(self, spec: Spec, sent_bytes: int | None) -> int:
        """Queue pairs, and packets in the switches' buffers."""
        return memory.roce_bytes(spec, _of(spec), sent_bytes)

    def fabric_bytes(self, spec: Spec) -> int:
        """Devices."""
        return memory.devices_bytes(spec)

    def refuse_memory(self, spec: Spec, memory_bytes: int) -> None:
        """By the number of queue pairs."""
        memory.refuse_too_many(spec, _of(spec), memory_bytes)


PART = EmulatedRoce()
