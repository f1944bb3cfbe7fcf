"""The order of ways to keep queues short, as predictor `packet` has it: beside what was measured.

    .venv/bin/python -m benchmarks.congestion_control_order [--measured PAGE] [--only WORKLOAD]

Predicts each cell of the table of `benchmarks/congestion_control.py` from its spec alone, and reads
what was measured from a results page. Two rows are told apart where the measured medians differ by
more than 2%: less is what ports that the kernel draws decide.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from analysis.predict.models.packet import Packet
from analysis.predict.planned_run import predict_workload
from analysis.predict.setting import setting_of_spec
from benchmarks.congestion_control import VARIANTS, spec_of, workloads

_PAGE = Path(__file__).parent / "results" / "2026-11-21-congestion-control.md"
_ROW = re.compile(r"\| *([^|]*?) *\| ([^|]+?) \| ([\d.]+) \| ([\d.]+) \|")
_APART = 1.02


@dataclass(frozen=True, slots=True)
class Cell:
    """Medians of one workload under one way, in microseconds."""

    variant: str
    measured_us: float
    predicted_us: float
    worst_us: float
    """The worst predicted iteration."""


def measured(page: Path) -> dict[tuple[str, str], float]:
    """Medians in microseconds by workload and variant. Raises ValueError for a page without."""
    found = {}
    workload = ""
    for line in page.read_text().splitlines():
        row = _ROW.match(line)
        if row is not None and row[2] in VARIANTS:
            workload = row[1] or workload
            found[workload, row[2]] = float(row[3])
    if not found:
        raise ValueError(f"{page}: found no table of {', '.join(VARIANTS)}")
    return found


def pairs(cells: list[Cell]) -> tuple[int, list[tuple[str, str]]]:
    """How many pairs of rows are told apart, and which of them the prediction has the other way
    round; the one that was measured to be faster comes first."""
    apart, swapped = 0, []
    for a, b in combinations(sorted(cells, key=lambda cell: cell.measured_us), 2):
        if b.measured_us > a.measured_us * _APART:
            apart += 1
            if b.predicted_us <= a.predicted_us:
                swapped.append((a.variant, b.variant))
    return apart, swapped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--measured", type=Path, default=_PAGE, help="a page with the table")
    parser.add_argument("--only", action="append", help="a workload, such as 'incast 1MB'")
    options = parser.parse_args()
    known = measured(options.measured)
    print("| workload | queue and control | measured us | predicted us | error | worst predicted |")
    print("|---|---|---|---|---|---|")
    verdicts = []
    began = time.process_time()
    for name, workload in workloads(16, 3).items():
        if options.only and name not in options.only:
            continue
        cells: list[Cell] = []
        for variant in VARIANTS:
            spec = spec_of("predicted", workload, variant)
            whole = predict_workload(spec, setting_of_spec(spec), Packet())
            times = [iteration.duration_ns / 1000 for iteration in whole.iterations]
            cell = Cell(variant, known[name, variant], statistics.median(times), max(times))
            error = cell.predicted_us / cell.measured_us - 1
            label = "" if cells else name
            figures = f"{cell.measured_us:.1f} | {cell.predicted_us:.1f} | {error:+.1%}"
            print(f"| {label} | {variant} | {figures} | {cell.worst_us:.1f} |", flush=True)
            cells.append(cell)
        apart, swapped = pairs(cells)
        text = "; ".join(f"{a} before {b}" for a, b in swapped) or "none"
        verdicts.append(f"{name}: {apart} pairs told apart, the other way round: {text}")
    print()
    print("\n".join(verdicts))
    print(f"{time.process_time() - began:.0f} s of a processor")


if __name__ == "__main__":
    main()
