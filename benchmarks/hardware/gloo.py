"""Published times of Gloo on real hosts, held against `packet` with hosts that take time.

A row of `gloo.csv` is an all-reduce between hosts whose processors copy, call and wake threads up
(docs/host.md). One number is fitted on one row a source: the rate of copies. On one host's
loopback ranks are taken to have hosts of their own, with no packets to be handled and a link that
is never full; a call costs what `groundwire doctor --measure-host` found on a virtual machine (the
preset epyc-vm), a wake-up what was published of bare metal (the preset xeon-e5-2665). Beside that
stand the virtual machine's wake-ups, with a rate of copies of their own, and free hosts. The
virtual machine's were the model before any error was seen; bare metal's are since.

`python -m benchmarks.hardware.gloo` writes the kept result.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.hardware.rows import rows as read
from groundwire.forecast import predict
from topologies.spec.host_section import PRESETS
from topologies.spec.spec import parse_dict

FILE = Path(__file__).parent / "gloo.csv"
KEPT = Path(__file__).parents[1] / "results" / "2026-11-27-hardware-gloo.json"

RATIO = "g3.1"
"""The id of `gathered_ratio`."""

LOOPBACK = "loopback"
VIRTUAL = "loopback-vm"
"""The hosts of the loopback's rows: those by which they are predicted, and those beside."""

_EPYC = PRESETS["epyc-vm"]
_HOSTS: dict[str, dict[str, object]] = {
    "xeon-e5-2620v4": {"cores": 1},
    LOOPBACK: {"syscall": _EPYC["syscall"], "wakeup": PRESETS["xeon-e5-2665"]["wakeup"]},
    VIRTUAL: {"syscall": _EPYC["syscall"], "wakeup": _EPYC["wakeup"]},
}
"""The costs of hosts but for the rate of copies."""


@dataclass(frozen=True, slots=True)
class Row:
    """A published time of an all-reduce of two ranks."""

    id: str
    source: str
    measured_on: str
    size_bytes: int
    time_us: float
    rate: str
    host: str
    role: str
    not_stated: str

    @property
    def fitted(self) -> bool:
        """Whether the rate of copies is fitted on it."""
        return self.role == "fitted"


def rows() -> tuple[Row, ...]:
    """All rows, in the order of the file."""
    return read(FILE, Row)


def free_us(row: Row) -> float:
    """The prediction of `packet` where hosts take no time, in microseconds."""
    return _packet_us("all_reduce", row.size_bytes, 2, row.rate, {})


def predicted_us(row: Row, copy_bytes_per_s: float) -> float:
    """The prediction of `packet`, in microseconds. Raises RuntimeError where it says nothing."""
    host = {**_HOSTS[row.host], "copy_rate": f"{round(copy_bytes_per_s)}B/s"}
    return _packet_us("all_reduce", row.size_bytes, 2, row.rate, host)


def gathered_ratio() -> float:
    """How much longer an all-gather of 2 ranks takes than one of 4 that moves as many bytes a rank,
    20 MB, over 25 Gb/s with the preset epyc-vm. pytorch/gloo #471 found 1.58 for 200 MB in the mean
    of 3 to 8 ranks, on hosts and a network that it does not tell."""
    sizes = {2: 40_000_000, 4: 26_666_656}
    two, four = (
        _packet_us("all_gather", size, ranks, "25Gbps", {"preset": "epyc-vm"})
        for ranks, size in sizes.items()
    )
    return two / four


def _packet_us(kind: str, size_bytes: int, ranks: int, rate: str, host: dict[str, Any]) -> float:
    raw = {
        "name": "gloo",
        "fabric": {"kind": "flat", "hosts": ranks, "link": {"rate": rate, "delay": "1us"}},
        "workload": {
            "kind": "collectives",
            "ranks": ranks,
            "operations": [{"kind": kind, "size": size_bytes}],
        },
        "host": host,
    }
    answer = predict(parse_dict(raw, "gloo"), predictors=["packet"]).collectives[0]
    told = answer.predicted["packet"]
    if told.duration_ns is None:
        raise RuntimeError(f"{kind} of {size_bytes:,} bytes: {told.reason}")
    return told.duration_ns / 1e3


def fitted_rate(row: Row) -> float:
    """Bytes a second of copies with which a row comes out, to a thousandth."""
    rate = 2 * row.size_bytes / row.time_us * 1e6
    for _ in range(6):
        told = predicted_us(row, rate)
        if abs(told / row.time_us - 1) < 1e-3:
            return rate
        rate *= told / row.time_us
    raise RuntimeError(f"{row.id}: no rate of copies gives {row.time_us} us")


def predictions(every: Sequence[Row]) -> dict[str, dict[str, float]]:
    """By id: the time in microseconds, and the rate of copies in GB/s, fitted by source."""
    rates = {row.source: fitted_rate(row) for row in every if row.fitted}
    return {
        row.id: {
            "time_us": round(predicted_us(row, rates[row.source]), 1),
            "copy_gbytes_per_s": round(rates[row.source] / 1e9, 2),
        }
        for row in every
    }


def main() -> None:
    """Predict all rows, and keep what they give."""
    kept = predictions(rows())
    beside = predictions([replace(row, host=VIRTUAL) for row in rows() if row.host == LOOPBACK])
    for row in rows():
        kept[row.id]["free_us"] = round(free_us(row), 1)
        if row.id in beside:
            kept[row.id]["vm_us"] = beside[row.id]["time_us"]
    kept[RATIO] = {"ratio": round(gathered_ratio(), 3)}
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
