"""Does a virtual run that charges this machine's own costs take what a native one takes?

    sudo .venv/bin/python benchmarks/host_costs.py [--directory DIR] [--host FILE] [--table FILE]

Twenty collectives on a star of 2 and of 4 hosts, at rates that a small machine can hold, and then
four at 40 Gb/s, where its processors are the limit. Each runs natively at scale 1, on the virtual
kernel that charges nothing, and on the one that charges `host`: of FILE, or as
`groundwire doctor --measure-host` finds it. A time is the median over the iterations of the longest
rank. The 20 have a target of 5%; nothing is fitted.

Finished runs stay in DIR: interrupted and started again, it goes on where it was. Prints the table
as Markdown, with the difference that the costs make.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from emulator.host_time.measuring import measure_host
from groundwire import pipeline
from topologies.spec.spec import Spec, parse_dict
from topologies.units import format_size

_TARGET = 0.05
_ITERATIONS = 5
_RATES_BPS = {"50Mbps": 50e6, "100Mbps": 100e6, "200Mbps": 200e6, "500Mbps": 500e6, "1Gbps": 1e9}
_KINDS = ("all_reduce", "broadcast")
_HELD_S = 0.2
"""How long a case's payload takes at its rate: a native link's first millisecond is free, and that
is to be small."""
_LIMITS = ("64KB", "1MB", "4MB", "20MB")


@dataclass(frozen=True, slots=True)
class Case:
    """One collective. `held`: it is one of the twenty."""

    rate: str
    ranks: int
    kind: str
    size: str
    held: bool

    @property
    def name(self) -> str:
        return f"{self.rate}-{self.ranks}-{self.kind}-{self.size}"

    def spec(self, host: dict[str, Any]) -> Spec:
        return parse_dict(
            {
                "name": "host-costs",
                "fabric": {
                    "kind": "flat",
                    "hosts": self.ranks,
                    "link": {"rate": self.rate, "delay": 0},
                },
                "workload": {
                    "kind": "collectives",
                    "ranks": self.ranks,
                    "iterations": _ITERATIONS,
                    "operations": [{"kind": self.kind, "size": self.size}],
                },
                "compute": {"device": "none"},
                "capture": {"points": []},
                "predict": ["packet"],
                "scale": 1,
                "host": host,
            },
            self.name,
        )


def cases() -> list[Case]:
    """The twenty, and those that no small machine holds."""
    held = [
        Case(rate, ranks, kind, format_size(int(bps * _HELD_S / 8)), held=True)
        for (rate, bps), ranks, kind in itertools.product(_RATES_BPS.items(), (2, 4), _KINDS)
    ]
    return held + [Case("40Gbps", 2, "all_reduce", size, held=False) for size in _LIMITS]


def median_ns(
    case: Case, kernel: Literal["native", "virtual"], host: dict[str, Any], place: Path
) -> tuple[float, bool]:
    """(the median time, the verdict) of a case's run, made if it is not there."""
    if not (place / "result.json").exists():
        if place.exists():
            place.rename(place.with_name(f"{place.name}.unfinished-{time.time_ns()}"))
        pipeline.run(case.spec(host), kernel=kernel, out=place)
    result = json.loads((place / "result.json").read_text())
    return statistics.median(c["duration_ns"] for c in result["collectives"]), result["valid"]


_Row = tuple[Case, float, bool, float, float]
"""A case, its native time and verdict, its times when free and when charged (ns)."""


def _free_ns(row: _Row) -> float:
    return row[3]


def _charged_ns(row: _Row) -> float:
    return row[4]


def render(rows: Sequence[_Row]) -> str:
    """The tables and what they come to, as Markdown."""
    lines = [
        "| rate | ranks | collective | native, ms | verdict | free, ms | off | charged, ms | off "
        "| host time makes |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for case, native, valid, free, charged in rows:
        times = [f"{free / 1e6:.3f}", f"{free / native - 1:+.1%}"]
        times += [f"{charged / 1e6:.3f}", f"{charged / native - 1:+.1%}"]
        cells = [case.rate, str(case.ranks), f"{case.kind} {case.size}", f"{native / 1e6:.3f}"]
        cells += ["valid" if valid else "invalid", *times, f"{charged / free - 1:+.1%}"]
        lines.append("| " + " | ".join(cells) + " |")
    for what, takes in (("free", _free_ns), ("charged", _charged_ns)):
        offs = [abs(takes(row) / row[1] - 1) for row in rows if row[0].held]
        if offs:
            within = sum(off <= _TARGET for off in offs)
            lines += [
                "",
                f"Of the rates that can be held, {what}: {within} of {len(offs)} within "
                f"{_TARGET:.0%}, median {statistics.median(offs):.1%}, worst {max(offs):.1%}.",
            ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Native runs beside virtual ones that charge.")
    parser.add_argument("--directory", type=Path, default=Path("runs/host-costs"), metavar="DIR")
    parser.add_argument("--host", type=Path, metavar="FILE", help="of doctor --measure-host --out")
    parser.add_argument("--table", type=Path, metavar="FILE", help="default: print it")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    kept = options.host or options.directory / "host.yaml"
    if not kept.exists():
        section = measure_host(lambda line: print(line, file=sys.stderr)).section()
        kept.write_text(yaml.safe_dump({"host": section}, sort_keys=False))
    host = yaml.safe_load(kept.read_text())["host"]
    rows = []
    for number, case in enumerate(cases(), start=1):
        place = options.directory / case.name
        native, valid = median_ns(case, "native", {}, place / "native")
        free, _ = median_ns(case, "virtual", {}, place / "free")
        charged, _ = median_ns(case, "virtual", host, place / "charged")
        rows.append((case, native, valid, free, charged))
        print(
            f"{number}: {case.name}: native {native / 1e6:.3f} ms, free {free / native - 1:+.1%}, "
            f"charged {charged / native - 1:+.1%}",
            file=sys.stderr,
        )
    text = f"host: {json.dumps(host)}\n\n{render(rows)}"
    if options.table is None:
        print(text, end="")
    else:
        options.table.write_text(text)


if __name__ == "__main__":
    main()
