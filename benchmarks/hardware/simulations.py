"""Follows every measurement packet by packet, by the program that NCCL's choice becomes here.

A row's servers are `rails` over RoCE with lossless switches (over TCP with NVLS), its algorithm and
protocol those that NCCL's model chooses (`predictions.py`). `packet` predicts the program's time on
the wire and on NVLink, after the launch of a kernel, which is the model's base latency. Sizes above
STEADY_BYTES go on at the rate between half of it and it.

The links of NICs take as long as NCCL's tables count for a step over them. Their plugin's latency
is added to that as the model counts it, and what is fitted (`fits.py`).

`python -m benchmarks.hardware.simulations` writes the kept result. It takes some minutes. Given
tables alone are followed anew: `python -m benchmarks.hardware.simulations d01 d02`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from benchmarks.hardware.measurements import Measurement, measurements
from benchmarks.hardware.predictions import KEPT as CHOICES
from collectives.nccl.environment import PROTOCOLS
from collectives.nccl.tuner_tables import TABLES
from groundwire.forecast import predict
from topologies.spec.spec import parse_dict

KEPT = Path(__file__).parents[1] / "results" / "2026-11-26-hardware-simulated.json"

STEADY_BYTES = 128 << 20
"""Larger sizes are taken to go on at the rate that is reached by then."""

_NO_LAUNCH = (0.0, 0.0, 0.0)
_SERVERS = {"a100": "dgx-a100", "h100": "dgx-h100", "h200": "dgx-h200", "b200": "dgx-h200"}
_SCALE_UP_GBPS = {"b200": 5774.4}
"""Links where no server is known: 18 of 40.1 GB/s (SM100_NVLINK_BW, NCCL graph/topo.h)."""


def simulated(
    one: Measurement, choice: dict[str, Any], scale_up: str = "packets"
) -> dict[str, float]:
    """The time of a measurement by `packet` in us, and how much of it is the launch, what the NICs'
    plugin tells, and what is fitted. `scale_up` is what goes over NVLink
    (`fabric.scale_up.kind`)."""
    column = PROTOCOLS.index(choice["protocol"])
    # NVLS has its latency in the switches.
    launch_us = TABLES["2.27"].base_latency.get(choice["algorithm"], _NO_LAUNCH)[column]
    sizes = [one.size_bytes]
    if one.size_bytes > STEADY_BYTES:
        sizes = [STEADY_BYTES // 2, STEADY_BYTES]
    times_us = [_packet_us(one, choice, size, launch_us, scale_up) for size in sizes]
    if len(sizes) == 2:
        slope = (times_us[1] - times_us[0]) / (sizes[1] - sizes[0])
        times_us = [times_us[1] + slope * (one.size_bytes - sizes[1])]
    beside = {key: choice[key] for key in ("plugin_us", "fitted_us")}
    time_us = round(times_us[0] + sum(beside.values()), 1)
    return {"time_us": time_us, "launch_us": launch_us, **beside}


def _packet_us(
    one: Measurement, choice: dict[str, Any], size_bytes: int, launch_us: float, scale_up: str
) -> float:
    faster = {}
    if one.gpu in _SCALE_UP_GBPS:
        faster = {"scale-up": {"rate": f"{_SCALE_UP_GBPS[one.gpu]}Gbps"}}
    nic = {"rate": f"{one.nic_gbps}Gbps", "mtu": 4200}
    # NCCL has a GPU send by its neighbour's NIC (PXN). Here its own NIC sends across rails:
    # the spine takes all of a rail's servers at once.
    spine = nic | {"rate": f"{one.nic_gbps * one.servers}Gbps"}
    by_switches = choice["algorithm"] in ("NVLS", "NVLSTree")
    raw = {
        "name": "hardware",
        "fabric": {
            "kind": "rails",
            "server": _SERVERS[one.gpu],
            "servers": one.servers,
            "hosts_per_server": one.gpus,
            "spines": 1,
            "links": {"nic": nic, "spine": spine, **faster},
            "scale_up": {"kind": scale_up},
            "queue": {"kind": "lossless"},
        },
        "workload": {
            "kind": "collectives",
            "ranks": one.servers * one.gpus,
            "operations": [{"kind": str(one.kind), "size": max(1024, size_bytes)}],
        },
        "collectives": {
            "backend": "nccl",
            "gpu": one.gpu,
            "cpu": one.cpu,
            "launch": f"{launch_us}us",
            "env": {
                **one.given,
                "NCCL_ALGO": choice["algorithm"],
                "NCCL_PROTO": choice["protocol"],
            },
        },
        # Switches that reduce talk TCP.
        "transport": {"kind": "tcp"} if by_switches else {"kind": "roce", "path_mtu": 4096},
        "payload": "timing",
        "predict": ["packet"],
    }
    answer = predict(parse_dict(raw, "hardware")).collectives[0].predicted["packet"]
    if answer.duration_ns is None:
        raise RuntimeError(f"{one.id}: {answer.reason}")
    return answer.duration_ns / 1000


def all_simulated(tables: Collection[str]) -> dict[str, dict[str, float]]:
    """Every measurement's figure, by id: as kept but for these tables, or all anew."""
    choices = json.loads(CHOICES.read_text(encoding="utf-8"))
    found: dict[str, dict[str, float]] = {}
    if tables:
        found = json.loads(KEPT.read_text(encoding="utf-8"))
    for one in measurements():
        if tables and one.table not in tables:
            continue
        found[one.id] = simulated(one, choices[one.id])
        print(one.id, one.size_bytes, one.time_us, choices[one.id], found[one.id], flush=True)
    return found


if __name__ == "__main__":
    KEPT.write_text(json.dumps(all_simulated(sys.argv[1:]), indent=1) + "\n", encoding="utf-8")
