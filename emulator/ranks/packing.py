"""How many ranks of a run are threads of one process in the virtual kernel."""

from __future__ import annotations

from topologies.spec.queue_section import Dctcp, DropTail
from topologies.spec.spec import Spec
from topologies.spec.workload_section import CommandWorkload

_PACKED_FROM = 16


def ranks_per_process(spec: Spec) -> int:
    """What the spec says. `auto` is all of them from 16 on, where that changes no measured time,
    and 1 elsewhere."""
    asked = spec.virtual.ranks_per_process
    if not isinstance(asked, str):
        return asked
    many = spec.workload.ranks >= _PACKED_FROM
    return spec.workload.ranks if many and _measures_the_same(spec) else 1


def _measures_the_same(spec: Spec) -> bool:
    """Whether nothing that packing changes, which is the random numbers that the kernel draws and
    so the ports of connections, has a part in how packets travel."""
    fabric = spec.plan.fabric
    queues = [port.queue for link in fabric.links for port in (link.a, link.b)]
    return (
        not isinstance(spec.workload, CommandWorkload)
        and len(fabric.switches) == 1
        and len(fabric.links) == len(fabric.hosts)
        and all(isinstance(queue, DropTail | Dctcp) for queue in queues)
        and spec.tcp.congestion_control != "bbr"
        and not spec.faults
    )
