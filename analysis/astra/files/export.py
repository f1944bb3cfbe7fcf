"""A workload as a complete ASTRA-sim input set, which ASTRA-sim takes unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.astra.files.memory import MemoryConfig, render_memory
from analysis.astra.files.network import NetworkConfig, render_network
from analysis.astra.files.system import COLLECTIVES, Implementation, SystemConfig, render_system
from analysis.chakra.codec import write_trace
from analysis.chakra.expand import expand, runs_by_ranks
from analysis.chakra.files import FIRST_TAG
from analysis.chakra.graph import (
    ComputeNode,
    Graph,
    GraphNode,
    ReceiveNode,
    SendNode,
    number_groups,
    to_trace,
)
from analysis.chakra.group_file import CommunicatorGroup, render_groups
from collectives.call import CollectiveCall
from collectives.kinds import Kind
from collectives.schedule.gloo import PREAMBLE_BYTES

_KNOWN = (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL)
# At one operation a picosecond a computation takes what its operations say, to the nanosecond.
_EXACT_PEAK_TFLOPS = 1.0
_OPERATIONS_PER_NS = 1000


@dataclass(frozen=True, slots=True)
class InputSet:
    """The files of one ASTRA-sim run."""

    workload_prefix: Path
    system: Path
    network: Path
    memory: Path
    groups: Path | None

    def options(self) -> list[str]:
        """The options that name them, for ASTRA-sim and for `groundwire astra`."""
        found = [
            f"--workload-configuration={self.workload_prefix}",
            f"--system-configuration={self.system}",
            f"--network-configuration={self.network}",
            f"--remote-memory-configuration={self.memory}",
        ]
        if self.groups is not None:
            found.append(f"--comm-group-configuration={self.groups}")
        return found


def default_system(dimensions: int, algorithm: str = "ring", *, splits: int = 1) -> SystemConfig:
    """A system file that runs everything by one algorithm."""
    return SystemConfig(
        {name: (Implementation(algorithm),) * dimensions for name in COLLECTIVES},
        preferred_dataset_splits=splits,
        endpoint_delay_ns=10,
        local_mem_bw_gbps=1600.0,
    )


def write_inputs(
    folder: Path | str,
    graphs: Sequence[Graph],
    network: NetworkConfig,
    system: SystemConfig,
    memory: MemoryConfig | None = None,
    *,
    seed: int = 1,
) -> InputSet:
    """Write the traces (one per rank), system.json, network.yml, memory.json and, when there are
    communicator groups, groups.json. `graphs[rank]` is that rank's.

    ASTRA-sim knows all-reduce, all-gather, reduce-scatter and all-to-all; other collectives go out
    as the sends and receives that Gloo makes of them, empty messages as their 48-byte preamble.
    Collectives that run as programs go out as their programs' messages.
    Its traces count microseconds, so computation goes out as operations at one per picosecond with
    the roofline model on, which gives whole nanoseconds; one that took none takes one.
    Raises ValueError when the graphs do not fit the network, or when local-mem-bw is too low for
    that.
    """
    if len(graphs) != network.npus:
        raise ValueError(f"{len(graphs)} graphs for a network of {network.npus} NPUs")
    if system.local_mem_bw_gbps < 1:
        raise ValueError(f"local-mem-bw is {system.local_mem_bw_gbps}, needs at least 1 GB/s")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    expanded = expand(graphs, _unknown, first_tag=FIRST_TAG, seed=seed)
    groups = number_groups(expanded)
    prefix = folder / "workload"
    for rank, graph in enumerate(expanded):
        nodes = tuple(_for_astra(node) for node in graph) or (_nothing(),)
        write_trace(f"{prefix}.{rank}.et", to_trace(nodes, groups))
    subgroups = [CommunicatorGroup(number, ranks) for number, ranks in groups.subgroups().items()]
    exact = replace(system, roofline_enabled=True, peak_perf_tflops=_EXACT_PEAK_TFLOPS)
    for name, text in (
        ("system.json", render_system(exact)),
        ("network.yml", render_network(network)),
        ("memory.json", render_memory(memory or MemoryConfig())),
    ):
        (folder / name).write_text(text)
    groups_path = folder / "groups.json"
    if subgroups:
        groups_path.write_text(render_groups(subgroups))
    return InputSet(
        prefix,
        folder / "system.json",
        folder / "network.yml",
        folder / "memory.json",
        groups_path if subgroups else None,
    )


def _unknown(call: CollectiveCall) -> bool:
    return call.kind not in _KNOWN or runs_by_ranks(call)


def _nothing() -> ComputeNode:
    """The node of a rank without work: ASTRA-sim refuses traces without nodes."""
    return _for_compute(ComputeNode(id=0, name="nothing"))


def _for_compute(node: ComputeNode) -> ComputeNode:
    duration_ns = max(node.duration_ns, 1)
    # Half a nanosecond more, as the original truncates what rounding may have left below.
    flops = duration_ns * _OPERATIONS_PER_NS + _OPERATIONS_PER_NS // 2
    return replace(node, flops=flops, memory_bytes=1)


def _for_astra(node: GraphNode) -> GraphNode:
    if isinstance(node, ComputeNode):
        return _for_compute(node)
    if isinstance(node, SendNode | ReceiveNode) and node.size_bytes == 0:
        return replace(node, size_bytes=PREAMBLE_BYTES)
    return node
