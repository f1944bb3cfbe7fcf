"""How many ranks of a run are threads of one process in the virtual kernel."""

from __future__ import annotations

from emulator.transports import emulated
from topologies.spec.queue_section import Dctcp, DropTail
from topologies.spec.run_sections import FaultSpec, Freeze, Kill
from topologies.spec.spec import Spec

_PACKED_FROM = 16
_ALWAYS_FROM = 64

_MOST_THREADS = 4096
"""The most threads of a process. The guest's memory that a process has mapped, page by page, is as
many mappings of the host, which allows a process 65,530 (vm.max_map_count): Python and torch have
5,000 to 10,000, a thread 5 to 6, mostly of its stack."""
_THREADS = 4
_SEQUENCES = 3
"""A thread each, of a chunk under way."""


def ranks_per_process(spec: Spec) -> int:
    """The spec's number of ranks a process. `auto` is as many as a process has room for: from 16
    ranks on where that changes no measured time, from 64 on everywhere, and 1 elsewhere, as where a
    fault has one of them stand still, or kills one."""
    asked = spec.virtual.ranks_per_process
    if not isinstance(asked, str):
        return asked
    ranks = spec.workload.ranks
    if spec.workload.program is not None or any(_takes_one(fault) for fault in spec.faults):
        return 1
    if ranks >= _ALWAYS_FROM or (ranks >= _PACKED_FROM and _measures_the_same(spec)):
        most = emulated(spec).most_ranks_per_process(spec)
        return max(1, min(ranks, most, _MOST_THREADS // _threads(spec)))
    return 1


def _takes_one(fault: FaultSpec) -> bool:
    """Whether a fault is of ranks that have to be processes of their own."""
    return isinstance(fault, Freeze) or (isinstance(fault, Kill) and fault.switch is None)


def _threads(spec: Spec) -> int:
    """Threads of a rank: its own, three of Gloo's for a group, as many for each further connection
    of two ranks, and those of chunks under way."""
    section = spec.collectives
    if section.backend == "gloo":
        return _THREADS
    more = (_THREADS - 1) * (spec.between_sockets.count - 1)
    entries = [entry for entry in dict(section).values() if isinstance(entry, dict)]
    chunks = max([section.chunks, *(entry.get("chunks", 1) for entry in entries)])
    return _THREADS + more + _SEQUENCES * (section.in_flight or chunks)


def _measures_the_same(spec: Spec) -> bool:
    """Whether nothing that packing changes, which is the random numbers that the kernel draws and
    so the ports of connections, has a part in how packets travel."""
    fabric = spec.plan.fabric
    queues = [port.queue for link in fabric.links for port in (link.a, link.b)]
    return (
        len(fabric.switches) == 1
        and len(fabric.links) == len(fabric.hosts)
        and all(isinstance(queue, DropTail | Dctcp) for queue in queues)
        and spec.tcp.congestion_control != "bbr"
        and not spec.faults
    )
