"""`make bench` runs benchmarks without arguments."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_make_bench_runs_benchmarks_that_need_nothing() -> None:
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", "")
    found = re.search(r"^BENCHMARKS := (.+)$", makefile, re.MULTILINE)
    assert found is not None
    for name in found.group(1).split():
        path = ROOT / "benchmarks" / f"{name.replace('.', '/')}.py"
        assert "required=True" not in path.read_text(), name
