"""NCCL's choice of an algorithm, a protocol, channels and chunks, by its model of time.

Follows ncclTopoTuneModel and ncclTopoGetAlgoTime of src/graph/tuning.cc, topoGetAlgoInfo,
calcCollChunking and scheduleCollTasksToPlan of src/enqueue.cc, and computeBuffSizes of src/init.cc
(2.27).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from collectives.algorithms.base import DoesNotFit
from collectives.kinds import Kind
from collectives.nccl.communicator import Communicator
from collectives.nccl.environment import ALGORITHMS, FUNCTIONS, PROTOCOLS
from collectives.nccl.graph import Graph, Pattern
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

STEPS = 8
"""NCCL_STEPS of src/include/device.h: slots of the buffer between two ranks."""

_THREADS = {"LL": 512, "LL128": 640, "Simple": 512}
"""NCCL_LL_MAX_NTHREADS, NCCL_LL128_MAX_NTHREADS, NCCL_SIMPLE_MAX_NTHREADS."""

_BYTES_A_THREAD = {"LL": 8, "LL128": 8, "Simple": 64}
"""NCCL_LL_THREAD_THRESHOLD and its like of src/include/comm.h."""

_BUFFER_BYTES = {"LL": 8 * 512 * STEPS * 16, "LL128": 120 * 640 * STEPS * 8, "Simple": 1 << 22}
"""DEFAULT_LL_BUFFSIZE, DEFAULT_LL128_BUFFSIZE, DEFAULT_BUFFSIZE of src/init.cc."""

_BUFFER_VARIABLE = {
    "LL": "NCCL_LL_BUFFSIZE",
    "LL128": "NCCL_LL128_BUFFSIZE",
    "Simple": "NCCL_BUFFSIZE",
}

_GRAIN_BYTES = {"LL": 16, "LL128": 1920, "Simple": 512}
"""ncclProtoGrainSize of src/include/device.h."""

_NARROW_GBYTES = 12.0
"""PCI_BW of src/graph/topo.h: rings that are not wider have 256 threads."""

_NVLS_SHARE = 5 / 6
"""The share that NVLS reaches of its graph's bandwidth (ncclTopoTuneModel)."""

_NVLS_CHUNK_BYTES = 128 << 10
"""NCCL_NVLS_CHUNKSIZE of src/transport/nvls.cc."""

_LEAST_TRAFFIC_BYTES = 16 << 10
"""MinTrafficPerChannel of scheduleCollTasksToPlan."""

WIRE_FACTOR = {"LL": 2.0, "LL128": 16 / 15, "Simple": 1.0}
"""Bytes on the wire for each byte of payload: LL has a flag of 4 bytes for each 4 of data, LL128
one of 8 for each 120 (src/device/prims_ll.h, prims_ll128.h)."""


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

    @property
    def by_switches(self) -> bool:
        """Whether the NVLink switches of servers reduce."""
        return self.algorithm in ("NVLS", "NVLSTree")


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

    @cached_property
    def threads(self) -> Mapping[tuple[str, str], int]:
        """Threads of each algorithm and protocol at most (maxThreads)."""
        ring = self.communicator.ring_graph
        narrow = ring.bw_intra * ring.channels <= _NARROW_GBYTES
        asked = self.environment.number("NCCL_NTHREADS", 0)
        found = {}
        for algorithm in ALGORITHMS:
            for protocol in PROTOCOLS:
                threads = _THREADS[protocol]
                if algorithm not in ("Tree", "Ring"):
                    threads = 640
                elif protocol == "LL128":
                    threads = self.environment.number("NCCL_LL128_NTHREADS", threads)
                elif asked:
                    threads = asked
                elif (algorithm, protocol) == ("Ring", "Simple") and narrow:
                    threads = 256
                found[algorithm, protocol] = threads
        return found

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
        if algorithm == "Tree" and function == "AllReduce" and 0 <= power < 23:
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
        graph = self.communicator.nvls_graph
        return graph.channels * graph.bw_intra * _NVLS_SHARE

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
        channels, threads = self._channels(algorithm, protocol, size_bytes)
        if asked is not None and asked.channels:
            channels = asked.channels
        used = self._used(function, protocol, channels, size_bytes)
        chunk, slices, ahead = self._chunk(function, algorithm, protocol, channels, size_bytes)
        step = self.tables.nvlink_latency[algorithm][PROTOCOLS.index(protocol)]
        return Choice(
            *(function, algorithm, protocol, used, threads, time_us, chunk, slices, ahead),
            round(step * 1000),
        )

    # ------------------------------------------------------------------ the model of time

    def _modelled(self, function: str, algorithm: str, protocol: str) -> tuple[float, float]:
        comm = self.communicator
        if not self._exists(function, algorithm, protocol):
            return 0.0, 0.0
        ranks, nodes = comm.size, comm.nodes
        each = ranks / nodes
        graph = self._graph(algorithm)
        column = min(nodes, 3) - 1
        generation = _generation(comm.compute_capability)
        bandwidth = graph.bw_intra if nodes <= 2 else graph.bw_inter
        if algorithm == "NVLS":
            bandwidth = min(graph.bw_intra, graph.bw_inter)
            if function != "AllReduce":
                bandwidth = min(graph.bw_intra * (each - 1) / each, graph.bw_inter * 0.9)
        if algorithm == "NVLSTree":
            beyond = graph.bw_inter if nodes <= 2 else graph.bw_inter / 2
            bandwidth = min(graph.bw_intra, beyond)
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
        if algorithm == "NVLS" and function != "AllReduce" and nodes > 1:
            bus = 0.0  # without CollNet
        steps = _steps(function, ranks)
        if not (algorithm != "Ring" and function in ("AllGather", "ReduceScatter")):
            if algorithm == "Ring":
                bus *= ranks / steps
            elif algorithm in ("NVLS", "NVLSTree"):
                bus *= _NVLS_SHARE
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
            case "NVLS":
                return inside + (across if nodes > 1 else 0.0)
            case "NVLSTree":
                return latency + inside + 2 * depth * across
            case _:  # PAT
                return 8 + depth * (across / 3.5) + ranks * 2.8

    def _exists(self, function: str, algorithm: str, protocol: str) -> bool:
        comm = self.communicator
        if comm.size < 2 or algorithm in ("CollNetDirect", "CollNetChain"):
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
            # Over several servers NVLS needs CollNet, on one there is no tree.
            if (algorithm == "NVLS") != (comm.nodes == 1):
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
        return self.communicator.tree_graph

    def _has_amd(self) -> bool:
        return any(server.cpu == "amd" for server in self.communicator.servers)

    def _net_overhead_us(self) -> float:
        asked = self.environment.number("NCCL_NET_OVERHEAD", -1)
        if asked >= 0:
            return asked / 1000
        return 2.0 if all(one.cpu == "amd" for one in self.communicator.servers) else 1.0

    def _could_be(self, function: str) -> str:
        bare = Tuner(
            Communicator(
                self.communicator.servers, self.communicator.ranks, nvls=self.communicator.nvls
            )
        )
        ways = [
            f"{algorithm} with {protocol}"
            for algorithm in ALGORITHMS
            for protocol in PROTOCOLS
            if bare.model[function, algorithm, protocol][1]
        ]
        nvls = "" if self.communicator.nvls else "NVLS: NCCL_NVLS_ENABLE is 0; "
        return f"for {function}: {', '.join(ways)} ({nvls}CollNet: not written)"

    # ------------------------------------------------------------------ channels and chunks

    def _channels(self, algorithm: str, protocol: str, size_bytes: int) -> tuple[int, int]:
        """Channels and threads for a size (topoGetAlgoInfo)."""
        comm = self.communicator
        channels = comm.channels
        threads = self.threads[algorithm, protocol]
        each = _BYTES_A_THREAD[protocol]
        if (algorithm, protocol) == ("Ring", "LL"):
            each *= comm.size
        if algorithm in ("NVLS", "NVLSTree"):
            return comm.nvls_channels, threads
        while channels > 1 and size_bytes < channels * threads * each:
            channels -= 1
        while size_bytes < channels * threads * each and threads % 128 == 0:
            threads //= 2
        if protocol == "Simple":
            threads += {"Ring": 32, "Tree": 128}.get(algorithm, 0)
        threads = max(96, threads)
        return channels, 640 if algorithm in ("Tree", "PAT") else threads

    def _used(self, function: str, protocol: str, channels: int, size_bytes: int) -> int:
        """Channels that have anything to do: a little goes over few (scheduleCollTasksToPlan)."""
        traffic = size_bytes * (2 if function == "AllReduce" else 1)
        if protocol == "LL":
            traffic *= 4
        return max(1, min(channels, -(-traffic // _LEAST_TRAFFIC_BYTES)))

    def _chunk(
        self, function: str, algorithm: str, protocol: str, channels: int, size_bytes: int
    ) -> tuple[int, int, int]:
        """Payload bytes of a chunk, its slices, and slices under way at once (calcCollChunking)."""
        comm = self.communicator
        buffer = self.environment.number(_BUFFER_VARIABLE[protocol], _BUFFER_BYTES[protocol])
        chunk_steps = slice_steps = 1
        ring = algorithm == "Ring" and protocol == "Simple"
        if ring and function not in ("Broadcast", "Reduce"):
            chunk_steps, slice_steps = STEPS // 2, STEPS // 4
        chunk = buffer // STEPS * chunk_steps
        if protocol == "LL":
            chunk //= 2
        if protocol == "LL128":
            chunk = chunk // 16 * 15
        each = comm.size / comm.nodes
        if (algorithm, protocol) == ("Tree", "LL128"):
            steps = 1 + comm.nodes.bit_length() - 1 + 0.1 * each
            for share, least in ((64, 131072), (16, 32768)):
                while size_bytes // (channels * chunk) < steps * share / each and chunk > least:
                    chunk //= 2
        if algorithm in ("NVLS", "NVLSTree"):
            chunk = self._multicast_chunk(algorithm, channels, size_bytes)
        if algorithm == "PAT":
            share = 32 if function == "AllGather" else 16
            while chunk * channels * share > size_bytes and chunk > 65536:
                chunk //= 2
        grain = _GRAIN_BYTES[protocol]
        chunk = max(grain, chunk // grain * grain)
        return chunk, chunk_steps // slice_steps, STEPS // slice_steps

    def _multicast_chunk(self, algorithm: str, channels: int, size_bytes: int) -> int:
        """Payload bytes of a chunk of NVLS. On one server it comes to that without registered
        buffers (calcCollChunking)."""
        at_once = channels * len(self.communicator.nvls_heads)
        chunk = _NVLS_CHUNK_BYTES
        bounds: tuple[tuple[int, int], ...] = ((64, 1 << 16), (8, 1 << 15), (2, 1 << 14))
        if algorithm == "NVLSTree":
            if self.communicator.nodes >= 4:
                chunk = 1 << 16
            bounds = ((4, 1 << 16), (1, 1 << 15))
        for share, least in bounds:
            if size_bytes < share * at_once * chunk and chunk > least:
                chunk = least
        return chunk


def _generation(capability: int) -> int:
    """Volta, Ampere, Hopper, Blackwell: 0 to 3."""
    return sum(capability >= least for least in (80, 90, 100))


def _steps(function: str, ranks: int) -> int:
    """Steps of a ring."""
    if function == "AllReduce":
        return 2 * (ranks - 1)
    return ranks - 1 if function in ("ReduceScatter", "AllGather") else ranks
