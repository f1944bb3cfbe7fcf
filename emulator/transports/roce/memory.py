"""The memory of ranks that send over RoCE in a guest: devices, queue pairs, packets under way.

A packet for which there is no memory is an error of its queue pair in Soft-RoCE, and ends the run.
So what can be told before a run is counted here, and what cannot fit is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from collectives.groups import groups_of
from emulator.transports.interface import TooLittleMemory
from topologies.fabrics.fabric import Fabric, NodeKind
from topologies.spec.spec import Spec
from topologies.spec.transports.roce.section import RoceTransport
from topologies.units import format_size

# 57 to 60 KB with room for 127 sends and receives; with TIMELY 16 KB more.
QUEUE_PAIR_BYTES = 64 * 2**10
TIMELY_BYTES = 24 * 2**10
"""RXE_SENT_TIMES times of packets, of 24 bytes each."""
ENTROPY_BYTES = 20 * 2**10
"""The value of each packet under way, a byte each, and what is known of 256 values."""
# Each network namespace, of a node or the guest's own, has files in /sys for each device: 25 KiB.
_VIEW_BYTES = 28 * 2**10
# A packet of 4096 bytes has headers, so that the kernel takes 8192 for it, and 256 for its sk_buff.
_PER_PAYLOAD = 2.1
# The kernel, Python and torch took so much with few ranks, and each rank (docs/guest-memory.md).
_LEAST_SYSTEM_BYTES = 440 * 10**6
_LEAST_RANK_BYTES = 500_000


def queue_pairs_of(spec: Spec) -> int:
    """How many the ranks of a spec make for one connection of each two, of all groups together; 0
    for programs, of which nothing is known."""
    workload = spec.workload
    if workload.program is not None:
        return 0
    found = workload.ranks * (workload.ranks - 1)
    for name, partition in groups_of(workload).items():
        if name != "world":
            found += sum(len(part) * (len(part) - 1) for part in partition)
    return found


def roce_bytes(spec: Spec, transport: RoceTransport, sent_bytes: int | None) -> int:
    """The memory of queue pairs and packets. `sent_bytes` is what all ranks send
    in a run at most, None where only the run tells."""
    pairs = queue_pairs_of(spec) * spec.between_ranks.count * _pair_bytes(transport)
    held = _buffer_bytes(spec.plan.fabric)
    under_way = held if sent_bytes is None else min(held, sent_bytes)
    return pairs + int(_PER_PAYLOAD * under_way)


def devices_bytes(spec: Spec) -> int:
    """The memory of a fabric's devices, one on each port of a host."""
    fabric = spec.plan.fabric
    devices = sum(len(fabric.links_of[host.name]) for host in fabric.hosts)
    return devices * (len(fabric.nodes) + 1) * _VIEW_BYTES


def refuse_too_many(spec: Spec, transport: RoceTransport, memory_bytes: int) -> None:
    """Raises TooLittleMemory where a guest of so much memory has no room for the queue pairs."""
    specs = [spec.of_job(job) for job in spec.jobs] if spec.jobs else [spec]
    pairs = sum(each.between_ranks.count * queue_pairs_of(each) for each in specs)
    if not pairs:
        return
    taken = pairs * _pair_bytes(transport)
    ranks = sum(each.workload.ranks for each in specs)
    devices = devices_bytes(spec)
    least = _LEAST_SYSTEM_BYTES + ranks * _LEAST_RANK_BYTES + taken + devices
    if memory_bytes < least:
        raise TooLittleMemory(
            f"{spec.name}: virtual.memory: found {format_size(memory_bytes)}; expected at least "
            f"{-(-least // 10**6)}MB: {pairs:,} queue pairs of {ranks} ranks take "
            f"{-(-taken // 10**6)}MB, the devices of the fabric {-(-devices // 10**6)}MB"
        )


def _pair_bytes(transport: RoceTransport) -> int:
    more = TIMELY_BYTES * (transport.congestion_control == "timely")
    return QUEUE_PAIR_BYTES + more + ENTROPY_BYTES * (transport.entropy is not None)


def _buffer_bytes(fabric: Fabric) -> int:
    """The most bytes in the queues of switches."""

    def of_ports(node: str) -> Iterable[int]:
        queues = [link.port(node).queue for link in fabric.links_of[node]]
        shared = [queue.buffer_bytes for queue in queues if queue.buffer_of_switch]
        yield max(shared, default=0)
        yield from (queue.buffer_bytes for queue in queues if not queue.buffer_of_switch)

    switches = [node.name for node in fabric.nodes if node.kind is NodeKind.SWITCH]
    return sum(sum(of_ports(name)) for name in switches)
