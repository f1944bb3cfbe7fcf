"""Run directories whose measured times come from a predictor with known parameters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from analysis.predict.interface import Predictor, Setting
from analysis.predict.setting import setting_of_spec
from collectives.call import CollectiveCall
from topologies.spec.spec import parse_spec
from workloads.models.planned import planned_calls

Distortion = Callable[[CollectiveCall, int], float]


def write_run(
    directory: Path,
    fabric: str,
    operations: str,
    truth: Predictor,
    distort: Distortion = lambda call, iteration: 1.0,
    iterations: int = 2,
    name: str = "synthetic",
    valid: bool = True,
) -> Setting:
    """A run directory of the collectives benchmark in which each takes what `truth` says times
    what `distort(call, iteration)` says. `fabric` and `operations` are YAML."""
    spec = parse_spec(
        f"name: {name}\nfabric: {fabric}\ncapture: {{points: []}}\n"
        f"workload: {{kind: collectives, ranks: 8, iterations: {iterations}, "
        f"operations: [{operations}]}}\n"
    )
    setting = setting_of_spec(spec)
    (directory / "ranks").mkdir(parents=True)
    (directory / "spec.yaml").write_text(spec.to_yaml())
    idle = {"bytes": 0, "packets": 0, "drops": 0}
    ports = [
        {"link": link.index, "port": end.interface, "node": end.node, "peer": far.node,
         "rate_bps": link.rate_bps, "delay_ns": link.delay_ns, **idle}
        for link in setting.fabric.links
        for end, far in ((link.a, link.b), (link.b, link.a))
    ]  # fmt: skip
    (directory / "links.jsonl").write_text("".join(f"{json.dumps(port)}\n" for port in ports))
    verdict = {"valid": valid, "reasons": [] if valid else ["cores were saturated"]}
    environment = {
        "kernel": "virtual",
        "kernel_release": "6.12",
        "versions": {},
        "scale": 1,
        "seed": 1,
        "hosts": list(setting.hosts),
        "wall_s": 1.0,
        "retransmits": 0,
        "verdict": verdict,
    }
    (directory / "environment.json").write_text(json.dumps(environment))
    events: list[dict[str, Any]] = []
    now = 1_000_000
    for iteration in range(iterations):
        for planned in planned_calls(spec):
            call = planned.call
            took = round(truth.predict(setting, call) * distort(call, iteration))
            events.append(
                {
                    "event": "collective",
                    "id": f"i{iteration}.{planned.name}",
                    "kind": call.kind,
                    "phase": call.kind,
                    "group": "default",
                    "tag": len(events),
                    "size_bytes": call.size_bytes,
                    "iteration": iteration,
                    "ranks": None,
                    "start_ns": now,
                    "end_ns": now + took,
                    "waited_ns": took,
                    "known": len(events),
                    "element_bytes": call.element_bytes,
                    "root": call.root,
                    "degree": call.degree,
                    "peer": call.peer,
                    "shift": call.shift,
                }
            )
            now += took + 1_000_000
    for rank, host in enumerate(setting.hosts):
        address = str(setting.fabric.by_name[host].address)
        head = {"event": "rank", "rank": rank, "host": host, "address": address}
        lines = [json.dumps(event) for event in (head, *events)]
        (directory / "ranks" / f"{rank:03d}.jsonl").write_text("\n".join(lines) + "\n")
    return setting
