"""The native kernel: this machine's own, in real time."""

from __future__ import annotations

import os
from collections.abc import Iterator

from collectives.groups import selectors_of_groups
from emulator.linux.capabilities import kernel_capabilities
from emulator.network.blueprint import Blueprint
from emulator.network.sysctls import TcpSettings
from emulator.ports.arrangement import (
    NetemArrangement,
    PortArrangement,
    RateOnlyArrangement,
    UnsupportedPort,
)
from emulator.ports.stock_queues import StockArrangement
from emulator.ports.stock_queues import needed_qdiscs as needed_by_stock
from emulator.ports.token_depth import LATENESS_NS
from emulator.switches.stock_switch import SwitchArrangement, needs_switch_memory
from emulator.switches.stock_switch import needed_qdiscs as needed_by_switch
from emulator.transports import emulated
from topologies.fabrics.fabric import Fabric, Port
from topologies.spec.queue_section import Classes, DropTail, trims
from topologies.spec.routing_section import Srv6, resilient_of
from topologies.spec.run_sections import WrongClock
from topologies.spec.spec import Spec


def missing_for(spec: Spec) -> list[str]:
    """Capabilities that this machine lacks to run a spec natively, in words; empty when it can."""
    fabric = spec.plan.fabric
    missing = missing_for_fabric(fabric)
    if any(selectors_of_groups(one) for one in spec.parts.values()):
        missing.append("collectives.classes: stock kernels give no class to what ranks send")
    if any((one.socket_priority, one.rdma_priority) != (0, 0) for one in spec.parts.values()):
        missing.append("class: stock kernels give no class to what programs send")
    missing += emulated(spec).missing_natively(spec)
    programs = [each.program for each in spec.workloads if each.program is not None]
    if any(program.charges for program in programs):
        missing.append("workload.charge: a program's computing takes its own time there")
    if any(program.gpus_per_host for program in programs):
        missing.append("workload.gpus_per_host: a virtual GPU's time is virtual time")
    if spec.host.preloads or spec.host.interrupt_moderation_ns:
        missing.append(
            "host: its costs are charged in virtual time; here they are the machine's own"
        )
    if isinstance(spec.counters.interval_ns, int):
        missing.append("counters.interval: stock queue disciplines keep no history")
    if fabric.copied_class is not None:
        missing.append("fabric.scale_up.kind: copies: they take virtual time; allowed: packets")
    if any(isinstance(fault, WrongClock) for fault in spec.faults):
        missing.append("faults of kind clock: all hosts have the machine's own clock")
    if spec.virtual.thread_order:
        missing.append("virtual.thread_order: the machine's own kernel orders threads")
    if needs_switch_memory(fabric) and any(f.kind in ("link-down", "link-up") for f in spec.faults):
        missing.append(
            "faults of links going down: with lossless, shared or voq queues the native kernel "
            "would count what a link lost as waiting for good"
        )
    return missing


def missing_for_fabric(fabric: Fabric) -> list[str]:
    """The capabilities that this machine lacks to make a fabric natively, in words; empty when it
    can."""
    missing = []
    if any(trims(port.queue) for link in fabric.links for port in (link.a, link.b)):
        missing.append("fabric.queue.trim: Linux's own queues do not cut packets")
    if not fabric.choice.by_linux:
        missing.append(
            f"fabric.routing.kind: {fabric.choice.kind}: stock kernels choose next hops by a hash "
            "of headers (ecmp and weighted), not by packet, pause, queue or digits of a number"
        )
    if isinstance(fabric.choice, Srv6):
        missing += _missing_for_segments(fabric)
    if resilient_of(fabric.choice) is not None and not kernel_capabilities().resilient_groups:
        missing.append(
            "fabric.routing.resilient: this kernel has no resilient next hop groups (Linux 5.13)"
        )
    if os.geteuid() != 0:
        missing.append("root is needed to make network namespaces (sudo groundwire ...)")
    if not has_netem() and any(link.delay_ns for link in fabric.links):
        missing.append("its links have delays, and this kernel has no netem (module sch_netem)")
        return missing
    if any(isinstance(port.queue, Classes) for port in fabric_ports(fabric)):
        missing.append(
            "fabric.queue.kind: classes: stock kernels have no port of several disciplines"
        )
        return missing
    arrangement = native_arrangement(fabric)
    if isinstance(arrangement, StockArrangement | SwitchArrangement):
        return missing + _missing_for_stock(fabric)
    plan = Blueprint(fabric, arrangement, TcpSettings())
    try:
        for contexts in plan.contexts.values():
            for context in contexts:
                arrangement.requests(context)
    except UnsupportedPort as refusal:
        missing.append(str(refusal))
    return missing


def _missing_for_segments(fabric: Fabric) -> list[str]:
    missing = []
    if not kernel_capabilities().segments:
        missing.append(
            "fabric.routing.kind: srv6: this kernel has no segment routing with micro-segments "
            "(CONFIG_IPV6_SEG6_LWTUNNEL, Linux 6.1)"
        )
    if any(not isinstance(port.queue, DropTail) for port in fabric_ports(fabric)):
        missing.append(
            "fabric.routing.kind: srv6: stock kernels give the outer header no traffic class, so "
            "that queues do not mark and know no classes; allowed: fabric.queue.kind: droptail"
        )
    return missing


def _missing_for_stock(fabric: Fabric) -> list[str]:
    counts = needs_switch_memory(fabric)
    try:
        needed = needed_by_switch(fabric) if counts else needed_by_stock(fabric)
    except UnsupportedPort as refusal:
        return [str(refusal)]
    found = kernel_capabilities()
    missing = [
        f"its queues need the queue discipline {kind} (module sch_{kind})"
        for kind in sorted(needed - found.qdiscs)
    ]
    if "ifb" not in found.devices:
        missing.append("its delay lines need intermediate devices (module ifb)")
    if not found.redirect:
        missing.append("its delay lines need redirection (modules cls_matchall, act_mirred)")
    if counts and not found.classifiers:
        missing.append("its switches' memory is counted by eBPF classifiers (bpf(2), cls_bpf)")
    return missing


def native_arrangement(fabric: Fabric) -> PortArrangement:
    """How ports are made here: as plainly as the fabric's queues allow."""
    if needs_switch_memory(fabric):
        return SwitchArrangement(fabric, lateness_ns=LATENESS_NS)
    if any(port.queue.kind != "droptail" for port in fabric_ports(fabric)):
        return StockArrangement(lateness_ns=LATENESS_NS)
    return NetemArrangement() if has_netem() else RateOnlyArrangement(lateness_ns=LATENESS_NS)


def fabric_ports(fabric: Fabric) -> Iterator[Port]:
    """All ports, of hosts too."""
    return (port for link in fabric.links for port in (link.a, link.b))


def has_netem() -> bool:
    """Whether this kernel can delay packets."""
    return "netem" in kernel_capabilities().qdiscs


def can_watch_ports() -> bool:
    """Whether this kernel can count what ports send while they are busy."""
    found = kernel_capabilities()
    return found.classifiers and "clsact" in found.qdiscs
