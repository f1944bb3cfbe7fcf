"""A whole run of an incast over lossless queues, by the command, on the native kernel."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from topologies.spec.spec import Spec, parse_spec

ROOT = Path(__file__).resolve().parents[2]
SIZE_BYTES, RATE_BPS = 150_000, 20_000_000
SENDERS = 3


def lossless_spec(queue: dict[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    """Three hosts send to a fourth one, at the same time."""
    fabric = {
        "kind": "flat",
        "hosts": SENDERS + 1,
        "link": {"rate": f"{RATE_BPS}bps", "delay": "5ms", "mtu": 1500},
        "queue": {"kind": "lossless", "xoff": "30KB", "xon": "20KB", "buffer": "2MB"}
        | (queue or {}),
    }
    return {
        "name": "native-lossless",
        "fabric": fabric,
        "transport": {"rcvbuf": "1MB", "sndbuf": "1MB"},
        "workload": {
            "kind": "collectives",
            "ranks": SENDERS + 1,
            "iterations": 2,
            "operations": [{"kind": "incast", "size": SIZE_BYTES}],
        },
        "compute": {"device": "none"},
        "capture": {"points": []},
        "scale": 1,
    } | sections


def parsed(document: dict[str, Any]) -> Spec:
    return parse_spec(json.dumps(document), "lossless")


@dataclass(frozen=True)
class Ended:
    """How the command ended, and what it left."""

    exit_code: int
    told: str
    result: dict[str, Any]
    environment: dict[str, Any]
    links: list[dict[str, Any]]


def run_natively(directory: Path, document: dict[str, Any]) -> Ended:
    spec, out = directory / "spec.yaml", directory / "out"
    spec.write_text(yaml.safe_dump(document))
    command = [
        sys.executable,
        "-m",
        "groundwire.cli",
        "run",
        spec,
        "--kernel",
        "native",
        "--out",
        out,
    ]
    run = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    if not (out / "result.json").exists():
        return Ended(run.returncode, run.stdout + run.stderr, {}, {}, [])
    return Ended(
        run.returncode,
        run.stdout + run.stderr,
        json.loads((out / "result.json").read_text()),
        json.loads((out / "environment.json").read_text()),
        [json.loads(line) for line in (out / "links.jsonl").read_text().splitlines()],
    )
