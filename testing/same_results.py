"""Results of runs that are there, made anew and held against those of another version of the code.

    python -m testing.same_results keep KEPT RUN...     before a change
    python -m testing.same_results check KEPT RUN...    after it: prints what differs, and exits 1

A run's result.json is built in a copy of its directory; of several jobs that of each as well. A
change that is to leave figures alone leaves every byte.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.results.result import write_result
from analysis.runs.run import load_run

_SHOWN = 25


def results_of(run: Path) -> dict[str, str]:
    """The results of a run as this code makes them, by a name for each."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / run.name
        shutil.copytree(run, copy, symlinks=True)
        write_result(load_run(copy))
        places = [copy / "result.json", *sorted(copy.glob("jobs/*/result.json"))]
        return {"-".join(p.relative_to(scratch).parts): p.read_text() for p in places}


def leaves(document: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a document, each with where it stands."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield from leaves(value, f"{at}.{key}")
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from leaves(value, f"{at}[{index}]")
    else:
        yield at, document


def differences(before: str, after: str) -> list[str]:
    """The values that differ, a line each."""
    old, new = dict(leaves(json.loads(before))), dict(leaves(json.loads(after)))
    places = [place for place in {**old, **new} if old.get(place) != new.get(place)]
    return [f"{place}: {old.get(place)!r} was, {new.get(place)!r} is" for place in places]


def main() -> int:
    """Keep results, or check them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=["keep", "check"])
    parser.add_argument("kept", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    options = parser.parse_args()
    options.kept.mkdir(parents=True, exist_ok=True)
    changed = False
    for run in options.runs:
        for name, text in results_of(run).items():
            kept = options.kept / name
            if options.what == "keep":
                kept.write_text(text)
            elif kept.read_text() == text:
                print(f"{name}: the same {len(text):,} bytes")
            else:
                changed = True
                found = differences(kept.read_text(), text)
                print(f"{name}: {len(found)} values differ")
                print("".join(f"  {line}\n" for line in found[:_SHOWN]), end="")
    return int(changed)


if __name__ == "__main__":
    sys.exit(main())
