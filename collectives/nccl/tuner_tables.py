"""The constants of NCCL's model of time, by version: src/graph/tuning.cc, us and GB/s.

The tables are baseLat, hwLat, llMaxBws, perChMaxRingLL128Bws, perChMaxTreeLL128Bws,
perChMaxTreeBws and treeCorrectionFactor there, since 2.28 nvlsEfficiency and perChMaxNVLSTreeBws
beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
    """By the power of two of a size, from 64 bytes on."""
    nvls_share: tuple[float, ...] = ()
    """By generation: the share that NVLS reaches in a server of its graph's bandwidth, of which one
    channel has no part. Without it the model of NVLS is that of 2.27."""
    nvls_tree_most: tuple[Three, ...] = ()
    corrects_nvls_tree: bool = False
    """Whether trees of NVLS are corrected as trees are, from Blackwell on (ncclTopoGetAlgoTime)."""


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

_2_30 = replace(
    _2_27,
    net_latency={**_2_27.net_latency, "NVLSTree": (0.0, 0.0, 20.9), "PAT": (0.0, 0.0, 14.0)},
    ring_ll128_most=(*_2_27.ring_ll128_most[:3], (40.0, 40.0, 40.0)),
    tree_ll128_most=(*_2_27.tree_ll128_most[:3], (55.6, 31.67, 20.0)),
    tree_most=(*_2_27.tree_most[:3], (70.0, 42.8, 24.0)),
    tree_correction={
        protocol: (*row, 0.9 if protocol == "Simple" else 1.0)
        for protocol, row in _2_27.tree_correction.items()
    },
    nvls_share=(0.0, 0.0, 0.85, 0.74),
    nvls_tree_most=(
        (26.5, 18.5, 10.0),
        (24.0, 23.6, 17.8),
        (0.0, 57.7, 45.5),
        (0.0, 96.0, 80.0),
    ),
    corrects_nvls_tree=True,
)

TABLES: Mapping[str, TunerTables] = MappingProxyType({"2.27": _2_27, "2.30": _2_30})
"""The versions that there are tables for. Those of a version are of its last release."""
