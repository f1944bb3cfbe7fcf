"""The DLRM case study's four small systems, run: what each takes, and what of its claims comes out.

    .venv/bin/python benchmarks/dlrm_study.py --runs DIR [--systems NAME,...]

Each case runs once in the virtual kernel, into a directory of its own in DIR; those that are
complete there are taken as they are. Times are exact; they do not depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SYSTEMS = ("flat100g", "flat800g", "hier", "hieropt")
NAMED = {
    "AlltoAll forward": "forward.{}.0.Embedding",
    "AlltoAll backward": "input_gradient.{}.0.Embedding",
    "Top0": "weight_gradient.{}.8.Top0",
    "Top1": "weight_gradient.{}.9.Top1",
    "Bot0": "weight_gradient.{}.1.Bot0",
}


def result_of(system: str, runs: Path) -> dict[str, Any]:
    """result.json of a system's run, which is made when it is not there."""
    found = runs / system / "result.json"
    if not found.exists():
        spec = ROOT / "topologies" / f"dlrm-small-{system}.yaml"
        command = [sys.executable, "-m", "groundwire.cli", "run", spec, "--kernel", "virtual"]
        subprocess.run([*map(str, command), "--out", str(runs / system)], cwd=ROOT, check=True)
    result: dict[str, Any] = json.loads(found.read_text())
    if not result["valid"]:
        raise SystemExit(f"{system}: {result['invalid_reasons']}")
    return result


def longest(result: dict[str, Any]) -> str:
    """The all-reduce of gradients that takes longest."""
    rows = [c for c in result["collectives"] if c["phase"] == "weight_gradient"]
    return str(max(rows, key=lambda c: c["duration_ns"])["id"]).removeprefix("i0.")


def raw_us(result: dict[str, Any], name: str) -> str:
    """What a collective takes from its posting to its end, in both passes."""
    known = {c["id"]: c["duration_ns"] for c in result["collectives"]}
    return " / ".join(f"{known[f'i0.{name.format(p)}'] / 1000:.1f}" for p in (0, 1))


def page(results: dict[str, dict[str, Any]]) -> str:
    """The tables, as Markdown."""
    head = "| us | " + " | ".join(results) + " |\n|---|" + "---|" * len(results) + "\n"
    wholes = {s: r["iterations"][0] for s, r in results.items()}
    rows = [
        ("two passes", [f"{w['duration_ns'] / 1000:,.1f}" for w in wholes.values()]),
        ("computing", [f"{w['compute_ns'] / 1000:,.1f}" for w in wholes.values()]),
        ("exposed communication", [f"{w['exposed_comm_ns'] / 1000:,.1f}" for w in wholes.values()]),
    ]
    rows += [
        (f"{n}, raw", [raw_us(r, name) for r in results.values()]) for n, name in NAMED.items()
    ]
    rows += [
        ("longest all-reduce", [longest(r) for r in results.values()]),
        (
            "drops, retransmits",
            [f"{r['summary']['drops']}, {r['summary']['retransmits']}" for r in results.values()],
        ),
    ]
    return head + "".join(f"| {name} | {' | '.join(cells)} |\n" for name, cells in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    print(page({s: result_of(s, options.runs) for s in options.systems.split(",")}), end="")


if __name__ == "__main__":
    main()
