"""One all-reduce of 128 ranks on one switch: measured, and as ASTRA-sim's analytical model has it.

    .venv/bin/python -m benchmarks.flat_all_reduce --runs DIR [--case NAME ...]

The DLRM case study says that the two differ by up to 50 times. The analytical model is ASTRA-sim's
congestion-unaware one, with the same algorithm, chunks, rate, latency and injection latency. Times
are exact, in the virtual kernel. Runs are kept in DIR by the hash of their spec.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.astra.files.network import Dimension, NetworkConfig
from analysis.astra.files.system import COLLECTIVES, Implementation, SystemConfig
from analysis.astra.files.task import Task
from analysis.astra.simulate import simulate
from analysis.astra.simulation import Simulation
from analysis.chakra.schema import CollectiveType, NodeType
from testing.kept_runs import kept_run

RANKS = 128
LATENCY_NS = 500
RATE_GBPS = 100
INJECTION_NS = 10
TOP1_BYTES = 8_388_608
"""The gradients of a layer of the top MLP."""
SMALL_BYTES = 65_536
RANKS_PER_PROCESS = 16
"""All 128 in one exceed Linux's usual vm.max_map_count."""

SPEC = """
name: flat-all-reduce
fabric:
  kind: flat
  hosts: {ranks}
  link: {{rate: {rate}Gbps, delay: {latency}ns, mtu: 9000}}
  queue: {{kind: shared, buffer: {buffer}}}
transport: {{congestion_control: cubic, rcvbuf: {window}, sndbuf: {window}}}
workload:
  kind: collectives
  ranks: {ranks}
  iterations: 1
  dtype: float16
  operations:
    - {{kind: all_reduce, size: {size}, program: {{algorithm: {algorithm}, chunks: {chunks},
       smallest_chunk: 1024B}}}}
collectives: {{in_flight: 64, endpoint_delay: {injection}ns}}
virtual: {{ranks_per_process: {packed}}}
capture: {{points: []}}
predict: [alpha-beta]
"""


@dataclass(frozen=True, slots=True)
class Case:
    """An all-reduce; `implementation` is ASTRA-sim's name of the algorithm."""

    algorithm: str
    implementation: str
    size_bytes: int
    chunks: int
    buffer: str = "1GB"
    window: str = "500KB"

    def spec(self) -> str:
        """The spec of its run."""
        return SPEC.format(
            ranks=RANKS,
            packed=RANKS_PER_PROCESS,
            rate=RATE_GBPS,
            latency=LATENCY_NS,
            injection=INJECTION_NS,
            size=self.size_bytes,
            algorithm=self.algorithm,
            chunks=self.chunks,
            buffer=self.buffer,
            window=self.window,
        )

    def analytical_ns(self) -> int:
        """The time by ASTRA-sim's congestion-unaware backend, in cycles of 1 ns."""
        gbps = RATE_GBPS * 1e9 / 8 / 2**30
        network = NetworkConfig((Dimension("Switch", RANKS, gbps, float(LATENCY_NS)),))
        own = (Implementation(self.implementation, False),)
        system = SystemConfig(
            {name: own if name == "all-reduce" else (Implementation("direct", False),)
             for name in COLLECTIVES},
            preferred_dataset_splits=self.chunks,
            endpoint_delay_ns=INJECTION_NS,
            active_chunks_per_dimension=min(64, self.chunks),
        )  # fmt: skip
        task = Task(
            id=0,
            type=NodeType.COMM_COLL,
            on_cpu=False,
            parents=frozenset(),
            runtime_ns=1,
            collective=CollectiveType.ALL_REDUCE,
            size_bytes=self.size_bytes,
        )
        found = simulate(Simulation(network, system, [(task,)] * RANKS, backend="unaware"))
        return max(result.cycles for result in found)


CASES = {
    "direct, 8 MiB": Case("direct", "direct", TOP1_BYTES, 1),
    "direct, 64 KiB": Case("direct", "direct", SMALL_BYTES, 1),
    "tree, 8 MiB, 64 chunks": Case("double-binary-tree", "doubleBinaryTree", TOP1_BYTES, 64),
    "tree, 64 KiB, 64 chunks": Case("double-binary-tree", "doubleBinaryTree", SMALL_BYTES, 64),
    "direct, 8 MiB, buffer of 64 MB": Case("direct", "direct", TOP1_BYTES, 1, buffer="64MB"),
    "direct, 8 MiB, windows of 100 KB": Case("direct", "direct", TOP1_BYTES, 1, window="100KB"),
    "tree, 8 MiB, 1024 chunks": Case("double-binary-tree", "doubleBinaryTree", TOP1_BYTES, 1024),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--case", choices=CASES, action="append", help="these only")
    options = parser.parse_args(arguments)
    print("| all-reduce | measured, us | analytical, us | times | drops, retransmits |")
    print("|---|---|---|---|---|")
    for name in options.case or CASES:
        directory = kept_run(CASES[name].spec(), options.runs)
        result = json.loads((directory / "result.json").read_text())
        (row,) = result["collectives"]
        assert result["valid"], result["invalid_reasons"]
        measured, analytical = row["duration_ns"], CASES[name].analytical_ns()
        lost = f"{result['summary']['drops']}, {result['summary']['retransmits']}"
        print(
            f"| {name} | {measured / 1000:,.1f} | {analytical / 1000:,.1f} "
            f"| {measured / analytical:.1f} | {lost} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
