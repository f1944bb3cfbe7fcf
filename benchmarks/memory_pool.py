"""A model whose weights are in a memory pool: how many memory hosts, and how fast?

    .venv/bin/python -m benchmarks.memory_pool --runs DIR     the table
    .venv/bin/python -m benchmarks.memory_pool --traces       topologies/traces/offload.*.et anew

Four ranks train eight layers on one switch of 100 Gb/s. A layer's weights (4 MiB for each rank) are
loaded a layer ahead, forward and backward; its gradients are reduced and stored (1 MiB).
Beside each measured iteration is what must pass the busiest port of a memory host, or its memory,
and what is computed: an iteration cannot be shorter.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from analysis.chakra.files import write_graphs
from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph, GraphNode, MemoryNode
from collectives.call import CollectiveCall
from testing.kept_runs import ROOT, kept_run

RANKS = 4
LAYERS = 8
WEIGHTS_BYTES = 4 << 20
GRADIENT_BYTES = 1 << 20
FORWARD_NS = 200_000
SPEC = ROOT / "topologies" / "memory-pool.yaml"
CASES = [(hosts, rate) for rate in ("50GB/s", "5GB/s") for hosts in (1, 2, 4)]


def offloaded() -> Graph:
    """A rank's iteration; all are alike."""
    nodes: list[GraphNode] = []

    def add(node: GraphNode) -> int:
        nodes.append(node)
        return node.id

    line: tuple[int, ...] = ()
    before: tuple[int, ...] = ()
    turns = [("forward", layer) for layer in range(LAYERS)]
    turns += [("backward", layer) for layer in reversed(range(LAYERS))]
    for direction, layer in turns:
        name = f"{direction}.{layer}"
        # A layer ahead: the load begins when the computation before the last one is over.
        load = add(
            MemoryNode(
                id=len(nodes), name=f"load.{name}", after=before, loads=True,
                size_bytes=WEIGHTS_BYTES,
            )
        )  # fmt: skip
        before = line
        duration_ns = FORWARD_NS * (1 if direction == "forward" else 2)
        done = add(
            ComputeNode(id=len(nodes), name=name, after=(*line, load), duration_ns=duration_ns)
        )
        line = (done,)
        if direction == "backward":
            call = CollectiveCall("all_reduce", GRADIENT_BYTES, tuple(range(RANKS)))
            reduced = add(
                CollectiveNode(id=len(nodes), name=f"reduce.{layer}", after=line, call=call)
            )
            add(
                MemoryNode(
                    id=len(nodes), name=f"store.{layer}", after=(reduced,), loads=False,
                    size_bytes=GRADIENT_BYTES,
                )
            )  # fmt: skip
    return tuple(nodes)


def table(runs: Path) -> Iterator[tuple[str, ...]]:
    spec: dict[str, Any] = yaml.safe_load(SPEC.read_text())
    spec["payload"] = "timing"
    spec["workload"]["path"] = str((SPEC.parent / spec["workload"]["path"]).resolve())
    for hosts, rate in CASES:
        spec["fabric"]["hosts"] = spec["workload"]["ranks"] = RANKS + hosts
        spec["workload"]["memory"] |= {"hosts": hosts, "rate": rate}
        run = kept_run(yaml.safe_dump(spec), runs)
        result = json.loads((run / "result.json").read_text())
        whole = result["iterations"][0]
        loads = RANKS * 2 * LAYERS
        port_ns = loads * WEIGHTS_BYTES / hosts * 8 / 100
        served = loads * WEIGHTS_BYTES + RANKS * LAYERS * GRADIENT_BYTES
        memory_ns = served / hosts / (int(rate.removesuffix("GB/s")))
        compute_ns = LAYERS * 3 * FORWARD_NS
        bound_ns = max(port_ns, memory_ns, compute_ns)
        assert whole["duration_ns"] >= bound_ns
        yield (
            str(hosts),
            rate,
            f"{whole['duration_ns'] / 1000:,.0f}",
            f"{port_ns / 1000:,.0f}",
            f"{memory_ns / 1000:,.0f}",
            f"{compute_ns / 1000:,.0f}",
            f"{whole['duration_ns'] / bound_ns:.2f}",
            "yes" if result["valid"] else "no",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--traces", action="store_true")
    arguments = parser.parse_args()
    if arguments.traces:
        (SPEC.parent / "traces").mkdir(exist_ok=True)
        write_graphs(SPEC.parent / "traces" / "offload", [offloaded()] * RANKS)
    if arguments.runs:
        print("| hosts | rate | iteration us | port us | memory us | computation us | x | valid |")
        print("|--:|--:|--:|--:|--:|--:|--:|---|")
        for row in table(arguments.runs):
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
