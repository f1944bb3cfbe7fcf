"""`workload.memory`: what the memory nodes of a trace load from and store to."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from topologies.spec.document import read_json
from topologies.spec.errors import Key, Problem, SpecError, shown
from topologies.spec.fabric_section import Integer
from topologies.spec.queue_section import SpecSection
from topologies.units import BytesPerSecond, SizeBytes, TimeNs, format_bandwidth

_KINDS = {"MEMORY_POOL": "pool", "PER_NPU_MEMORY_EXPANSION": "local"}
_REFUSED = {
    "NO_MEMORY_EXPANSION": "a remote memory: NO_MEMORY_EXPANSION serves no memory node",
    "PER_NODE_MEMORY_EXPANSION": (
        "a memory of each rank or a pool: that of a node, which its ranks share beside the fabric, "
        "is simulated by groundwire astra alone"
    ),
}
_MOST = 10**15


class MemorySpec(SpecSection):
    """Memory behind MEM_LOAD and MEM_STORE.

    `local`: a tier of each rank's own (HBM, DDR, CXL). An access takes `latency` and its bytes at
    `rate`, beside what the device computes, one at a time.
    `pool`: `hosts` more hosts of the fabric, behind the ranks of the trace. A load sends each of
    them a message of `request` bytes, and each sends its stripe back; a store sends each its
    stripe, and gets a message of `request` bytes back. A host serves one stripe at a time, for
    `latency` and its bytes at `rate`.
    """

    kind: Literal["local", "pool"]
    rate_bytes_per_s: BytesPerSecond = Field(alias="rate", gt=0)
    latency_ns: TimeNs = Field(default=0, alias="latency")
    hosts: Integer = Field(default_factory=lambda data: int(data.get("kind") == "pool"), ge=0,
                           le=4096)  # fmt: skip
    request_bytes: SizeBytes = Field(default=64, alias="request", ge=4, le=4096)

    @model_validator(mode="after")
    def _whole(self) -> MemorySpec:
        if (self.kind == "pool") != (self.hosts > 0):
            raise ValueError("expected hosts from 1 with kind: pool, and none with kind: local")
        return self


def read_remote_memory(path: Path | str, hosts: int = 1) -> dict[str, Any]:
    """ASTRA-sim's configuration of remote memory (JSON) as the keys of `memory`; `hosts` are those
    of a pool, of which ASTRA-sim has one. Latency is in nanoseconds there, bandwidth in 10^9 bytes
    per second. Raises SpecError."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise _refused(path, (), reason, "a configuration of remote memory") from None
    document = read_json(data, str(path))
    if not isinstance(document, dict):
        raise _refused(path, (), type(document).__name__, "an object")
    kind = document.get("memory-type")
    if kind not in _KINDS:
        allowed = _REFUSED.get(str(kind), f"one of {', '.join((*_KINDS, *_REFUSED))}")
        raise _refused(path, ("memory-type",), kind, allowed)
    found: dict[str, Any] = {"kind": _KINDS[kind]}
    latency_ns = _whole(path, document, "remote-mem-latency", 0)
    found["latency"] = f"{latency_ns}ns"
    rate = _whole(path, document, "remote-mem-bw", 1) * 10**9
    found["rate"] = format_bandwidth(rate)
    if found["kind"] == "pool":
        found["hosts"] = hosts
    return found


def _refused(path: Path | str, key: Key, found: object, expected: str) -> SpecError:
    return SpecError(str(path), (Problem(key, shown(found), f"expected {expected}"),))


def _whole(path: Path | str, document: dict[str, Any], key: str, least: int) -> int:
    value = document.get(key, 0)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not least <= value <= _MOST:
        raise _refused(path, (key,), value, f"a whole number from {least}")
    return int(value)
