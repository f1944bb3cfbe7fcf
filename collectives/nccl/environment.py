"""The variables `NCCL_*` that change what NCCL chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from collectives.algorithms.base import DoesNotFit

FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
"""ncclFuncStr of src/init.cc, in NCCL's order."""

ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
"""ncclAlgoStr, in NCCL's order."""

PROTOCOLS = ("LL", "LL128", "Simple")
"""ncclProtoStr, in NCCL's order."""

MAX_CHANNELS = 64
"""MAXCHANNELS of src/include/device.h (2.27)."""

_NUMBERS: Mapping[str, tuple[int, int]] = {
    "NCCL_MIN_NCHANNELS": (1, MAX_CHANNELS),
    "NCCL_MAX_NCHANNELS": (1, MAX_CHANNELS),
    "NCCL_MIN_P2P_NCHANNELS": (1, MAX_CHANNELS),
    "NCCL_MAX_P2P_NCHANNELS": (1, MAX_CHANNELS),
    "NCCL_NCHANNELS_PER_NET_PEER": (1, MAX_CHANNELS),
    "NCCL_BUFFSIZE": (8192, 1 << 30),
    "NCCL_LL_BUFFSIZE": (8192, 1 << 30),
    "NCCL_LL128_BUFFSIZE": (8192, 1 << 30),
    "NCCL_NTHREADS": (64, 512),
    "NCCL_LL128_NTHREADS": (160, 640),
    "NCCL_P2P_NET_CHUNKSIZE": (4096, 1 << 30),
    "NCCL_P2P_NVL_CHUNKSIZE": (4096, 1 << 30),
    "NCCL_P2P_LL_THRESHOLD": (0, 1 << 30),
    "NCCL_P2P_DISABLE": (0, 0),
    "NCCL_P2P_PXN_LEVEL": (0, 2),
    "NCCL_PXN_DISABLE": (0, 1),
    "NCCL_CROSS_NIC": (0, 2),
    "NCCL_NVLS_ENABLE": (0, 2),
    "NCCL_COLLNET_ENABLE": (0, 1),
    "NCCL_COLLNET_NODE_THRESHOLD": (1, 1 << 16),
    "NCCL_PAT_ENABLE": (0, 2),
    "NCCL_NET_OVERHEAD": (0, 1_000_000),
    "NCCL_IB_QPS_PER_CONNECTION": (1, 64),
    "NCCL_IB_SPLIT_DATA_ON_QPS": (0, 1),
    "NCCL_SOCKET_NTHREADS": (1, 16),
    "NCCL_NSOCKS_PERTHREAD": (1, 64),
}
"""Variables with the least and the greatest value that has an effect here."""

_ABSENT: Mapping[str, str] = {
    "NCCL_P2P_DISABLE": "0: GPUs of a server always talk over NVLink here",
}

LISTED = ("NCCL_ALGO", "NCCL_PROTO")
FILES = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE")


@dataclass(frozen=True)
class Environment:
    """Variables as given. Raises DoesNotFit for one that is unknown, or has a value that NCCL would
    refuse or that has no counterpart here."""

    given: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, text in self.given.items():
            if name in LISTED:
                self.enabled(name)
            elif name in FILES:
                continue
            elif name not in _NUMBERS:
                allowed = ", ".join((*LISTED, *FILES, *_NUMBERS))
                raise DoesNotFit(f"env.{name}", "a variable without effect here", allowed)
            else:
                self._number(name, text)

    def number(self, name: str, default: int) -> int:
        """A variable's value, or the default of NCCL."""
        return self._number(name, self.given[name]) if name in self.given else default

    def has(self, name: str) -> bool:
        """Whether a variable is set."""
        return name in self.given

    def enabled(self, name: str) -> Mapping[tuple[str, str], int]:
        """The word of NCCL_ALGO or NCCL_PROTO on each function and algorithm or protocol: 1 or 0; 2
        where LL128 is left to NCCL. Follows parseList of src/graph/tuning.cc."""
        elements = ALGORITHMS if name == "NCCL_ALGO" else PROTOCOLS
        found = {(f, e): 2 if e == "LL128" else 1 for f in FUNCTIONS for e in elements}
        text = self.given.get(name)
        if text is None:
            return found
        for number, token in enumerate(text.split(";")):
            prefix, _, listed = token.rpartition(":")
            if number and not prefix:
                allowed = "a function before each list but the first, as in ring;allreduce:tree"
                raise DoesNotFit(f"env.{name}", text, allowed)
            functions = [f for f in FUNCTIONS if not prefix or f.lower() == prefix.lower()]
            if not functions:
                raise DoesNotFit(f"env.{name}", prefix, ", ".join(FUNCTIONS))
            negated = listed.startswith("^")
            names = [one for one in listed.lstrip("^").split(",") if one]
            known = {e.lower(): e for e in elements}
            for one in names:
                if one.lower() not in known:
                    raise DoesNotFit(f"env.{name}", one, ", ".join(elements))
            chosen = {known[one.lower()] for one in names}
            for f in functions:
                for e in elements:
                    found[f, e] = int((e in chosen) != negated)
        return found

    def _number(self, name: str, text: str) -> int:
        low, high = _NUMBERS[name]
        try:
            value = int(str(text))
        except ValueError:
            raise DoesNotFit(f"env.{name}", repr(text), "a whole number") from None
        if not low <= value <= high:
            allowed = _ABSENT.get(name, f"{low} to {high}")
            raise DoesNotFit(f"env.{name}", str(text), allowed)
        return value
