"""Themis against the fixed order of dimensions, on tori: the load of each axis, and the time taken.

    .venv/bin/python -m benchmarks.themis --runs DIR [--fabric NAME ...] [--in-flight N ...]

An all-reduce of 64 chunks, rings along each axis, one chunk per axis at a time: fixed order, Themis
first come first served, Themis smallest first. All in the virtual kernel, so durations are exact;
bytes of an axis are those that its ports count. Each run has a directory in DIR, named by its spec:
what is complete there is not run again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from analysis.runs.run import load_run
from testing.kept_runs import kept_run

SPEC = """
name: themis
fabric:
  kind: torus
  dims: {dims}
  link: {{rate: 100Gbps, delay: 500ns, mtu: 9000}}
  links: {links}
  queue: {{kind: droptail, buffer: 64MB}}
transport: {{congestion_control: cubic, initial_window: 1000}}
workload:
  kind: collectives
  ranks: {ranks}
  iterations: 1
  operations:
    - {{kind: all_reduce, size: {size}, program: {{algorithm: hierarchical, inside: ring,
       across: ring, chunks: 64, dimension_order: {order}}}}}
collectives: {{active_per_dimension: 1, in_flight: {in_flight}, within_dimension: {within},
  dimension_rates: {rates}}}
virtual: {{ranks_per_process: {packed}, memory: 7GB}}
capture: {{points: []}}
predict: [flow]
"""


@dataclass(frozen=True, slots=True)
class Torus:
    """Sizes of the axes, the outermost first; the factor by which the innermost axis is faster; and
    by how much Themis lowers the largest load of an axis, as ASTRA-sim's algorithm computes it for
    64 chunks. `packed` ranks are threads of one process: more have more stacks than a process of
    the host may have mappings (vm.max_map_count)."""

    dims: tuple[int, ...]
    size: str
    expected: float
    inner_rate: int = 1
    packed: int = 64

    @property
    def rates(self) -> list[int]:
        """Of the dimensions, the innermost first."""
        return [self.inner_rate] + [1] * (len(self.dims) - 1)

    @property
    def links(self) -> str:
        """What the innermost axis has of its own."""
        axis = "xyz"[len(self.dims) - 1]
        return f"{{{axis}: {{rate: {100 * self.inner_rate}Gbps}}}}"


TORI = {
    "2x2x2": Torus((2, 2, 2), "32MiB", 1.71),
    "4x4": Torus((4, 4), "32MiB", 1.60),
    "4x4, 4:1": Torus((4, 4), "32MiB", 1.00, 4),
    "4x4x4": Torus((4, 4, 4), "32MiB", 2.26),
    "8x8": Torus((8, 8), "16MiB", 1.78, packed=16),
}
SCHEDULES = {
    "fixed order": ("fixed", "fifo"),
    "Themis, first come": ("themis", "fifo"),
    "Themis, smallest first": ("themis", "smallest-first"),
}


def spec_of(torus: Torus, schedule: str, in_flight: int) -> str:
    """The spec of a run."""
    order, within = SCHEDULES[schedule]
    return SPEC.format(
        dims=list(torus.dims),
        links=torus.links,
        rates=torus.rates,
        ranks=prod(torus.dims),
        packed=min(prod(torus.dims), torus.packed),
        size=torus.size,
        order=order,
        within=within,
        in_flight=in_flight,
    )


def figures_of(directory: Path) -> dict[str, Any]:
    """Duration, prediction, and what the ports of each axis sent, innermost axis last."""
    result = json.loads((directory / "result.json").read_text())
    assert result["valid"], result["invalid_reasons"]
    (row,) = result["collectives"]
    found = load_run(directory)
    sent: dict[str, int] = {}
    for record in found.links:
        axis = found.fabric.links[record.link].link_class
        sent[axis] = sent.get(axis, 0) + record.bytes
    answer = row["predicted"]["flow"]
    return {
        "measured_us": row["duration_ns"] / 1000,
        "flow_error": answer.get("error"),
        "axis_bytes": dict(sorted(sent.items())),
    }


def compare(name: str, in_flight: int, runs: Path) -> dict[str, Any]:
    """A torus by each schedule."""
    torus = TORI[name]
    rates = dict(zip("xyz", reversed(torus.rates), strict=False))
    rows: dict[str, dict[str, Any]] = {}
    for schedule in SCHEDULES:
        rows[schedule] = figures_of(kept_run(spec_of(torus, schedule, in_flight), runs))
    loads = {
        schedule: max(sent / rates[axis] for axis, sent in row["axis_bytes"].items())
        for schedule, row in rows.items()
    }
    for schedule, row in rows.items():
        row["load_ratio"] = loads["fixed order"] / loads[schedule]
        row["faster"] = rows["fixed order"]["measured_us"] / row["measured_us"]
    return rows


def table(found: dict[tuple[str, int], dict[str, Any]]) -> str:
    """As Markdown."""
    lines = [
        "| torus | in flight | schedule | MB by axis, innermost last | load ratio | expected "
        "| duration, us | `flow` | faster |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (name, in_flight), rows in found.items():
        for schedule, row in rows.items():
            expected = 1.0 if schedule == "fixed order" else TORI[name].expected
            sent = ", ".join(f"{n / 1e6:,.1f}" for n in row["axis_bytes"].values())
            error = row["flow_error"]
            lines.append(
                f"| {name} | {in_flight} | {schedule} | {sent} | {row['load_ratio']:.3f} "
                f"| {expected:.2f} | {row['measured_us']:,.1f} "
                f"| {'' if error is None else f'{error:+.1%}'} | {row['faster']:.3f} |"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--fabric", choices=TORI, action="append", help="these only")
    parser.add_argument("--in-flight", type=int, action="append", help="chunks (default: 64)")
    options = parser.parse_args(arguments)
    found = {
        (name, in_flight): compare(name, in_flight, options.runs)
        for name in options.fabric or TORI
        for in_flight in options.in_flight or [64]
    }
    print(table(found))


if __name__ == "__main__":
    main()
