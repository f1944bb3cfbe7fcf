"""How long an all-to-all takes in `groundwire astra`'s simulation, beside ASTRA-sim itself.

    .venv/bin/python benchmarks/astra.py [--ranks N,N,...] [--original DIR] [--json]

16 MiB by `direct` over a Switch in 4 splits, both backends. "short" simulates one rank for all
(analysis/astra/lockstep.py), "full" every rank; reading the files is in neither. With --original,
DIR holds ASTRA-sim's binaries (AstraSim_Analytical_Congestion_Aware and _Unaware); they run on the
same files in the same run, whole process, and every closing line must be equal.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from analysis.astra.files.export import InputSet, default_system, write_inputs
from analysis.astra.files.network import Dimension, NetworkConfig
from analysis.astra.rank_result import RankResult
from analysis.astra.simulate import simulate
from analysis.astra.simulation import read_simulation
from analysis.chakra.graph import CollectiveNode
from collectives.call import CollectiveCall

SIZE_BYTES = 16 << 20
SPLITS = 4
FULL_RANKS = 256
BINARIES = {
    "aware": "AstraSim_Analytical_Congestion_Aware",
    "unaware": "AstraSim_Analytical_Congestion_Unaware",
}
LINE = re.compile(r"sys\[\d+\] finished, \d+ cycles, exposed communication \d+ cycles\.")


def write(folder: Path, ranks: int) -> InputSet:
    call = CollectiveCall("all_to_all", SIZE_BYTES, tuple(range(ranks)))
    graph = (CollectiveNode(id=1, name="all_to_all", call=call),)
    network = NetworkConfig((Dimension("Switch", ranks, 50.0, 500.0),))
    return write_inputs(
        folder, [graph] * ranks, network, default_system(1, "direct", splits=SPLITS)
    )


def timed(run: Callable[[], list[RankResult]]) -> tuple[float, list[str]]:
    start = time.perf_counter()
    results = run()
    return time.perf_counter() - start, [str(result) for result in results]


def original(
    directory: Path, backend: str, files: InputSet, folder: Path
) -> tuple[float, list[str]]:
    command = [str(directory / BINARIES[backend]), *files.options(), f"--logging-folder={folder}"]
    start = time.perf_counter()
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return time.perf_counter() - start, LINE.findall(ended.stdout)


def measure(ranks: int, backend: str, directory: Path | None) -> dict[str, float | int | str]:
    """Seconds of each way. Raises SystemExit when their lines differ."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = write(folder, ranks)
        simulation = read_simulation(
            files.workload_prefix, files.system, files.network, files.memory, backend=backend
        )
        found = {"short": timed(lambda: simulate(simulation))}
        if ranks <= FULL_RANKS:
            found["full"] = timed(lambda: simulate(simulation, short_cuts=False))
        if directory is not None:
            found["original"] = original(directory, backend, files, folder)
    lines = {tuple(lines) for _, lines in found.values()}
    if len(lines) != 1:
        raise SystemExit(f"{ranks} ranks, {backend}: the closing lines differ")
    row: dict[str, float | int | str] = {"ranks": ranks, "backend": backend}
    row |= {f"{way}_s": round(seconds, 4) for way, (seconds, _) in found.items()}
    for way in ("short", "full"):
        if "original" in found and way in found:
            row[f"original/{way}"] = round(found["original"][0] / found[way][0], 2)
    return row


def exponent(rows: list[dict[str, float | int | str]], way: str) -> float:
    """Growth between the two largest sizes: seconds go as ranks to this power."""
    last = [row for row in rows if f"{way}_s" in row][-2:]
    (n1, t1), (n2, t2) = ((float(row["ranks"]), float(row[f"{way}_s"])) for row in last)
    return math.log(t2 / t1) / math.log(n2 / n1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="16,32,64,128,256,512,1024")
    parser.add_argument("--original", type=Path, help="folder with ASTRA-sim's binaries")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sizes = [int(text) for text in options.ranks.split(",")]
    for backend in BINARIES:
        rows = []
        for ranks in sizes:
            rows.append(measure(ranks, backend, options.original))
            text = "  ".join(f"{key} {value}" for key, value in rows[-1].items())
            print(json.dumps(rows[-1]) if options.json else text, flush=True)
        if len(rows) > 1:
            print(f"{backend}: short grows as ranks^{exponent(rows, 'short'):.1f}", file=sys.stderr)


if __name__ == "__main__":
    main()
