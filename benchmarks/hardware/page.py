"""Makes docs/hardware.md of the measurements, the kept predictions and the causes of what misses.

`python -m benchmarks.hardware.page` writes the page; `make hardware` prices everything first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks.hardware.measurements import Measurement, measurements
from benchmarks.hardware.predictions import KEPT

PAGE = Path(__file__).parents[2] / "docs" / "hardware.md"

LARGE_BYTES = 256 << 20
"""From here on the rate counts, and latencies do not."""

CAUSES: Mapping[str, str] = {
    "d01": "EFA of 400 Gb/s a server: its latency is several times that of InfiniBand, which is "
    "what NCCL's tables have; sizes below 100 MB miss for that.",
    "d02": "EFA's latency, as above; and the AWS tuner's choice where it differs from NCCL's.",
    "d03": "Below 500 MB NVLS ramps up, which its one bandwidth does not say.",
    "d04": "A third of the usual rate, which its thread does not resolve: a fault of that cluster.",
    "d05": "The same cluster, by rings: a fault of that cluster.",
    "d06": "Below 100 MB: RoCE's latency. Above, B200 does better than the table of 2.27.",
    "d07": "Below 50 MB: GPUDirect-TCPXO's latency.",
    "d09": "As for the other B200.",
    "d10": "1 to 300 MB: NVLSTree's chunks ramp up; the one bandwidth of NCCL's model does not.",
    "d11": "GPUDirect-TCPXO's latency at small sizes; at large ones better than the trees that "
    "NCCL's model takes.",
    "d12": "NVLSTree's ramp, as above.",
    "d13": "Within 2%.",
    "d29": "Within 10%; the choice of ring for 4 and 5 GPUs and of NVLS for 6 to 8 is the "
    "measured one.",
    "d30": "Within 3%.",
    "d32": "Within 4%.",
    "d35a2": "The model's bandwidth for two GPUs is that of the links, which copies do not reach.",
    "d35a4": "Below 100 MB the measured latency is higher than the model's.",
    "d35a8": "Below 50 MB the measured latency is higher than the model's.",
}
"""Why rows miss, by the table that they are of."""

_HEAD = """\
# Held against hardware

This page is made by `make hardware` from `benchmarks/hardware/nccl.csv` (the measurements, as
facts with their sources) and the kept predictions in `benchmarks/results/`. All times are in
microseconds.

**Predicted** is NCCL's own model of time on the rings, trees and channels that are searched here
([nccl.md](nccl.md)): version 2.27, NICs at their nominal rate, GPU direct RDMA. Nothing was fitted
on any row: all rows are held out. No row is emulated: a run leaves out the launch of kernels and
has no NVLS, so its figures are no figures of these machines. Causes are read off the tables; no
experiment stands behind them. A source is a file or a thread.

"""


def page() -> str:
    """The whole page."""
    kept: Mapping[str, Mapping[str, Any]] = json.loads(KEPT.read_text(encoding="utf-8"))
    rows = measurements()
    lines = [_HEAD.rstrip("\n"), "", *_summary(rows, kept), ""]
    for table, found in groupby(rows, key=lambda one: one.table):
        lines += _table(table, list(found), kept)
    return "\n".join(lines).rstrip("\n") + "\n"


def _summary(rows: Sequence[Measurement], kept: Mapping[str, Mapping[str, Any]]) -> list[str]:
    large = [one for one in rows if one.size_bytes >= LARGE_BYTES]
    sound = [one for one in large if one.table not in ("d04", "d05")]
    sources = {one.source for one in rows}
    return [
        f"{len(rows)} rows of {len(sources)} sources. Geometric mean of the error:",
        "",
        "| rows | count | error |",
        "|---|---|---|",
        f"| all | {len(rows)} | {_error(rows, kept):.1%} |",
        f"| from 256 MiB on | {len(large)} | {_error(large, kept):.1%} |",
        f"| from 256 MiB on, without the cluster of d04 and d05 | {len(sound)} | "
        f"{_error(sound, kept):.1%} |",
    ]


def _table(
    table: str, rows: Sequence[Measurement], kept: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    first = rows[0]
    lines = [
        f"## {table}: {first.servers} x {first.gpus} {first.gpu.upper()}",
        "",
        f"Source: {_undated(first.source)}. Measured on: {_undated(first.measured_on)}.",
    ]
    if first.not_stated:
        lines.append(f"Not stated there: {first.not_stated}.")
    lines += [
        f"Taken as: {first.nic_gbps} Gb/s for each of 8 NICs, {first.cpu} processors.",
        f"{CAUSES[table]} Geometric mean of the error: {_error(rows, kept):.1%}.",
        "",
        "| id | collective | bytes | measured | predicted | error | choice |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        found = kept[one.id]
        error = found["time_us"] / one.time_us - 1
        given = f", {one.variables}" if one.variables else ""
        gpus = f", {one.gpus} GPUs" if one.gpus != first.gpus else ""
        if first.nvls and not one.nvls:
            given += ", without NVLS"
        lines.append(
            f"| {one.id} | {one.kind}{gpus} | {one.size_bytes:,} | {one.time_us:,.1f} | "
            f"{found['time_us']:,.1f} | {error:+.1%} | "
            f"{found['algorithm']}, {found['protocol']}{given} |"
        )
    return [*lines, ""]


def _undated(text: str) -> str:
    """Text without its dates, which `nccl.csv` has and the reference has not."""
    return re.sub(r",? ?\(?\b20\d\d-\d\d-\d\d(?:, \d\d)?\)?", "", text).strip()


def _error(rows: Sequence[Measurement], kept: Mapping[str, Mapping[str, Any]]) -> float:
    """The geometric mean of how far predictions are off, as a share."""
    logs = [abs(log(kept[one.id]["time_us"] / one.time_us)) for one in rows]
    return exp(sum(logs) / len(logs)) - 1


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
