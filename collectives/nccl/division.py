"""How NCCL divides a call: its channels and threads, and the chunks of each channel.

Follows topoGetAlgoInfo, calcCollChunking and scheduleCollTasksToPlan of src/enqueue.cc,
ncclTopoTuneModel of src/graph/tuning.cc and computeBuffSizes of src/init.cc (2.27).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from collectives.nccl.communicator import Communicator
from collectives.nccl.environment import ALGORITHMS, PROTOCOLS
from collectives.schedule.lines import PLAIN, Lines

STEPS = 8
"""NCCL_STEPS of src/include/device.h: slots of the buffer between two ranks."""

_THREADS = {"LL": 512, "LL128": 640, "Simple": 512}
"""NCCL_LL_MAX_NTHREADS, NCCL_LL128_MAX_NTHREADS, NCCL_SIMPLE_MAX_NTHREADS."""

_BYTES_A_THREAD = {"LL": 8, "LL128": 8, "Simple": 64}
"""NCCL_LL_THREAD_THRESHOLD and its like of src/include/comm.h."""

_BYTES_A_COLLNET_THREAD = 512
"""threadThresholds of CollNetDirect and CollNetChain (ncclTopoTuneModel)."""

_BUFFER_BYTES = {"LL": 8 * 512 * STEPS * 16, "LL128": 120 * 640 * STEPS * 8, "Simple": 1 << 22}
"""DEFAULT_LL_BUFFSIZE, DEFAULT_LL128_BUFFSIZE, DEFAULT_BUFFSIZE of src/init.cc."""

_BUFFER_VARIABLE = {
    "LL": "NCCL_LL_BUFFSIZE",
    "LL128": "NCCL_LL128_BUFFSIZE",
    "Simple": "NCCL_BUFFSIZE",
}

_GRAIN_BYTES = {"LL": 16, "LL128": 1920, "Simple": 512}
"""ncclProtoGrainSize of src/include/device.h."""

LINES: Mapping[str, Lines] = {"LL": Lines(4, 4, 2), "LL128": Lines(120, 8, 16), "Simple": PLAIN}
"""The protocols' lines. A thread writes 8 bytes of data as two words with a flag each
(ncclLLFifoLine, LLGenericOp of src/device/prims_ll.h), a warp 1,920 as 16 lines of 128 bytes, the
last 8 of which are the flag (GenericOp of src/device/prims_ll128.h). Proxies send them over a
network as they are (sendProxyProgress of src/transport/net.cc)."""

_NARROW_GBYTES = 12.0
"""PCI_BW of src/graph/topo.h: rings that are not wider have 256 threads."""

_NVLS_CHUNK_BYTES = 128 << 10
"""NCCL_NVLS_CHUNKSIZE of src/transport/nvls.cc."""

_NVLS_SLOW_GBYTES = 150.0
_NVLS_SLOW_CHUNK_BYTES = 32768
"""Slower than that, NVLS over several servers has shorter chunks at most (calcCollChunking)."""

_CHAIN_CHUNK_BYTES = 256 << 10
"""The longest chunk of CollNetChain (calcCollChunking)."""

_LEAST_TRAFFIC_BYTES = 16 << 10
"""MinTrafficPerChannel of scheduleCollTasksToPlan."""

COLLNET = ("CollNetDirect", "CollNetChain")
MULTICAST = ("NVLS", "NVLSTree")


@dataclass(frozen=True)
class Divider:
    """The division of calls of one communicator; `nvls_gbytes` is the bandwidth of NVLS in NCCL's
    model of an all-reduce."""

    communicator: Communicator
    nvls_gbytes: float = 0.0

    @cached_property
    def threads(self) -> Mapping[tuple[str, str], int]:
        """Threads of each algorithm and protocol at most (maxThreads)."""
        environment = self.communicator.environment
        ring = self.communicator.ring_graph
        narrow = ring.bw_intra * ring.channels <= _NARROW_GBYTES
        asked = environment.number("NCCL_NTHREADS", 0)
        found = {}
        for algorithm in ALGORITHMS:
            for protocol in PROTOCOLS:
                threads = _THREADS[protocol]
                if algorithm not in ("Tree", "Ring"):
                    threads = 640
                elif protocol == "LL128":
                    threads = environment.number("NCCL_LL128_NTHREADS", threads)
                elif asked:
                    threads = asked
                elif (algorithm, protocol) == ("Ring", "Simple") and narrow:
                    threads = 256
                found[algorithm, protocol] = threads
        return found

    def channels(self, algorithm: str, protocol: str, size_bytes: int) -> tuple[int, int]:
        """Channels and threads for a size (topoGetAlgoInfo)."""
        comm = self.communicator
        channels = comm.channels
        threads = self.threads[algorithm, protocol]
        each = _BYTES_A_THREAD[protocol]
        if (algorithm, protocol) == ("Ring", "LL"):
            each *= comm.size
        if algorithm in COLLNET:
            each = _BYTES_A_COLLNET_THREAD
        if algorithm in MULTICAST:
            return comm.nvls_channels, threads
        if algorithm == "CollNetDirect":
            return self._direct_channels(channels, threads, each, size_bytes), threads
        while channels > 1 and size_bytes < channels * threads * each:
            channels -= 1
        while size_bytes < channels * threads * each and threads % 128 == 0:
            threads //= 2
        if protocol == "Simple":
            threads += {"Ring": 32, "Tree": 128}.get(algorithm, 0)
        threads = max(96, threads)
        return channels, 640 if algorithm in ("Tree", "PAT") else threads

    def _direct_channels(self, channels: int, threads: int, each: int, size_bytes: int) -> int:
        """Fewer channels for small sizes, which each go from 16 on with half as much."""
        heads = len(self.communicator.collnet_heads)
        least, few = 16, True
        while least >= 1 and few:
            while (few := size_bytes < channels * threads * heads * each) and channels > least:
                if channels == least + least // 2:
                    each //= 2
                channels -= 1
            least //= 2
        return channels

    def used(
        self, function: str, algorithm: str, protocol: str, channels: int, size_bytes: int
    ) -> int:
        """Channels that have anything to do: a little goes over few, but for what goes by the
        network's switches (scheduleCollTasksToPlan)."""
        if algorithm in COLLNET or (algorithm == "NVLS" and self.communicator.nodes > 1):
            return channels
        traffic = size_bytes * (2 if function == "AllReduce" else 1)
        if protocol == "LL":
            traffic *= 4
        return max(1, min(channels, -(-traffic // _LEAST_TRAFFIC_BYTES)))

    def chunk(
        self, function: str, algorithm: str, protocol: str, channels: int, size_bytes: int
    ) -> tuple[int, int, int]:
        """Payload bytes of a chunk, its slices, and slices under way at once (calcCollChunking)."""
        comm = self.communicator
        buffer = comm.environment.number(_BUFFER_VARIABLE[protocol], _BUFFER_BYTES[protocol])
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
        if algorithm in MULTICAST:
            chunk = self._multicast_chunk(algorithm, channels, size_bytes)
        if algorithm in COLLNET:
            chunk = self._collnet_chunk(algorithm, channels, size_bytes, chunk)
        if algorithm == "PAT":
            share = 32 if function == "AllGather" else 16
            while chunk * channels * share > size_bytes and chunk > 65536:
                chunk //= 2
        grain = _GRAIN_BYTES[protocol]
        chunk = max(grain, chunk // grain * grain)
        return chunk, chunk_steps // slice_steps, STEPS // slice_steps

    def _multicast_chunk(self, algorithm: str, channels: int, size_bytes: int) -> int:
        """Payload bytes of a chunk of NVLS without registered buffers."""
        nodes = self.communicator.nodes
        at_once = channels * len(self.communicator.nvls_heads)
        chunk = _NVLS_CHUNK_BYTES
        bounds: tuple[tuple[int, int], ...] = ((64, 1 << 16), (8, 1 << 15), (2, 1 << 14))
        if algorithm == "NVLSTree":
            if nodes >= 4:
                chunk = 1 << 16
            bounds = ((4, 1 << 16), (1, 1 << 15))
        elif nodes > 1 and self.nvls_gbytes < _NVLS_SLOW_GBYTES:
            chunk = _NVLS_SLOW_CHUNK_BYTES
        for share, least in bounds:
            if size_bytes < share * at_once * chunk and chunk > least:
                chunk = least
        return chunk

    def _collnet_chunk(self, algorithm: str, channels: int, size_bytes: int, chunk: int) -> int:
        """Payload bytes of a chunk of CollNet: the shorter, the more steps there are."""
        comm = self.communicator
        if algorithm == "CollNetDirect":
            at_once, depth, last = len(comm.collnet_heads), 2 if comm.size > comm.nodes else 1, 8
        else:
            at_once, depth, last = 1, comm.size // comm.nodes, 1
            chunk = min(_CHAIN_CHUNK_BYTES, chunk)
        for share, least in ((64, 131072), (8, 65536), (last, 32768)):
            while size_bytes // (channels * at_once * chunk) < depth * share and chunk > least:
                chunk //= 2
        return chunk
