"""The incast of 64 hosts on one, as a spec that comes with the package and by the command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
def test_64_to_1_over_lossless_queues_drops_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "groundwire.cli", "run", "topologies/incast-64-lossless.yaml"]
    command += ["--kernel", "virtual", "--out", str(tmp_path / "out")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["summary"]["drops"] == 0
    assert result["summary"]["pauses"] > 64
    (incast,) = [c for c in result["collectives"] if c["kind"] == "incast"]
    # 64 MB through one link of 100 Gb/s, in frames of 9038 bytes on the wire for 8948 of payload.
    assert incast["duration_ns"] == pytest.approx(64e6 * 8 / 100 * 9038 / 8948, rel=0.02)
