"""NCCL's choice of an algorithm and a protocol, by its model of time.

Follows ncclTopoTuneModel and ncclTopoGetAlgoTime of src/graph/tuning.cc, and updateCollCostTable of
src/enqueue.cc (2.27, and for the tables of 2.30 its tuning.cc).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from collectives.algorithms.base import DoesNotFit
from collectives.kinds import Kind
from collectives.nccl.communicator import Communicator
from collectives.nccl.division import COLLNET, MULTICAST, Divider
from collectives.nccl.environment import ALGORITHMS, FUNCTIONS, PROTOCOLS
from collectives.nccl.graph import Graph, Pattern
from collectives.nccl.nvls_model import NvlsModel, generation_of
from collectives.nccl.search import MAX_DIRECT_GPUS
from collectives.nccl.server import PathType
from collectives.nccl.tuner_file import TunerFile
from collectives.nccl.tuner_tables import TABLES

FUNCTION_OF: Mapping[Kind, str] = {
    Kind.BROADCAST: "Broadcast",
    Kind.REDUCE: "Reduce",
    Kind.ALL_GATHER: "AllGather",
    Kind.REDUCE_SCATTER: "ReduceScatter",
    Kind.ALL_REDUCE: "AllReduce",
}
"""NCCL's names of the kinds that its tuner knows."""

_CORRECTED_TREE_POWERS = 23
"""Larger trees are not corrected (ncclTopoGetAlgoTime)."""

_DIRECT_SHARE_90 = 0.85
"""The share that CollNetDirect reaches on Hopper and later (ncclTopoTuneModel)."""

_PEER_US = 0.4
"""The time that each GPU but one adds to a step of CollNetDirect: it sends to one after the other
(ncclTopoTuneModel)."""

_PAT_BASE_US = 8.0
"""The base time of PAT (ncclTopoTuneModel)."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The way of one collective. `time_us` is NCCL's own estimate. A chunk is the data that a rank
    handles at once in a channel; it has `slices`, of which `ahead` can be under way to a rank."""

    function: str
    algorithm: str
    protocol: str
    channels: int
    threads: int
    time_us: float
    chunk_bytes: int
    slices: int
    ahead: int
    step_ns: int = 0
    """A GPU's time for each message: the tuner's latency of an NVLink step."""
    launch_ns: int = 0
    """A GPU's time before its first message: the tuner's base latency, in which is the launch of
    the kernel. CollNetDirect's has its steps inside a server as well: its messages take what one
    more peer does."""

    @property
    def by_switches(self) -> bool:
        """Whether switches reduce: NVLink switches of servers, or those of the network."""
        return self.algorithm in (*MULTICAST, *COLLNET)


class Tuner:
    """The model of one communicator. Raises DoesNotFit for a version without tables."""

    def __init__(
        self, communicator: Communicator, version: str = "2.27", file: TunerFile | None = None
    ) -> None:
        if version not in TABLES:
            raise DoesNotFit("version", version, ", ".join(TABLES))
        self.communicator = communicator
        self.tables = TABLES[version]
        self.environment = communicator.environment
        self.file = file

    @property
    def _nvls(self) -> NvlsModel:
        return NvlsModel(self.communicator, self.tables)

    @cached_property
    def divider(self) -> Divider:
        """How calls are divided."""
        _, nvls_gbytes = self.model["AllReduce", "NVLS", "Simple"]
        return Divider(self.communicator, nvls_gbytes)

    @cached_property
    def model(self) -> Mapping[tuple[str, str, str], tuple[float, float]]:
        """(function, algorithm, protocol) -> latency in us and bandwidth in GB/s; a bandwidth of 0
        is what cannot be."""
        found = {}
        for function in FUNCTIONS:
            for algorithm in ALGORITHMS:
                for protocol in PROTOCOLS:
                    found[function, algorithm, protocol] = self._modelled(
                        function, algorithm, protocol
                    )
        return found

    def time_us(
        self, function: str, algorithm: str, protocol: str, size_bytes: int
    ) -> float | None:
        """NCCL's estimate of a collective (ncclTopoGetAlgoTime); None where it cannot be."""
        latency, bandwidth = self.model[function, algorithm, protocol]
        if bandwidth == 0:
            return None
        comm = self.communicator
        power = (size_bytes >> 6).bit_length() - 1
        corrected = 0
        if function == "AllReduce" and algorithm == "Tree":
            corrected = _CORRECTED_TREE_POWERS
        if function == "AllReduce" and algorithm == "NVLSTree" and self._nvls.corrects_trees:
            corrected = len(self.tables.tree_correction[protocol])
        if 0 <= power < corrected:
            bandwidth *= self.tables.tree_correction[protocol][power]
        if (
            (algorithm, protocol, function) == ("Ring", "Simple", "AllReduce")
            and comm.nodes > 1
            and size_bytes // (comm.channels * comm.size) >= 64
        ):
            latency *= 1.9 if comm.compute_capability < 80 else 1.4
        return latency + size_bytes / (1000 * bandwidth)

    @property
    def multicast_gbytes(self) -> float:
        """The bandwidth of an all-reduce by NVLS in a server, in GB/s of its data."""
        return self._nvls.server_gbytes

    @property
    def multicast_latency_ns(self) -> int:
        """The latency of NVLS in a server."""
        return round(self.tables.nvlink_latency["NVLS"][PROTOCOLS.index("Simple")] * 1000)

    def choose(self, kind: Kind, size_bytes: int) -> Choice:
        """NCCL's choice for a collective of this size, as its kind counts it. Raises DoesNotFit
        where variables leave nothing."""
        function = FUNCTION_OF[kind]
        best: tuple[float, str, str] | None = None
        for algorithm in ALGORITHMS:
            for protocol in PROTOCOLS:
                time_us = self.time_us(function, algorithm, protocol, size_bytes)
                if time_us is not None and (best is None or time_us < best[0]):
                    best = time_us, algorithm, protocol
        asked = None
        if self.file is not None:
            asked = self.file.row(
                function, size_bytes, self.communicator.nodes, self.communicator.size
            )
            if asked is not None and asked.algorithm is not None:
                time_us = self.time_us(function, asked.algorithm, asked.protocol, size_bytes)
                if time_us is not None:
                    best = time_us, asked.algorithm, asked.protocol
        if best is None:
            given = ", ".join(f"{k}={v}" for k, v in self.environment.given.items())
            raise DoesNotFit("env", given or "nothing", self._could_be(function))
        time_us, algorithm, protocol = best
        divider = self.divider
        channels, threads = divider.channels(algorithm, protocol, size_bytes)
        if asked is not None and asked.channels:
            channels = asked.channels
        used = divider.used(function, algorithm, protocol, channels, size_bytes)
        chunk, slices, ahead = divider.chunk(function, algorithm, protocol, channels, size_bytes)
        step_us, launch_us = self._taken_us(algorithm, protocol)
        return Choice(
            *(function, algorithm, protocol, used, threads, time_us, chunk, slices, ahead),
            round(step_us * 1000),
            round(launch_us * 1000),
        )

    def point_to_point_us(self, protocol: str) -> tuple[float, float]:
        """The time of a GPU for each message of grouped sends and before the first, which NCCL's
        model does not have: as in a ring."""
        return self._taken_us("Ring", protocol)

    def _taken_us(self, algorithm: str, protocol: str) -> tuple[float, float]:
        """The time of a GPU for each message, and before the first one."""
        column = PROTOCOLS.index(protocol)
        step = self.tables.nvlink_latency[algorithm][column]
        base = self.tables.base_latency.get(algorithm, (0.0, 0.0, 0.0))[column]
        match algorithm:
            case "CollNetDirect":
                inside = self.communicator.size > self.communicator.nodes
                return _PEER_US, 2 * step * inside
            case "NVLS" | "NVLSTree":
                return 0.0, base  # the switch has it
            case "PAT":
                return step, _PAT_BASE_US
            case _:
                return step, base

    # ------------------------------------------------------------------ the model of time

    def _modelled(self, function: str, algorithm: str, protocol: str) -> tuple[float, float]:
        comm = self.communicator
        if not self._exists(function, algorithm, protocol):
            return 0.0, 0.0
        ranks, nodes = comm.size, comm.nodes
        each = ranks / nodes
        graph = self._graph(algorithm)
        column = min(nodes, 3) - 1
        generation = generation_of(comm)
        inside = nodes <= 2 or algorithm in COLLNET
        bandwidth = graph.bw_intra if inside else graph.bw_inter
        if algorithm in MULTICAST:
            bandwidth = self._nvls.channel_gbytes(function, algorithm)
        channels = graph.channels
        bus = channels * bandwidth
        row = generation if nodes == 1 else 1 if self._has_amd() else 0
        ll_most = self.tables.ll_most[row][column]
        if algorithm == "Ring" and protocol == "LL":
            bus = min(ll_most, bus * 0.5)
        if algorithm == "Ring" and protocol == "LL128":
            bus = min(bus * 0.92, channels * self.tables.ring_ll128_most[generation][column])
        if algorithm == "Tree":
            if function == "AllReduce":
                bus = min(bus * 0.92, channels * self.tables.tree_most[generation][column])
            if protocol == "LL":
                bus = min(bus / 3.8, ll_most)
            if protocol == "LL128":
                share = 7 / 9 if nodes == 1 else 120 / 128
                most = channels * self.tables.tree_ll128_most[generation][column]
                bus = min(bus * share, most)
            if comm.max_tree_pattern is Pattern.TREE:
                bus *= 0.85
        if algorithm == "PAT":
            bus *= 0.75
        if algorithm == "CollNetDirect" and function == "AllReduce":
            # All GPUs are to have a NIC of their own.
            factor = each / channels
            bus /= factor - (factor - 1) / 2
            if comm.compute_capability >= 90:
                bus *= _DIRECT_SHARE_90
        steps = _steps(function, ranks)
        if not (algorithm != "Ring" and function in ("AllGather", "ReduceScatter")):
            if algorithm == "Ring":
                bus *= ranks / steps
            elif algorithm in MULTICAST:
                bus *= self._nvls.of_data
            else:
                bus *= 0.5
        return self._latency(function, algorithm, protocol, graph), bus

    def _latency(self, function: str, algorithm: str, protocol: str, graph: Graph) -> float:
        comm = self.communicator
        ranks, nodes = comm.size, comm.nodes
        column = PROTOCOLS.index(protocol)
        inside = self.tables.nvlink_latency[algorithm][column]
        alone = ranks == nodes
        across = self.tables.net_latency["Tree" if alone else algorithm][column]
        # With Simple what has come is flushed: that takes the way once more.
        told = max(server.net_latency_us for server in comm.servers)
        across += told * (2 if protocol == "Simple" else 1)
        latency = self.tables.base_latency.get(algorithm, (0.0, 0.0, 0.0))[column]
        depth = nodes.bit_length() - 1
        match algorithm:
            case "Ring":
                if function in ("Reduce", "Broadcast"):
                    table = self.tables.nvlink_latency if nodes == 1 else self.tables.net_latency
                    if graph.same_channels:
                        return latency + table["Ring"][column]
                    each = table["Tree" if protocol == "Simple" else "Ring"][column]
                    return latency + ranks * each
                overhead = 0.0
                if nodes > 1:
                    overhead = self._net_overhead_us() * (3 if protocol == "Simple" else 1)
                steps = _steps(function, ranks)
                beyond = 0
                if nodes > 1:
                    beyond = (nodes - 1) * (2 if function == "AllReduce" else 1)
                return latency + (steps - beyond) * max(inside, overhead) + beyond * across
            case "Tree":
                if function != "AllReduce":
                    return latency
                return latency + 2 * ((ranks // nodes - 1) * inside + depth * across)
            case "CollNetDirect":
                peers = ranks // nodes - 1
                return latency + 2 * (min(1, peers) * inside + peers * _PEER_US) + across
            case "CollNetChain":
                return latency + 2 * (ranks // nodes - 1) * inside + across
            case "NVLS":
                return inside + (across if nodes > 1 else 0.0)
            case "NVLSTree":
                return latency + inside + 2 * depth * across
            case _:  # PAT
                return _PAT_BASE_US + depth * (across / 3.5) + ranks * 2.8

    def _exists(self, function: str, algorithm: str, protocol: str) -> bool:
        comm = self.communicator
        if comm.size < 2:
            return False
        if algorithm in COLLNET:
            # Others than all-reduce need calls that a plugin need not have, and switches here lack.
            if function != "AllReduce" or protocol != "Simple" or not comm.collnet:
                return False
            if algorithm == "CollNetDirect" and not self._direct():
                return False
        if function in ("Broadcast", "Reduce") and algorithm != "Ring":
            return False
        scattered = function in ("ReduceScatter", "AllGather")
        if scattered and algorithm not in ("PAT", "Ring", "NVLS"):
            return False
        if algorithm == "PAT" and not (scattered and protocol == "Simple" and self._pat()):
            return False
        if algorithm in ("NVLS", "NVLSTree"):
            if protocol != "Simple" or not comm.nvls_channels:
                return False
            # On one server there is no tree.
            if algorithm == "NVLSTree" and comm.nodes == 1:
                return False
            # Over several servers NVLS needs CollNet, and for others than all-reduce more calls.
            possible = comm.collnet and function == "AllReduce"
            if algorithm == "NVLS" and comm.nodes > 1 and not possible:
                return False
        enabled = self.environment.enabled("NCCL_ALGO")[function, algorithm]
        allowed = self.environment.enabled("NCCL_PROTO")[function, protocol]
        if allowed == 2:
            allowed = int(self._ll128(self._graph(algorithm)))
        return bool(enabled and allowed)

    def _ll128(self, graph: Graph) -> bool:
        """Whether NCCL takes LL128 by itself."""
        capability = self.communicator.compute_capability
        farthest = PathType.PXN if capability >= 90 else PathType.PXB
        same = {one.model.compute_capability for one in self.communicator.servers}
        near = graph.type_inter <= farthest and graph.type_intra <= PathType.NVB
        return near and len(same) == 1 and capability >= 70

    def _direct(self) -> bool:
        """Whether there can be CollNetDirect: NVLink switches, and not too many GPUs."""
        servers = self.communicator.servers
        most = max(len(ranks) for ranks in self.communicator.ranks)
        return all(one.all_gpus > 1 for one in servers) and most <= MAX_DIRECT_GPUS

    def _pat(self) -> bool:
        asked = self.environment.number("NCCL_PAT_ENABLE", 2)
        if asked != 2:
            return asked == 1
        return self.communicator.nodes == self.communicator.size

    def _graph(self, algorithm: str) -> Graph:
        """The graph that an algorithm goes by (initTransportsRank of src/init.cc)."""
        if algorithm == "Ring":
            return self.communicator.ring_graph
        if algorithm in ("NVLS", "NVLSTree"):
            return self.communicator.nvls_graph
        if algorithm == "CollNetDirect":
            return self.communicator.direct_graph
        if algorithm == "CollNetChain":
            return self.communicator.chain_graph
        return self.communicator.tree_graph

    def _has_amd(self) -> bool:
        return any(server.cpu == "amd" for server in self.communicator.servers)

    def _net_overhead_us(self) -> float:
        asked = self.environment.number("NCCL_NET_OVERHEAD", -1)
        if asked >= 0:
            return asked / 1000
        return 2.0 if all(one.cpu == "amd" for one in self.communicator.servers) else 1.0

    def _could_be(self, function: str) -> str:
        comm = self.communicator
        bare = Tuner(Communicator(comm.servers, comm.ranks, nvls=comm.nvls, sharp=comm.sharp))
        ways = [
            f"{algorithm} with {protocol}"
            for algorithm in ALGORITHMS
            for protocol in PROTOCOLS
            if bare.model[function, algorithm, protocol][1]
        ]
        missing = [] if comm.nvls else ["NVLS: NCCL_NVLS_ENABLE is 0"]
        if not comm.sharp:
            missing.append(f"CollNet: {comm.no_sharp or 'NCCL_COLLNET_ENABLE is 0'}")
        more = f" ({'; '.join(missing)})" if missing else ""
        return f"for {function}: {', '.join(ways)}{more}"


def _steps(function: str, ranks: int) -> int:
    """Steps of a ring."""
    if function == "AllReduce":
        return 2 * (ranks - 1)
    return ranks - 1 if function in ("ReduceScatter", "AllGather") else ranks
