"""FRED's fabrics beside a mesh: what is gained by a tree of switches, and by reducing in it.

    .venv/bin/python -m benchmarks.fred [--runs DIR] [--table collectives] [--only "wafer;DP(5)"]
    .venv/bin/python -m benchmarks.fred --specs DIR

All in the virtual kernel: durations are the same in every run. Runs are kept in DIR; what is there
is not run again. With --specs nothing is run: the specs are written, for `groundwire run`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.fred import collectives, models, streams
from benchmarks.fred.fabrics import SCALE
from benchmarks.fred.table import Case, measured, table
from testing.kept_runs import kept_run

ROOT = Path(__file__).resolve().parents[2]
TABLES: dict[str, tuple[Sequence[str], Callable[[str], Iterator[Case]]]] = {
    "collectives": (collectives.ROWS, collectives.cases),
    "streams": (streams.NAMES, streams.cases),
    "models": (models.NAMES, models.cases),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "fred")
    parser.add_argument("--table", choices=TABLES, action="append", help="all, if not given")
    parser.add_argument("--only", default="", help="rows, divided by ;")
    parser.add_argument("--specs", type=Path, help="write the specs there, and run nothing")
    options = parser.parse_args()
    only = [name for name in options.only.split(";") if name]
    for name in options.table or TABLES:
        rows, cases = TABLES[name]
        wanted = [case for row in rows if not only or row in only for case in cases(row)]
        if options.specs is not None:
            write(wanted, options.specs)
        elif wanted:
            found = [measured(case, kept_run(case.spec, options.runs)) for case in wanted]
            print(f"## {name}\n\n{table(found, SCALE)}\n", flush=True)


def write(cases: Sequence[Case], directory: Path) -> None:
    """A file for each case, by row and fabric."""
    directory.mkdir(parents=True, exist_ok=True)
    for case in cases:
        row = re.sub(r"[^A-Za-z0-9]+", "-", case.name).strip("-").lower()
        (directory / f"{row}-{case.fabric.lower()}.yaml").write_text(case.spec.lstrip())


if __name__ == "__main__":
    main()
