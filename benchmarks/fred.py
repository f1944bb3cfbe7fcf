"""FRED's fabrics beside a mesh: what groups gain by a tree of switches, and by reducing in it.

    .venv/bin/python -m benchmarks.fred [--runs DIR] [--only "wafer;DP(5)"] [--json]

The wafer of FRED (Rashidi et al., ISCA 2025): 20 endpoints, on a 5x4 mesh or below a tree of five
switches and one. Rates are a 240th of the paper's, their ratios the paper's. All in the virtual
kernel: durations are the same in every run. Runs are kept in DIR; what is there is not run again.

- wafer: an all-reduce over all endpoints.
- DP(5), MP(2), PP(2): of MP(2)-DP(5)-PP(2), with neighbours in a model-parallel group, then a
  pipeline, then the data-parallel ones. The groups of a sort run at once.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from testing.kept_runs import kept_run

ROOT = Path(__file__).resolve().parent.parent
ENDPOINTS, PER_SWITCH = 20, 4
SIZE_BYTES = 2_000_000
MESH_GBPS, NEAR_GBPS = 25, 100
UPLINK_GBPS = {"A": 50, "B": 50, "C": 400, "D": 400}
"""Of the link between two switches: 375 GB/s of an endpoint, and 3 TB/s."""
IN_SWITCH = ("B", "D")
VARIANTS = ("mesh", *UPLINK_GBPS)
PUBLISHED: dict[str, dict[str, float]] = {
    "wafer": {"A": 1.23, "B": 1.90, "C": 2.00, "D": 3.80},
    "DP(5)": {"A": 0.50, "B": 0.80, "C": 4.00, "D": 6.40},
    "MP(2)": dict.fromkeys(UPLINK_GBPS, 4.0),
    "PP(2)": dict.fromkeys(UPLINK_GBPS, 4.0),
    "PP(2), neighbours": dict.fromkeys(UPLINK_GBPS, 4.0),
}
"""Speed-ups over the mesh, from the bandwidths in the paper's text (systems.md, part 5)."""


def fabric(variant: str) -> str:
    """A spec's `fabric`. Queues are short, as FRED's are (24 KB): acknowledgements wait in them."""
    rest = "delay: 100ns, mtu: 9000}, queue: {kind: dctcp, k: 40KB, buffer: 64MB}"
    if variant == "mesh":
        return f"{{kind: mesh, dims: [5, 4], link: {{rate: {MESH_GBPS}Gbps, {rest}}}"
    return (
        f"{{kind: hierarchical, groups: 5, hosts_per_group: 4, link: {{rate: {NEAR_GBPS}Gbps, "
        f"{rest}, links: {{outer: {{rate: {UPLINK_GBPS[variant]}Gbps}}}}}}"
    )


AGGREGATION = """
aggregation: {mode: streaming, streams: any, rate: 6400Gbps, latency: 100ns}
"""


def wafer_spec(variant: str) -> str:
    """One all-reduce over all endpoints, twice."""
    if variant == "mesh":
        program = "{algorithm: torus, ring: ring, chunks: 8}"
    elif variant in IN_SWITCH:
        program = "{algorithm: aggregation}"
    else:
        program = "{algorithm: hierarchical, inside: ring, across: ring, chunks: 8}"
    return f"""
name: fred
fabric: {fabric(variant)}
workload:
  kind: collectives
  ranks: {ENDPOINTS}
  iterations: 2
  operations:
    - {{kind: all_reduce, size: {SIZE_BYTES}, program: {program}}}
capture: {{points: []}}
transport: {{congestion_control: dctcp}}
virtual: {{ranks_per_process: {ENDPOINTS}}}
predict: [flow]
{AGGREGATION if variant in IN_SWITCH else ""}"""


def groups_spec(variant: str, sort: str) -> str:
    """All groups of a sort at once: of model-parallel neighbours, or of those that cross."""
    innermost, phase = {"DP(5)": (PER_SWITCH, "weight_gradient"), "MP(2)": (2, "forward")}[sort]
    program = "aggregation" if variant in IN_SWITCH else "ring, chunks: 4"
    return f"""
name: fred
fabric: {fabric(variant)}
workload:
  kind: layers
  ranks: {ENDPOINTS}
  iterations: 2
  passes: 1
  parallelism: hybrid-data-model
  innermost: {innermost}
  layers: [{{name: layer, {phase}: {{collective: all_reduce, size: {SIZE_BYTES}}}}}]
capture: {{points: []}}
transport: {{congestion_control: dctcp}}
virtual: {{ranks_per_process: {ENDPOINTS}}}
predict: [flow]
collectives: {{backend: programs, all_reduce: {{algorithm: {program}}}}}
{AGGREGATION if variant in IN_SWITCH else ""}"""


def pipeline_spec(variant: str, near: bool) -> str:
    """Each endpoint sends to its like in the other stage: two places away, as FRED's placement has
    it with a model-parallel group of two between; or to its neighbour."""
    ranks = [(stage, data, model) for stage in range(2) for data in range(5) for model in range(2)]
    inside = {rank: (2 * rank[2] + rank[0] if near else 2 * rank[0] + rank[2]) for rank in ranks}
    hosts = [rank[1] * PER_SWITCH + inside[rank] for rank in ranks]
    placement = ", ".join(f"{rank}: h{host}" for rank, host in enumerate(hosts))
    return f"""
name: fred
fabric: {fabric(variant)}
placement: {{{placement}}}
workload:
  kind: collectives
  ranks: {ENDPOINTS}
  iterations: 2
  operations: [{{kind: permutation, size: {SIZE_BYTES}, shift: {ENDPOINTS // 2}}}]
capture: {{points: []}}
transport: {{congestion_control: dctcp}}
virtual: {{ranks_per_process: {ENDPOINTS}}}
predict: [flow]
"""


def last(directory: Path) -> list[dict[str, Any]]:
    """The collectives of the last iteration of a run that is valid."""
    result = json.loads((directory / "result.json").read_text())
    assert result["valid"], result
    most = max(row["iteration"] for row in result["collectives"])
    return [row for row in result["collectives"] if row["iteration"] == most]


def measured(directory: Path) -> dict[str, float]:
    """Mean microseconds of the last iteration's collectives, measured and by `flow`."""
    rows = last(directory)
    flow = [row["predicted"]["flow"]["duration_ns"] for row in rows]
    return {
        "us": sum(row["duration_ns"] for row in rows) / len(rows) / 1000,
        "flow us": sum(flow) / len(flow) / 1000,
    }


def specs(name: str) -> dict[str, str]:
    """The specs of a row of the table by variant. Where only endpoints below one switch talk, the
    trees are alike but for in-switch reduction: C and D stand for the others."""
    match name:
        case "wafer":
            return {variant: wafer_spec(variant) for variant in VARIANTS}
        case "DP(5)":
            return {variant: groups_spec(variant, name) for variant in VARIANTS}
        case "MP(2)":
            return {variant: groups_spec(variant, name) for variant in ("mesh", "C", "D")}
        case _:
            near = name == "PP(2), neighbours"
            return {variant: pipeline_spec(variant, near) for variant in ("mesh", "D")}


def table(found: dict[str, Any]) -> str:
    """In Markdown: time, and how many times faster than the mesh, beside what is published."""
    lines = [
        "| | fabric | us | flow | of the mesh | published | ours / published |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, by_variant in found.items():
        for variant, row in by_variant.items():
            cells = ["", "", ""]
            if variant != "mesh" and "mesh" in by_variant:
                ratio = by_variant["mesh"]["us"] / row["us"]
                published = PUBLISHED[name][variant]
                cells = [f"{ratio:.2f}", f"{published:.2f}", f"{ratio / published - 1:+.0%}"]
            times = f"{row['us']:.0f} | {row['flow us']:.0f}"
            lines.append(f"| {name} | {variant} | {times} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "fred")
    parser.add_argument("--only", default=";".join(PUBLISHED), help="rows, divided by ;")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {
        name: {v: measured(kept_run(text, options.runs)) for v, text in specs(name).items()}
        for name in options.only.split(";")
    }
    print(json.dumps(found) if options.json else table(found))


if __name__ == "__main__":
    main()
