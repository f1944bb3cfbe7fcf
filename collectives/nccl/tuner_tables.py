"""The constants of NCCL's model of time, by version: src/graph/tuning.cc, us and GB/s.

The tables are baseLat, hwLat, llMaxBws, perChMaxRingLL128Bws, perChMaxTreeLL128Bws,
perChMaxTreeBws and treeCorrectionFactor there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

Three = tuple[float, float, float]


@dataclass(frozen=True)
class TunerTables:
    """Rows by algorithm have LL, LL128, Simple. Rows by generation are Volta, Ampere, Hopper,
    Blackwell, with columns for one, two and more servers."""

    base_latency: Mapping[str, Three]
    nvlink_latency: Mapping[str, Three]
    net_latency: Mapping[str, Three]
    ll_most: tuple[Three, ...]
    ring_ll128_most: tuple[Three, ...]
    tree_ll128_most: tuple[Three, ...]
    tree_most: tuple[Three, ...]
    tree_correction: Mapping[str, tuple[float, ...]]


_NONE: Three = (0.0, 0.0, 0.0)

_2_27 = TunerTables(
    base_latency={"Tree": (6.8, 14.0, 8.4), "Ring": (6.6, 14.0, 8.4)},
    nvlink_latency={
        "Tree": (0.6, 1.25, 4.0),
        "Ring": (0.6, 1.9, 3.4),
        "CollNetDirect": (0.0, 0.0, 3.7),
        "CollNetChain": (0.0, 0.0, 2.8),
        "NVLS": (0.0, 0.0, 25.0),
        "NVLSTree": (0.0, 0.0, 25.0),
        "PAT": _NONE,
    },
    net_latency={
        "Tree": (5.0, 8.5, 14.0),
        "Ring": (2.7, 4.0, 14.0),
        "CollNetDirect": (0.0, 0.0, 31.0),
        "CollNetChain": (0.0, 0.0, 30.0),
        "NVLS": (0.0, 0.0, 18.0),
        "NVLSTree": (0.0, 0.0, 14.0),
        "PAT": _NONE,
    },
    ll_most=(
        (39.0, 39.0, 20.4),
        (87.7, 22.5, 19.0),
        (141.0, 45.0, 35.0),
        (282.0, 90.0, 70.0),
    ),
    ring_ll128_most=(
        (20.0, 20.0, 20.0),
        (20.0, 20.0, 20.0),
        (36.7, 36.7, 36.7),
        (73.4, 73.4, 73.4),
    ),
    tree_ll128_most=(
        (20.0, 20.0, 20.0),
        (20.0, 20.0, 20.0),
        (36.7, 36.7, 29.0),
        (73.4, 73.4, 58.0),
    ),
    tree_most=(
        (26.5, 18.5, 10.0),
        (24.0, 23.6, 17.8),
        (38.7, 41.4, 36.0),
        (77.4, 82.8, 72.0),
    ),
    tree_correction={
        "LL": (
            *(1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6),
            *(0.7, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0),
        ),
        "LL128": (
            *(1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6),
            *(0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0),
        ),
        "Simple": (
            *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6),
            *(0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
        ),
    },
)

TABLES: Mapping[str, TunerTables] = MappingProxyType({"2.27": _2_27})
"""The versions that there are tables for. Those of a version are of its last release."""
