"""`make bench` runs benchmarks without arguments."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_make_bench_leaves_out_what_has_to_be_given_something() -> None:
    found = re.search(r"filter-out ([^,]+),", (ROOT / "Makefile").read_text())
    assert found is not None
    left_out = set(found.group(1).split())
    benchmarks = {path.stem: path.read_text() for path in (ROOT / "benchmarks").glob("*.py")}
    assert left_out <= set(benchmarks)
    assert {name for name, text in benchmarks.items() if "required=True" in text} <= left_out
