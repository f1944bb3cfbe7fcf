"""ASTRA-sim's remote memory file (JSON) and the model behind it."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.astra.errors import AstraInputError, AstraRefused
from analysis.astra.events import Callback, LocalEvents
from analysis.astra.files.system import read_json_object

MEMORY_TYPES = (
    "NO_MEMORY_EXPANSION",
    "PER_NODE_MEMORY_EXPANSION",
    "PER_NPU_MEMORY_EXPANSION",
    "MEMORY_POOL",
)


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """Remote memory: latency in ns, bandwidth in bytes per ns (decimal GB/s)."""

    memory_type: str = "NO_MEMORY_EXPANSION"
    latency_ns: int = 0
    bandwidth_gbps: int = 0
    nodes: int = 0
    npus_per_node: int = 0


def read_memory(path: Path | str) -> MemoryConfig:
    """Read a remote memory file. Raises AstraInputError."""
    document = read_json_object(path)
    memory_type = document.get("memory-type")
    if memory_type not in MEMORY_TYPES:
        raise AstraInputError(
            path, "memory-type", f"found {memory_type!r}, allowed {', '.join(MEMORY_TYPES)}"
        )
    remote = memory_type != "NO_MEMORY_EXPANSION"
    per_node = memory_type == "PER_NODE_MEMORY_EXPANSION"
    return MemoryConfig(
        memory_type,
        _whole(path, document, "remote-mem-latency", 0),
        _whole(path, document, "remote-mem-bw", 1 if remote else 0),
        _whole(path, document, "num-nodes", 1 if per_node else 0),
        _whole(path, document, "num-npus-per-node", 1 if per_node else 0),
    )


def render_memory(config: MemoryConfig) -> str:
    """The file's text."""
    document: dict[str, Any] = {"memory-type": config.memory_type}
    if config.memory_type != "NO_MEMORY_EXPANSION":
        document["remote-mem-latency"] = config.latency_ns
        document["remote-mem-bw"] = config.bandwidth_gbps
    if config.memory_type == "PER_NODE_MEMORY_EXPANSION":
        document["num-nodes"] = config.nodes
        document["num-npus-per-node"] = config.npus_per_node
    return json.dumps(document, indent=4) + "\n"


def _whole(path: Path | str, document: dict[str, Any], key: str, minimum: int) -> int:
    value = document.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or int(value) < minimum:
        raise AstraInputError(
            path, key, f"found {value!r}, allowed a whole number of at least {minimum}"
        )
    return int(value)


class RemoteMemory:
    """Serves loads and stores: each rank on its own, or one at a time per node or for all
    (astra-memory-analytical, AnalyticalRemoteMemory.cc)."""

    def __init__(self, config: MemoryConfig) -> None:
        self._config = config
        # By shared memory: requests that wait, while one is being served.
        self._waiting: dict[int, deque[tuple[LocalEvents, int, Callback, Any]]] = {}

    def access(
        self, rank: int, local: LocalEvents, size_bytes: int, callback: Callback, argument: Any
    ) -> None:
        """Load or store; `callback(argument)` on `rank`'s `local` events when done.

        Raises AstraRefused when there is no remote memory, or none for this rank.
        """
        kind = self._config.memory_type
        if kind == "NO_MEMORY_EXPANSION":
            raise AstraRefused(
                f"rank {rank} has a memory node, but memory-type is NO_MEMORY_EXPANSION: "
                "ASTRA-sim exits"
            )
        if kind == "PER_NPU_MEMORY_EXPANSION":
            local.after(self._time_ns(size_bytes), callback, argument)
            return
        memory = rank // self._config.npus_per_node if kind.startswith("PER_NODE") else 0
        if kind.startswith("PER_NODE") and memory >= self._config.nodes:
            raise AstraRefused(
                f"rank {rank} is on node {memory}, but num-nodes is {self._config.nodes}: "
                "ASTRA-sim crashes"
            )
        if memory in self._waiting:
            self._waiting[memory].append((local, size_bytes, callback, argument))
        else:
            self._waiting[memory] = deque()
            self._serve(memory, local, size_bytes, callback, argument)

    def _serve(
        self, memory: int, local: LocalEvents, size_bytes: int, callback: Callback, argument: Any
    ) -> None:
        time_ns = self._time_ns(size_bytes)
        local.after(time_ns, callback, argument)
        local.after(time_ns, self._served, memory)

    def _served(self, memory: int) -> None:
        if self._waiting[memory]:
            self._serve(memory, *self._waiting[memory].popleft())
        else:
            del self._waiting[memory]

    def _time_ns(self, size_bytes: int) -> int:
        return self._config.latency_ns + int(size_bytes / self._config.bandwidth_gbps)
