"""Makes docs/hardware.md and the pages of its rows, of measurements, kept predictions and the
causes of what misses.

`python -m benchmarks.hardware.page` writes the pages; `make hardware` prices everything first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks.hardware import gloo, simulations, training, training_page, training_runs
from benchmarks.hardware.measurements import Measurement, measurements
from benchmarks.hardware.predictions import KEPT
from benchmarks.hardware.rows import undated

DOCS = Path(__file__).parents[2] / "docs"

GENERATIONS: Mapping[str, tuple[str, ...]] = {
    "a100": ("a100",),
    "h100": ("h100", "h200"),
    "b200": ("b200",),
}
"""The GPUs whose rows a page has, by the page: hardware-a100.md."""

LARGE_BYTES = 256 << 20
"""From here on the rate counts, and latencies do not."""

FAULTY = ("d04", "d05")
"""The tables of a cluster that is at fault."""

CAUSES: Mapping[str, str] = {
    "d01": "EFA of 400 Gb/s a server, whose plugin tells NCCL 75 us: the smallest sizes are those "
    "two steps. From 1 to 64 MB about 300 us are missing.",
    "d02": "EFA's plugin tells NCCL 75 us here too, and the smallest size takes less than one such "
    "step; the AWS tuner's choice, where it differs from NCCL's.",
    "d03": "Below 500 MB NVLS ramps up, which its one bandwidth does not say.",
    "d04": "A third of the usual rate, which its thread does not resolve: a fault of that cluster.",
    "d05": "The same cluster, by rings: a fault of that cluster.",
    "d06": "Below 100 MB: RoCE's latency. Above, B200 does better than the table of 2.27.",
    "d07": "Below 50 MB: GPUDirect-TCPXO's latency, which no source tells.",
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

_Kept = Mapping[str, Mapping[str, Any]]

_HEAD = """\
# Held against hardware

This page is made by `make hardware` from `benchmarks/hardware/nccl.csv` and `training.csv` (the
measurements, as facts with their sources) and the kept predictions in `benchmarks/results/`. A
source is a file or a thread. Causes are read off the tables; no experiment stands behind them.

## NCCL

Times are in microseconds. **Model** is NCCL's own model of time on the rings, trees and channels
that are searched here ([nccl.md](nccl.md)): version 2.27, NICs at their nominal rate, GPU direct
RDMA. A step over a network takes longer by what the NICs' plugin tells NCCL: that for EFA 75 and
35 us (aws/aws-ofi-nccl, `src/platform-aws.cpp`); this was added after the first errors were seen.
Nothing was fitted on any row: all rows are held out.

**Packet** follows the program that the model's choice becomes here, packet by packet, over RoCE on
`rails` of these servers. Links take what NCCL's tables count for a step, GPUs its step over NVLink
for each message. Launching the kernel and what the NICs' plugin tells are added as the model counts
them, as neither is on a link. Sizes above 128 MiB go on at the
rate that is reached by then. Rows by NVLS and NVLSTree go over TCP, as switches that reduce do, and
have NCCL's latency of NVLS in place of a launch; the order of NVLSTree's steps was mended after its
first errors were seen. The rate of the spines was mended after the first errors were
seen: these figures are not blind. No row is emulated; how far `packet` is from runs is in
[packet.md](packet.md).

"""

_ROWS = """\
# Held against hardware: NCCL on {gpus}

This page is made by `make hardware`; [hardware.md](hardware.md#nccl) says what its columns are.

"""

_GLOO = """\
## Gloo

An all-reduce between two hosts whose processors copy, call and wake threads up, by `packet`
([host.md](host.md)). One number is fitted on one row a source, marked: the rate of copies
(`benchmarks/hardware/gloo.py` has the others). On the loopback ranks are taken to have hosts of
their own.

"""

_GLOO_CAUSES = """
- **Small sizes** (g2.1 to g2.3): up to 40 KB about 120 us are missing, whatever the size. Wake-ups
  are those of a virtual machine whose cores never sleep. With those of bare metal, by the one
  published figure ([host.md](host.md#virtual-machines): the preset `xeon-e5-2665`, 18.7 us), g2.1
  takes {slow:.0f} us: {share:.0%} of what is missing. A call through Python and torch is not
  charged here, nor is adding up. The shape is right: one time up to 40 KB, then that of the copies.
- **The ratio** (g3.1): each rank copies as much, and its thread does one thing after the other with
  one neighbour or two. Two ranks have one connection for both ways, more ranks have two. A real
  host handles the packets of a connection on one core, as they come; a charged one handles them
  where they are read, on any core ([host.md](host.md#how)). The discussion does not say what those
  hosts do, and no experiment says that it is that.

Not put as a spec: pytorch/gloo #158, whose network's rate is not told, and pytorch #22978, whose
table's figures were not to be had.
"""

_ABSENT = """\
## Figures that are no rows

[claims.md](claims.md#operators-simulators-gloo) has, each with its reason:
ASTRA-sim's validation against HGX H100, vTrain's training times, Alibaba's HPN. Meta's E-ECMP with
queue pairs is measured there.
"""


def pages() -> dict[Path, str]:
    """The text of each page: the summary, and the rows."""
    kept, followed = _figures(KEPT), _figures(simulations.KEPT)
    rows, runs = measurements(), training_runs.runs()
    trained = _figures(training.KEPT)
    tables = {table: list(found) for table, found in groupby(rows, key=lambda one: one.table)}
    found = {"hardware.md": [_HEAD, *_summary(rows, kept, followed), "", *_clusters(tables, kept)]}
    for name, gpus in GENERATIONS.items():
        lines = [_ROWS.format(gpus=" and ".join(gpus).upper())]
        for table, own in tables.items():
            if own[0].gpu in gpus:
                lines += _table(table, own, kept, followed)
        found[f"hardware-{name}.md"] = lines
    found["hardware.md"] += ["", _GLOO, *_of_gloo(), _gloo_causes()]
    found["hardware.md"] += ["", training_page.SHORT, *training_page.summary(runs, trained)]
    found["hardware.md"] += ["", _ABSENT]
    found["hardware-training.md"] = training_page.page(runs, trained)
    texts = {DOCS / name: "\n".join(lines) for name, lines in found.items()}
    return {
        place: re.sub("\n{3,}", "\n\n", text).rstrip("\n") + "\n" for place, text in texts.items()
    }


def _clusters(tables: Mapping[str, Sequence[Measurement]], kept: _Kept) -> list[str]:
    """A row for each table of measurements, with the page that has it."""
    lines = ["| table | servers x GPUs | rows | error of the model |", "|---|---|---|---|"]
    for name, gpus in GENERATIONS.items():
        for table, own in tables.items():
            first = own[0]
            if first.gpu in gpus:
                words = f"{first.servers} x {first.gpus} {first.gpu.upper()}"
                anchor = f"{table}-{words}".lower().replace(" ", "-")
                lines.append(
                    f"| [{table}](hardware-{name}.md#{anchor}) | {words} | {len(own)} "
                    f"| {_error(own, kept):.1%} |"
                )
    return lines


def _figures(path: Path) -> _Kept:
    found: _Kept = json.loads(path.read_text(encoding="utf-8"))
    return found


def _summary(rows: Sequence[Measurement], kept: _Kept, followed: _Kept) -> list[str]:
    large = [one for one in rows if one.size_bytes >= LARGE_BYTES]
    sound = [one for one in large if one.table not in FAULTY]
    small = [one for one in rows if one.size_bytes < LARGE_BYTES and one.table not in FAULTY]
    several = [one for one in small if one.servers > 1]
    sources = {one.source for one in rows}
    lines = [
        f"{len(rows)} rows of {len(sources)} sources. Geometric mean of the error; that the "
        "cluster of d04 and d05 is at fault was read in its thread after its errors were seen:",
        "",
        "| rows | count | model | packet |",
        "|---|---|---|---|",
    ]
    for name, those in (
        ("all", rows),
        ("from 256 MiB on", large),
        ("from 256 MiB on, without the cluster of d04 and d05", sound),
        (
            "of these, by NVLS on one server",
            [one for one in sound if one.nvls and one.servers == 1],
        ),
        ("below 256 MiB, without that cluster", small),
        ("of these, on one server", [one for one in small if one.servers == 1]),
        *(
            (f"of these, over {network}", [one for one in several if _network(one) == network])
            for network in ("EFA", "GPUDirect-TCPXO", "InfiniBand or RoCE")
        ),
    ):
        lines.append(
            f"| {name} | {len(those)} | {_error(those, kept):.1%} | {_error(those, followed):.1%} |"
        )
    return lines


def _network(one: Measurement) -> str:
    """The network that joins several servers."""
    if "EFA" in one.measured_on:
        return "EFA"
    return "GPUDirect-TCPXO" if "TCPXO" in one.measured_on else "InfiniBand or RoCE"


def _table(table: str, rows: Sequence[Measurement], kept: _Kept, followed: _Kept) -> list[str]:
    first = rows[0]
    lines = [
        f"## {table}: {first.servers} x {first.gpus} {first.gpu.upper()}",
        "",
        f"Source: {undated(first.source)}. Measured on: {undated(first.measured_on)}.",
    ]
    if first.not_stated:
        lines.append(f"Not stated there: {first.not_stated}.")
    lines += [
        f"Taken as: {first.nic_gbps} Gb/s for each of 8 NICs, {first.cpu} processors.",
        f"{CAUSES[table]} Geometric mean of the error: {_error(rows, kept):.1%}.",
        "",
        "| id | collective | bytes | measured | model | error | packet | error | choice |",
        "|---|---|---|---|---|---|---|---|---|",
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
            f"{found['time_us']:,.1f} | {error:+.1%} | {_of_packet(one, followed)} | "
            f"{found['algorithm']}, {found['protocol']}{given} |"
        )
    return [*lines, ""]


def _of_packet(one: Measurement, followed: _Kept) -> str:
    time_us = followed[one.id].get("time_us")
    return "- | -" if time_us is None else f"{time_us:,.1f} | {time_us / one.time_us - 1:+.1%}"


def _error(rows: Sequence[Measurement], kept: _Kept) -> float:
    """The geometric mean of how far predictions are off, as a share."""
    logs = [abs(log(kept[one.id]["time_us"] / one.time_us)) for one in rows]
    return exp(sum(logs) / len(logs)) - 1


def _of_gloo() -> list[str]:
    """Rows of Gloo, with the mean error of those that are held out."""
    kept = _figures(gloo.KEPT)
    lines = [
        "| id | measured on | bytes | measured, us | packet, us | error |",
        "|---|---|---|---|---|---|",
    ]
    logs = []
    for row in gloo.rows():
        told = kept[row.id]["time_us"]
        error = "fitted" if row.fitted else f"{told / row.time_us - 1:+.1%}"
        if not row.fitted:
            logs.append(abs(log(told / row.time_us)))
        where = f"{row.source}: {row.measured_on}"
        cells = f"{row.size_bytes:,} | {row.time_us:,.1f} | {told:,.1f} | {error}"
        lines.append(f"| {row.id} | {where} | {cells} |")
    mean = exp(sum(logs) / len(logs)) - 1
    sources = len({row.source for row in gloo.rows()})
    ratio = kept[gloo.RATIO]["ratio"]
    return [
        f"{len(lines) - 2} times of {sources} sources, {len(logs)} held out, and a ratio. "
        f"Geometric mean of the error of those held out {mean:.1%}; the target is 10%.",
        "",
        *lines,
        f"| {gloo.RATIO} | pytorch/gloo #471: an all-gather of 2 ranks beside ones of 3 to 8, as "
        f"many bytes a rank | 200,000,000 | 1.58 times | {ratio:.2f} times "
        f"| {ratio / 1.58 - 1:+.1%} |",
    ]


def _gloo_causes() -> str:
    kept = _figures(gloo.KEPT)
    row = next(one for one in gloo.rows() if one.host == "loopback")
    slow_us, told_us = kept[gloo.SLOW_WAKING]["time_us"], kept[row.id]["time_us"]
    share = (slow_us - told_us) / (row.time_us - told_us)
    return _GLOO_CAUSES.format(slow=slow_us, share=share)


if __name__ == "__main__":
    for place, text in pages().items():
        place.write_text(text, encoding="utf-8")
