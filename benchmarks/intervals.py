"""Whether what runs measured lies in the intervals that `packet` states from their specs alone.

    .venv/bin/python -m benchmarks.intervals --runs DIR --seed S [--random N] [--roce N]

The specs are those that `benchmarks.packet_predictions` draws by the seed, and runs are kept in the
same place. Each is predicted as `groundwire predict --interval` does: its ports, and with them its
paths, are drawn 19 times, and the interval is from the least to the largest answer, in which
another draw lies in 90% of cases. A time counts as inside that is at most a part in a million off:
what is the same in all draws is an interval of no width. Prints how many are inside, by set and
by run, and by whether draws differ at all.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from analysis.predict.models.packet import Packet
from analysis.predict.planned_run import PredictedJob, predict_workload
from analysis.predict.setting import setting_of_spec
from analysis.runs.collectives import collectives_of
from analysis.runs.run import load_run
from benchmarks.packet_predictions import drawn, drawn_over_roce
from groundwire.forecast import DRAWS_OF_90_PERCENT
from testing.kept_runs import kept_run
from topologies.spec.spec import Spec

_PPM = 1e-6


@dataclass(frozen=True, slots=True)
class Interval:
    """A measured time, and the least and the largest of the draws. Times are in ns."""

    of_set: str
    run: str
    what: str
    measured_ns: float
    least_ns: float
    largest_ns: float

    @property
    def is_drawn(self) -> bool:
        """Whether draws differ."""
        return self.largest_ns > self.least_ns * (1 + _PPM)

    @property
    def holds(self) -> bool:
        """Whether the measured time lies in it."""
        return self.least_ns * (1 - _PPM) <= self.measured_ns <= self.largest_ns * (1 + _PPM)

    @property
    def width(self) -> float:
        """Its width, as a share of the measured time."""
        return (self.largest_ns - self.least_ns) / self.measured_ns


def _draw(spec: Spec, number: int) -> PredictedJob:
    return predict_workload(spec, replace(setting_of_spec(spec), draw=number), Packet())


def intervals_of(of_set: str, name: str, directory: Path, workers: int) -> Iterator[Interval]:
    """An interval for each collective of a run, and for each iteration of a step. Raises
    PredictorError."""
    run = load_run(directory)
    with ProcessPoolExecutor(workers) as pool:
        numbers = range(1, DRAWS_OF_90_PERCENT + 1)
        draws = list(pool.map(partial(_draw, run.spec), numbers))
    for one in collectives_of(run):
        key = one.iteration, one.id.partition(".")[2], one.ranks
        if one.duration_ns and key in draws[0].collectives:
            times = [draw.collectives[key].duration_ns for draw in draws]
            yield Interval(of_set, name, one.id, one.duration_ns, min(times), max(times))
    result = json.loads((directory / "result.json").read_text())
    for row in result["iterations"]:
        if row["compute_ns"]:
            times = [draw.iterations[row["index"]].duration_ns for draw in draws]
            what = f"iteration {row['index']}"
            yield Interval(of_set, name, what, row["duration_ns"], min(times), max(times))


def table_of(found: Sequence[Interval]) -> Table:
    """How many hold what was measured, and how wide they are."""
    table = Table("what", title="Intervals over draws, from the spec alone")
    for heading in ("intervals", "hold it", "share", "width, mean", "furthest outside"):
        table.add_column(heading, justify="right")

    def add(label: str, kept: Sequence[Interval]) -> None:
        if not kept:
            return
        held = sum(each.holds for each in kept)
        outside = max(
            max(each.least_ns - each.measured_ns, each.measured_ns - each.largest_ns, 0)
            / each.measured_ns
            for each in kept
        )
        width = sum(each.width for each in kept) / len(kept)
        cells = (f"{held / len(kept):.1%}", f"{width:.1%}", f"{outside:.2%}")
        table.add_row(label, str(len(kept)), str(held), *cells)

    add("all", found)
    add("all whose draws differ", [each for each in found if each.is_drawn])
    add("iterations", [each for each in found if each.what.startswith("iteration")])
    for of_set in dict.fromkeys(each.of_set for each in found):
        add(of_set, [each for each in found if each.of_set == of_set])
    for name in dict.fromkeys(each.run for each in found):
        add(name, [each for each in found if each.run == name])
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, required=True, help="where runs are kept")
    parser.add_argument("--seed", type=int, required=True, help="by which specs are drawn")
    parser.add_argument("--random", type=int, default=10, help="how many over TCP (10)")
    parser.add_argument("--roce", type=int, default=8, help="how many over RoCE (8)")
    parser.add_argument("--workers", type=int, default=2, help="draws side by side (2)")
    asked = parser.parse_args()
    found: list[Interval] = []
    specs = [*drawn(asked.random, asked.seed), *drawn_over_roce(asked.roce, asked.seed)]
    for of_set, name, text in specs:
        try:
            directory = kept_run(text, asked.runs)
        except subprocess.CalledProcessError:
            print(f"{name}: the run failed", file=sys.stderr)
            continue
        rows = list(intervals_of(of_set, name, directory, asked.workers))
        print(f"{name}: {sum(row.holds for row in rows)} of {len(rows)}", file=sys.stderr)
        found += rows
    Console(width=160).print(table_of(found))


if __name__ == "__main__":
    main()
