"""A network split over workers: lambda, bytes across, accuracy, latency measured and predicted.

    .venv/bin/python benchmarks/partitions.py --runs DIR [--specs NAME,...] [--costs 0,0.5,...]

Each case runs in the virtual kernel, into a directory of its own in DIR; those that are complete
there are taken as they are. Latency is the last iteration's. Times and accuracies are exact: they
do not depend on the machine. The table is Markdown; a last row of each spec is neurons in order
(`assignment: contiguous`) at the largest cost of the list below 1.01.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import groundwire

ROOT = Path(__file__).resolve().parent.parent
SPECS = "partition-mlp-4,partition-mlp-8,partition-cnn-4,partition-cnn-8,partition-blocks"
COSTS = "0,0.3,0.5,0.7,1,1.5"
_CONTIGUOUS_AT_MOST = 1.01
_HEADINGS = (
    "spec",
    "assignment",
    "lambda",
    "KB across",
    "messages",
    "weights kept",
    "accuracy",
    "us measured",
    "us flow",
    "error",
)


def result_of(spec: str, assignment: str, cost: str, runs: Path) -> dict[str, Any]:
    """result.json of a case, which is run when it is not there."""
    out = runs / f"{spec}-{assignment}-{cost}"
    if not (out / "result.json").exists():
        groundwire.run(
            ROOT / "topologies" / f"{spec}.yaml",
            {
                "workload.partition.assignment": assignment,
                "workload.partition.crossing_cost": cost,
                "workload.iterations": "2",
                "capture.points": "[]",
            },
            kernel="virtual",
            out=out,
            pages=False,
        )
    result: dict[str, Any] = json.loads((out / "result.json").read_text())
    if not result["valid"]:
        raise SystemExit(f"{out}: {result['invalid_reasons']}")
    return result


def row_of(spec: str, assignment: str, cost: str, result: dict[str, Any]) -> list[str]:
    """A case as a row of the table."""
    split, last = result["partition"], result["iterations"][-1]
    flow = last["predicted"]["flow"]
    return [
        spec.removeprefix("partition-"),
        assignment,
        cost,
        f"{split['bytes_across'] / 1000:,.1f}",
        str(split["messages"]),
        f"{split['kept_weights']:.1%}",
        f"{split['accuracy']:.2%}",
        f"{last['duration_ns'] / 1000:,.1f}",
        f"{flow['duration_ns'] / 1000:,.1f}",
        f"{flow['error']:+.1%}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=Path, required=True, help="where run directories go")
    parser.add_argument("--specs", default=SPECS, help="specs of topologies/, without .yaml")
    parser.add_argument("--costs", default=COSTS, help="values of lambda")
    arguments = parser.parse_args()
    costs = arguments.costs.split(",")
    print(f"| {' | '.join(_HEADINGS)} |")
    print("|---|---|" + "---:|" * (len(_HEADINGS) - 2))
    for spec in arguments.specs.split(","):
        cases = [("munkres", cost) for cost in costs]
        cases += [("contiguous", c) for c in costs if float(c) < _CONTIGUOUS_AT_MOST][-1:]
        for assignment, cost in cases:
            result = result_of(spec, assignment, cost, arguments.runs)
            cells = row_of(spec, assignment, cost, result)
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
