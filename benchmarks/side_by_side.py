"""Is the virtual kernel of this clone faster than that of another? Both run at the same time.

    .venv/bin/python benchmarks/side_by_side.py OTHER_CLONE [--ranks 32] [--pairs 3] [--json]

The speed of a shared machine changes by a third within minutes, so runs in turns say little: of two
kernels in turns, three runs each once showed one to be a tenth faster that was not. Here each round
runs `benchmarks/virtual_speed.py` of both clones at once, on a core each: what makes one slow makes
the other slow. As cores differ by as much, and who starts first may be at an advantage, rounds come
in pairs, of which the second has both swapped. Printed are the seconds from the first collective to
the end, each pair's ratio (the geometric mean of its two), and the mean of these with its 95%
confidence interval (Student's t).
Kernels that are not there yet are built first.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats

THIS = Path(__file__).resolve().parent.parent


def start(clone: Path, ranks: int, core: int | None) -> subprocess.Popen[str]:
    """The benchmark of that clone, on that core."""
    return subprocess.Popen(
        [
            sys.executable,
            "benchmarks/virtual_speed.py",
            "--no-ns3",
            "--json",
            "--ranks",
            f"{ranks}",
        ],
        cwd=clone,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}),
    )


def seconds_after_start(process: subprocess.Popen[str]) -> float:
    """From the first collective to the end. Raises SystemExit when the benchmark failed."""
    printed, _ = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"benchmarks/virtual_speed.py failed with {process.returncode}")
    (row,) = json.loads(printed)
    return float(row["wall_s"] - row["first_collective_s"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, metavar="OTHER_CLONE")
    parser.add_argument("--ranks", type=int, default=32)
    parser.add_argument("--pairs", type=int, default=3, help="of rounds; at least 2")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    other = arguments.other.resolve()
    if not (other / "benchmarks" / "virtual_speed.py").is_file():
        parser.error(f"{other} is no clone of groundwire")
    if arguments.pairs < 2:
        parser.error(f"--pairs {arguments.pairs}: at least 2")
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        parser.error("two at a time need two cores; this process may use one")
    progress = Console(stderr=True)
    for clone in (THIS, other):
        progress.print(f"a run of two ranks in {clone}")
        seconds_after_start(start(clone, 2, None))
    rounds: list[tuple[float, float]] = []
    for number in range(2 * arguments.pairs):
        swapped = number % 2 == 1
        clones = (other, THIS) if swapped else (THIS, other)
        running = [
            start(clone, arguments.ranks, core) for clone, core in zip(clones, cores, strict=True)
        ]
        try:
            first_s, second_s = map(seconds_after_start, running)
        finally:
            for process in running:
                process.terminate()
        here_s, there_s = (second_s, first_s) if swapped else (first_s, second_s)
        rounds.append((here_s, there_s))
        progress.print(f"round {number + 1}: {here_s:.1f} s here, {there_s:.1f} s there")
    show(rounds, arguments.json)


def show(rounds: list[tuple[float, float]], as_json: bool) -> None:
    by_round = np.log([there_s / here_s for here_s, there_s in rounds])
    by_pair = by_round.reshape(-1, 2).mean(axis=1)
    mean = float(by_pair.mean())
    reach = float(stats.t.ppf(0.975, len(by_pair) - 1) * stats.sem(by_pair))
    result: dict[str, Any] = {
        "rounds": [{"here_s": here_s, "there_s": there_s} for here_s, there_s in rounds],
        "there_by_here": math.exp(mean),
        "low": math.exp(mean - reach),
        "high": math.exp(mean + reach),
    }
    if as_json:
        print(json.dumps(result, indent=2))
        return
    table = Table("round", "here s", "there s", "there / here", "pair")
    for number, (here_s, there_s) in enumerate(rounds):
        pair = f"{np.exp(by_pair[number // 2]):.3f}" if number % 2 else ""
        ratio = f"{there_s / here_s:.3f}"
        table.add_row(f"{number + 1}", f"{here_s:.1f}", f"{there_s:.1f}", ratio, pair)
    console = Console()
    console.print(table)
    console.print(
        f"there / here {result['there_by_here']:.3f}, "
        f"95% between {result['low']:.3f} and {result['high']:.3f}"
    )


if __name__ == "__main__":
    main()
