"""How much memory a guest needs for a spec."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from collectives.in_network.of_run import nodes_of
from collectives.in_network.on_demand import nodes_on_demand
from collectives.settings import settings_of
from emulator.capture.ring_room import ring_bytes_of_guest
from emulator.guest_work import guest_work
from emulator.needed_kernel import needed_variant
from emulator.ports.port_qdisc import SAMPLE_BYTES
from emulator.ports.sampling import sampling_of
from emulator.ranks.packing import ranks_per_process
from emulator.transports import emulated
from emulator.virtual.building.variant import KernelVariant
from topologies.fabrics.selectors import select_ports
from topologies.routing.segments import segments_of
from topologies.spec.routing_section import resilient_of
from topologies.spec.spec import Spec
from workloads.models.planned import programs_ahead

# The kernel, Python and torch's CPU build took 440 MB and each rank 15 MB (docs/guest-memory.md).
_SYSTEM_BYTES = 800 * 2**20
# The process from which ranks are forked has 309 MB of its own in builds for accelerators, for 152
# in torch's CPU build, and 216 MB of files for 80.
_ACCELERATORS_BYTES = 400 * 2**20
_RANK_BYTES = 24 * 2**20
# A rank that is a thread of a process took 0.5 MB, and an end of a connection 7.5 kB, of which Gloo
# has a part before it is connected.
_PACKED_RANK_BYTES = 2 * 2**20
_CONNECTION_END_BYTES = 10 * 2**10
_PAIR_BYTES = 2 * 2**10
# A Python process with torch and a small model, which shares nothing with others but files.
_PROGRAM_BYTES = 400 * 2**20
# A rank with a virtual GPU is forked from one import, and has no contents of large tensors. It took
# 89 MB (benchmarks/results/2026-11-27-simulated-network.md), and with DeepSpeed, which each imports
# by itself, more than 210. Few are given what other programs get.
_GPU_RANK_BYTES = 200 * 2**20
_FEW_GPU_RANKS = 8
# A node with IPv6 took 120 kB more (benchmarks/results/2026-11-27-planes.md).
_IPV6_NODE_BYTES = 160 * 2**10
# A next hop that wraps packets: its route's part, its list, and what it remembers.
_WRAPPING_HOP_BYTES = 2**10
# struct nh_res_bucket; its group's table, two of its lists of next hops, and their counters.
_BUCKET_BYTES, _GROUP_BYTES, _PAGE_BYTES = 32, 2 * 2**10, 4096
_SAMPLES_PER_BLOCK = 4096 // SAMPLE_BYTES
# Bytes that the server of ranks takes, for each message, to make a program and to prove it right.
# 14,592 messages took 35.6 MB.
_PROGRAM_MESSAGE_BYTES = 2560


def guest_memory_bytes(spec: Spec, run_directory: Path) -> int:
    """Memory that a guest needs: the system and torch, then per rank its own pages, its tensors,
    what is on its way and what malloc keeps of tensors that are gone.

    The tensors that a trace exchanges are in the replay programs of the run directory. Raises
    OSError when they are not there, pydantic.ValidationError.
    """
    if spec.jobs:
        own = [
            guest_memory_bytes(spec.of_job(job), run_directory / "jobs" / job.name)
            for job in spec.jobs
        ]
        return sum(own) - (len(own) - 1) * (_SYSTEM_BYTES + emulated(spec).fabric_bytes(spec))
    workload = spec.workload
    if workload.program is not None:
        program = workload.program
        forked = program.gpus_per_host is not None and spec.compute.contents == "small"
        sharing = max(0, workload.ranks - _FEW_GPU_RANKS) if forked else 0
        programs_bytes = (workload.ranks - sharing) * _PROGRAM_BYTES + sharing * _GPU_RANK_BYTES
        nodes_bytes = len(nodes_on_demand(spec)) * _RANK_BYTES
        fabric_bytes = emulated(spec).fabric_bytes(spec) + _routes_bytes(spec)
        return _SYSTEM_BYTES + programs_bytes + nodes_bytes + fabric_bytes
    system_bytes = _SYSTEM_BYTES
    if not version("torch").endswith("+cpu"):
        system_bytes += _ACCELERATORS_BYTES
    system_bytes += len(nodes_of(settings_of(spec))) * _RANK_BYTES
    work = guest_work(spec)
    sent = work.sent_bytes(spec)
    an_iteration = None if sent is None else sent // max(1, workload.iterations)
    more_bytes = _samples_bytes(spec, sent) + emulated(spec).fabric_bytes(spec)
    more_bytes += _routes_bytes(spec)
    more_bytes += emulated(spec).rank_bytes(spec, an_iteration)
    more_bytes += work.tensors_bytes(spec, run_directory) + _programs_bytes(spec)
    needed_bytes = system_bytes + _ranks_bytes(spec) + more_bytes
    return needed_bytes + _rings_bytes(spec, needed_bytes)


def _programs_bytes(spec: Spec) -> int:
    """The memory of the programs of collectives that are known ahead, which all ranks share."""
    programs = programs_ahead(spec.workload, settings_of(spec))
    return _PROGRAM_MESSAGE_BYTES * sum(program.message_count for program in programs)


def _routes_bytes(spec: Spec) -> int:
    """The memory of routes by segments or by resilient groups."""
    fabric, groups = spec.plan.fabric, spec.plan.routes.groups
    settings = resilient_of(fabric.choice)
    if groups is not None and settings is not None:
        table = -(-(_GROUP_BYTES + settings.buckets * _BUCKET_BYTES) // _PAGE_BYTES) * _PAGE_BYTES
        return table * sum(1 for node in fabric.nodes for _ in groups.of(node.name))
    return _segments_bytes(spec)


def _segments_bytes(spec: Spec) -> int:
    """The memory of IPv6 and of hosts' routes, where hosts write segments."""
    fabric = spec.plan.fabric
    if needed_variant(fabric) is not KernelVariant.IPV6:
        return 0
    first, last = fabric.hosts[0].name, fabric.hosts[-1].name
    paths = len(segments_of(spec.plan.routes).paths(first, last))
    wrapping = len(fabric.hosts) ** 2 * paths * _WRAPPING_HOP_BYTES
    return len(fabric.nodes) * _IPV6_NODE_BYTES + wrapping


def _rings_bytes(spec: Spec, free_bytes: int) -> int:
    """The memory of the capture's rings, in a guest that has so much memory besides."""
    fabric = spec.plan.fabric
    ports = {port for point in spec.capture.points for port in select_ports(fabric, point)}
    rates = [link.rate_bps for link in fabric.links for port in (link.a, link.b) if port in ports]
    return ring_bytes_of_guest(
        spec.capture.backend,
        rates,
        spec.held_ns,
        spec.capture.snaplen_bytes,
        free_bytes,
    )


def _samples_bytes(spec: Spec, sent_bytes: int | None) -> int:
    """The most memory of samples of ports, where ranks send so much (None: nobody knows): two for
    each packet at each port that it passes, as its coming and its going change the backlog, and two
    packets and an acknowledgement for each full frame."""
    fabric = spec.plan.fabric
    sampling = sampling_of(spec, fabric)
    if sampling is None:
        return 0
    most = len(sampling.ports) * sampling.capacity
    if sent_bytes is not None:
        import networkx as nx

        hops = nx.single_source_shortest_path_length(fabric.graph, fabric.hosts[0].name)
        longest = 2 * max(hops.values())
        frames = -(-sent_bytes // min(link.mtu_bytes for link in fabric.links))
        most = min(most, 2 * 3 * frames * longest + len(sampling.ports) * _SAMPLES_PER_BLOCK)
    return most * SAMPLE_BYTES


def _ranks_bytes(spec: Spec) -> int:
    """The memory of ranks that have no tensors yet, but all of their connections."""
    ranks, threads = spec.workload.ranks, ranks_per_process(spec)
    meshes = spec.between_sockets.count
    connected = ranks - 1
    if spec.virtual.connections != "eager":
        connected = guest_work(spec).connected(spec)
    if threads == 1:
        # A rank has room for its first connections.
        further = (meshes - 1) * ((ranks - 1) * _PAIR_BYTES + connected * _CONNECTION_END_BYTES)
        return ranks * (_RANK_BYTES + further)
    processes = -(-ranks // threads)
    pairs_bytes = meshes * ranks * (ranks - 1) * _PAIR_BYTES
    ends_bytes = meshes * ranks * connected * _CONNECTION_END_BYTES
    return processes * _RANK_BYTES + ranks * _PACKED_RANK_BYTES + pairs_bytes + ends_bytes
