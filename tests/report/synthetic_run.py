"""Run directories with known contents, made without any kernel."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path
from typing import Any

from analysis.results.result import write_result
from analysis.runs.run import load_run
from topologies.fabrics.build import build_fabric
from topologies.fabrics.placement import place
from topologies.spec.spec import parse_spec

START_NS = 10_000_000_000
FORWARD_NS, BACKWARD_NS, GRADIENT_NS = 100_000, 150_000, 900_000
COMPUTE_NS = 50_000
STEP_NS = 5_000
"""By how much each rank ends a collective after the one before it."""

FAT_TREE = "kind: fat-tree, k: 4"
SPEC = """
name: {name}
fabric: {{{fabric}}}
workload: {{kind: dlrm, ranks: {ranks}, iterations: {iterations}}}
placement: {placement}
predict: [alpha-beta]
counters: {{interval: {interval}}}
"""


def make_run(
    directory: Path,
    fabric: str = FAT_TREE,
    ranks: int = 16,
    iterations: int = 2,
    *,
    queues: bool = False,
    invalid: tuple[str, ...] = (),
    slower: float = 1.0,
    name: str = "synthetic",
    placement: str = "linear",
) -> Path:
    """A training run in which every duration follows from the constants above.

    Per iteration and rank r: 50 us of compute; a forward all-to-all posted by all at once, wholly
    exposed, of 100 us + 5 us * r; 50 us of compute, during which a gradient all-reduce is posted
    at its start, in flight for 900 us + 5 us * r; then blocked on it to its end.
    """
    interval = "1us" if queues else "null"
    spec = parse_spec(
        SPEC.format(
            name=name,
            fabric=fabric,
            ranks=ranks,
            iterations=iterations,
            interval=interval,
            placement=placement,
        )
    )
    built = build_fabric(spec.fabric)
    hosts = place(spec.placement, built, ranks, spec.seed)
    (directory / "ranks").mkdir(parents=True)
    (directory / "spec.yaml").write_text(spec.to_yaml())
    for rank, host in enumerate(hosts):
        head = {"event": "rank", "rank": rank, "host": host}
        head["address"] = str(built.by_name[host].address)
        lines = [head, *_connections(rank, ranks)]
        for iteration in range(iterations):
            lines += _iteration(rank, ranks, iteration, slower)
        _write_lines(directory / "ranks" / f"{rank:03d}.jsonl", lines)
    ports: list[dict[str, Any]] = []
    for link in built.links:
        for end, far in ((link.a, link.b), (link.b, link.a)):
            ports.append(
                {
                    "link": link.index, "port": end.interface, "node": end.node,
                    "peer": far.node, "rate_bps": link.rate_bps, "delay_ns": link.delay_ns,
                    "bytes": 1_000_000 * (1 + len(ports) % 7), "packets": 200,
                    "drops": 0, "drops_by_reason": {}, "ecn_marks": len(ports) % 5,
                    "max_backlog_bytes": 10_000 * (1 + len(ports) % 11),
                    "backlog_byte_us": 12_000_000,
                }
            )  # fmt: skip
    _write_lines(directory / "links.jsonl", ports)
    if queues:
        _write_lines(directory / "ports.jsonl", _samples([p["port"] for p in ports[:3]]))
    environment = {
        "kernel": "virtual", "kernel_release": "6.12.0", "versions": {"python": "3.11.7"},
        "scale": 1, "seed": 1, "hosts": list(hosts), "wall_s": 12.5, "retransmits": 3,
        "verdict": {"valid": not invalid, "reasons": list(invalid)},
    }  # fmt: skip
    (directory / "environment.json").write_text(json.dumps(environment))
    write_result(load_run(directory))
    return directory


def _connections(rank: int, ranks: int) -> list[dict[str, Any]]:
    return [
        {"event": "connection", "group": "default", "peer": peer, "port": 40_000 + rank,
         "peer_port": 50_000 + (50 * rank + peer) % 15_000}
        for peer in range(rank + 1, ranks)
    ]  # fmt: skip


def _iteration(rank: int, ranks: int, iteration: int, slower: float) -> list[dict[str, Any]]:
    began = START_NS + iteration * 2_000_000
    late = STEP_NS * rank
    posted = began + COMPUTE_NS
    exchanged = posted + round(FORWARD_NS * slower) + late
    reduced = exchanged + round(GRADIENT_NS * slower) + late
    computed = exchanged + COMPUTE_NS
    return [
        _compute("lookup", "embedding_forward", iteration, began, posted),
        _collective(
            "all_to_all", "embedding_forward", iteration, 2 * iteration, 1_048_576,
            posted, exchanged, exchanged - posted,
        ),
        _compute("backward", "mlp_backward", iteration, exchanged, computed),
        _collective(
            "all_reduce", "mlp_gradient", iteration, 2 * iteration + 1, 4_000_000,
            exchanged, reduced, reduced - computed,
        ),
        {"event": "iteration", "index": iteration, "start_ns": began, "end_ns": reduced},
    ]  # fmt: skip


def _compute(name: str, phase: str, iteration: int, start: int, end: int) -> dict[str, Any]:
    return {"event": "compute", "name": name, "phase": phase, "iteration": iteration,
            "start_ns": start, "end_ns": end, "flops": 10**9, "bytes": 10**6}  # fmt: skip


def _collective(
    kind: str, phase: str, iteration: int, tag: int, size: int, start: int, end: int, waited: int
) -> dict[str, Any]:
    return {
        "event": "collective", "id": f"i{iteration}.{phase}.0", "kind": kind, "phase": phase,
        "group": "default", "tag": tag, "size_bytes": size, "iteration": iteration, "ranks": None,
        "start_ns": start, "end_ns": end, "waited_ns": waited,
        # A computation comes before each in the log, and before that the iteration's other one.
        "known": 4 * iteration + (1 if kind == "all_to_all" else 2),
    }  # fmt: skip


def _samples(ports: list[str]) -> list[dict[str, Any]]:
    """A saw tooth of 100 us up to 200 KB on each port; a mark at every step above 100 KB."""
    found = []
    for number, port in enumerate(ports):
        backlogs = [2_000 * step * (number + 1) for step in range(100)] + [0]
        times = [START_NS + COMPUTE_NS + 1000 * step for step in range(100)]
        found.append(
            {
                "port": port, "interval_ns": 1000, "times_ns": [*times, START_NS + 200_000],
                "sent_bytes": [10_000 * step for step in range(101)],
                "backlog_bytes": backlogs, "peak_bytes": backlogs, "drops": [0] * 101,
                "marks": list(accumulate(backlog > 100_000 for backlog in backlogs)),
                "paused_classes": [0] * 101,
            }
        )  # fmt: skip
    return found


def _write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
