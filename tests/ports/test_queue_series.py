"""The backlog of chosen ports over time: asked for in a spec, in the run directory, on the page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
INTERVAL_NS = 1000


def test_a_spec_asks_for_the_backlog_over_time(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        yaml.safe_dump(
            {
                "name": "series",
                "fabric": {
                    "kind": "flat",
                    "hosts": 3,
                    "link": {"rate": "100Gbps", "delay": "500ns", "mtu": 9000},
                    "queue": {"kind": "dctcp", "k": "50KB", "buffer": "4MB"},
                },
                "transport": {"congestion_control": "dctcp"},
                "workload": {
                    "kind": "collectives",
                    "ranks": 3,
                    "operations": [{"kind": "incast", "size": "2MB"}],
                },
                "compute": {"device": "none"},
                "capture": {"points": []},
                "counters": {"interval": f"{INTERVAL_NS}ns", "ports": ["s0:h0"]},
                "predict": [],
            }
        )
    )
    out = tmp_path / "out"
    command = [sys.executable, "-m", "groundwire.cli", "run", spec, "--kernel", "virtual"]
    run = subprocess.run(
        [*map(str, command), "--out", str(out)], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    links = [json.loads(line) for line in (out / "links.jsonl").read_text().splitlines()]
    (port,) = [link for link in links if (link["node"], link["peer"]) == ("s0", "h0")]
    (samples,) = [json.loads(line) for line in (out / "ports.jsonl").read_text().splitlines()]
    assert samples["port"] == port["port"] and samples["interval_ns"] == INTERVAL_NS
    times = samples["times_ns"]
    assert len(times) > 4096 // 48  # the kernel keeps them in pages
    assert times == sorted(set(times))
    assert all((time_ns - times[0]) % INTERVAL_NS == 0 for time_ns in times)
    # Two hosts fill one link: the queue grows beyond K, and is empty again at the end.
    backlogs = samples["backlog_bytes"]
    assert 50_000 < max(backlogs) <= max(samples["peak_bytes"]) == port["max_backlog_bytes"]
    assert backlogs[-1] == 0
    marks = samples["marks"]
    assert marks == sorted(marks) and marks[-1] == port["ecn_marks"] > 0
    assert samples["sent_bytes"][-1] == port["bytes"] and samples["drops"][-1] == port["drops"]
    assert 'class="queue"' in (out / "report.html").read_text()
