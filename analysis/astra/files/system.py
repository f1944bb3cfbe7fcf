"""ASTRA-sim's system file (JSON): collectives' algorithms, chunking, scheduling, end-host costs."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from struct import pack, unpack
from typing import Any

from analysis.astra.errors import AstraInputError
from analysis.astra.network.memory_bus import BusParameters
from topologies.spec.document import read_json
from topologies.spec.errors import SpecError

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
SCHEDULING_POLICIES = ("LIFO", "FIFO", "EXPLICIT")
OPTIMIZATIONS = ("baseline", "localBWAware")
ALGORITHMS = ("ring", "direct", "halvingDoubling", "doubleBinaryTree")
_IMPLEMENTATION = re.compile(
    r"(?P<name>ring|oneRing|doubleBinaryTree|halvingDoubling|oneHalvingDoubling)"
    r"|(?P<direct>direct|oneDirect)(?P<window>[0-9]{0,5})"
)


@dataclass(frozen=True, slots=True)
class Implementation:
    """How a collective runs in one dimension.

    `one` is ASTRA-sim's oneRing, oneDirect, oneHalvingDoubling: a single ring over all ranks,
    whatever the dimensions. `window` is the number after `direct`: messages in flight per rank.
    """

    algorithm: str
    one: bool = False
    window: int | None = None

    def __str__(self) -> str:
        name = f"one{self.algorithm[0].upper()}{self.algorithm[1:]}" if self.one else self.algorithm
        return name if self.window is None else f"{name}{self.window}"


@dataclass(frozen=True, slots=True)
class SystemConfig:
    """The system file's keys, with ASTRA-sim's own defaults (system/Sys.cc).

    `implementations` maps a name of COLLECTIVES to one entry per dimension. Bandwidth in decimal
    GB/s, peak performance in TFLOPS, delays in nanoseconds. `shared_bus` is model-shared-bus with
    its L, o, g, G and local-reduction-delay; None for the fixed endpoint delay.
    """

    implementations: Mapping[str, tuple[Implementation, ...]]
    preferred_dataset_splits: int
    scheduling_policy: str = "LIFO"
    endpoint_delay_ns: int = 10
    active_chunks_per_dimension: int = 1
    collective_optimization: str = "baseline"
    local_mem_bw_gbps: float = 0.0
    peak_perf_tflops: float = 0.0
    roofline_enabled: bool = False
    replay_only: bool = False
    shared_bus: BusParameters | None = None
    ignored: tuple[str, ...] = field(default=())

    def reduction_ns(self, size_bytes: int) -> int:
        """Two reads and one write of local memory, each truncated (system/PacketBundle.cc).

        Without local-mem-bw the original divides by zero, and its cast makes that zero.
        """
        if self.local_mem_bw_gbps == 0:
            return 0
        return 3 * int(size_bytes / (self.local_mem_bw_gbps * 1_000_000_000) * 1e9)


def parse_implementation(text: str) -> Implementation:
    """`ring`, `oneRing`, `direct`, `direct4`, `halvingDoubling`, ... Raises ValueError."""
    match = _IMPLEMENTATION.fullmatch(text)
    if match is None:
        raise ValueError(
            f"found {text!r}, allowed {', '.join(ALGORITHMS)}, oneRing, oneDirect, "
            "oneHalvingDoubling; direct and oneDirect may carry a window, as in direct4"
        )
    name = match["name"] or match["direct"]
    one = name.startswith("one")
    if one:
        name = name[3].lower() + name[4:]
    return Implementation(name, one, int(match["window"]) if match["window"] else None)


_IGNORED = {
    "boost-mode": "not read by ASTRA-sim 2.x",
    "intra-dimension-scheduling": "not read by ASTRA-sim 2.x, which always uses FIFO",
    "inter-dimension-scheduling": "not read by ASTRA-sim 2.x, which always uses Ascending",
}
_ACCEPTED = {
    "scheduling-policy",
    "collective-optimization",
    "active-chunks-per-dimension",
    "endpoint-delay",
    "preferred-dataset-splits",
    "peak-perf",
    "local-mem-bw",
    "roofline-enabled",
    "replay-only",
    "model-shared-bus",
    *(f"{name}-implementation" for name in COLLECTIVES),
    "local-reduction-delay",
    "L",
    "o",
    "g",
    "G",
    # Read by the original, without effect on cycles.
    "trace-enabled",
    "track-local-mem",
    "local-mem-trace-filename",
}


def read_system(path: Path | str, injection_scale: float = 1.0) -> SystemConfig:
    """Read a system file. Raises AstraInputError naming file, key, value and what is allowed.

    `injection_scale` multiplies the endpoint delay, if the file states one.
    Keys that ASTRA-sim does not read either are listed in `ignored` with the reason.
    """
    return SystemFile(path).config(injection_scale)


class SystemFile:
    """One system file while it is being read."""

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self.document = read_json_object(path)

    def config(self, injection_scale: float = 1.0) -> SystemConfig:
        """The file as a SystemConfig. Raises AstraInputError."""
        self._refuse_unmodelled()
        splits = self._whole("preferred-dataset-splits", None, minimum=1)
        endpoint_delay_ns = self._whole("endpoint-delay", 10, minimum=0)
        if "endpoint-delay" in self.document:
            endpoint_delay_ns = int(endpoint_delay_ns * injection_scale)
        return SystemConfig(
            implementations={
                name: self._implementations(f"{name}-implementation")
                for name in COLLECTIVES
                if f"{name}-implementation" in self.document
            },
            preferred_dataset_splits=splits,
            scheduling_policy=self._choice("scheduling-policy", SCHEDULING_POLICIES),
            endpoint_delay_ns=endpoint_delay_ns,
            active_chunks_per_dimension=self._whole("active-chunks-per-dimension", 1, minimum=1),
            collective_optimization=self._choice("collective-optimization", OPTIMIZATIONS),
            local_mem_bw_gbps=self._real("local-mem-bw"),
            peak_perf_tflops=self._real("peak-perf"),
            roofline_enabled=self._flag("roofline-enabled"),
            replay_only=self._flag("replay-only"),
            shared_bus=self._shared_bus(),
            ignored=tuple(
                f"{key}: {_IGNORED.get(key, 'unknown to ASTRA-sim 2.x')}"
                for key in self.document
                if key not in _ACCEPTED
            ),
        )

    def _refuse_unmodelled(self) -> None:
        for key in self.document:
            if key.endswith("-implementation-custom") or key == "per-node-custom-implementation":
                self._fail(key, "custom collectives (Chakra ETs as algorithms) are not modelled")

    def _shared_bus(self) -> BusParameters | None:
        if self._whole("model-shared-bus", 0, minimum=0) != 1:
            return None
        return BusParameters(
            latency_ns=int(self._single("L")),
            overhead_ns=int(self._single("o")),
            gap_ns=int(self._single("g")),
            gap_per_byte_ns=self._single("G"),
            reduction_delay_ns=self._whole("local-reduction-delay", 1, minimum=0),
        )

    def _single(self, key: str) -> float:
        """A number, rounded to single precision as the original keeps it."""
        (value,) = unpack("f", pack("f", self._real(key)))
        return float(value)

    def _fail(self, key: str, what: str) -> None:
        raise AstraInputError(self.path, key, what)

    def _implementations(self, key: str) -> tuple[Implementation, ...]:
        names = self.document[key]
        if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
            self._fail(key, f"found {names!r}, needs a list with one name per dimension")
        try:
            return tuple(parse_implementation(name) for name in names)
        except ValueError as error:
            raise AstraInputError(self.path, key, str(error)) from None

    def _choice(self, key: str, allowed: tuple[str, ...]) -> str:
        value = self.document.get(key, allowed[0])
        if value not in allowed:
            self._fail(key, f"found {value!r}, allowed {', '.join(allowed)}")
        return str(value)

    def _real(self, key: str) -> float:
        value = self.document.get(key, 0)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            self._fail(key, f"found {value!r}, allowed a number of at least 0")
        return float(value)

    def _whole(self, key: str, default: int | None, minimum: int) -> int:
        """A number, truncated as the original's JSON library does for its integers."""
        value = self.document.get(key, default)
        if value is None:
            raise AstraInputError(self.path, key, "is missing (the original divides by it)")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or int(value) < minimum:
            self._fail(key, f"found {value!r}, allowed a whole number of at least {minimum}")
        return int(value)

    def _flag(self, key: str) -> bool:
        """Whether it differs from the number 0, which in the original's JSON false does, too."""
        value = self.document.get(key, 0)
        return isinstance(value, bool) or bool(value != 0)


def read_json_object(path: Path | str) -> dict[str, Any]:
    """A JSON file that must hold an object. Raises AstraInputError."""
    try:
        document = read_json(Path(path).read_bytes(), str(path))
    except OSError as error:
        raise AstraInputError(path, None, f"cannot be read: {error.strerror}") from None
    except SpecError as error:
        raise AstraInputError(path, None, f"is not JSON: {error.problems[0]}") from None
    if not isinstance(document, dict):
        raise AstraInputError(path, None, "must be a JSON object")
    return document


def render_system(config: SystemConfig) -> str:
    """The file's text."""
    document: dict[str, Any] = {
        "scheduling-policy": config.scheduling_policy,
        "endpoint-delay": config.endpoint_delay_ns,
        "active-chunks-per-dimension": config.active_chunks_per_dimension,
        "preferred-dataset-splits": config.preferred_dataset_splits,
    }
    for name in COLLECTIVES:
        if name in config.implementations:
            document[f"{name}-implementation"] = [str(i) for i in config.implementations[name]]
    document |= {
        "collective-optimization": config.collective_optimization,
        "local-mem-bw": config.local_mem_bw_gbps,
        "peak-perf": config.peak_perf_tflops,
        "roofline-enabled": int(config.roofline_enabled),
        "replay-only": int(config.replay_only),
    }
    if config.shared_bus is not None:
        bus = config.shared_bus
        document |= {
            "model-shared-bus": 1,
            "L": bus.latency_ns,
            "o": bus.overhead_ns,
            "g": bus.gap_ns,
            "G": bus.gap_per_byte_ns,
            "local-reduction-delay": bus.reduction_delay_ns,
        }
    return json.dumps(document, indent=4) + "\n"
