"""Collectives of 16 real ranks on a k=4 fat-tree by kind of routing and transport.

    .venv/bin/python -m benchmarks.paths --runs DIR

All links have 100 Gb/s and 500 ns, so the fabric is not oversubscribed. The virtual kernel runs
them; runs are kept in DIR by name. "Sent again" are TCP's retransmits, how often a queue
pair went back, and what selective repeat sent again alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.metrics.ecmp import ecmp_groups
from analysis.runs.run import load_run
from groundwire.pipeline import run
from topologies.spec.spec import parse_spec

ROUTINGS = {
    "static": "static",
    "ecmp": "ecmp",
    "spray, random": "{kind: spray, choose: random}",
    "spray, round robin": "{kind: spray, choose: round-robin}",
    "spray, least of two": "{kind: spray, choose: least-of-two}",
    "spray, least queue": "{kind: spray, choose: least-queue}",
    "flowlet, 50 us": "{kind: flowlet, gap: 50us}",
    "adaptive": "adaptive",
    "source": "source",
}
TRANSPORTS = {
    "TCP": "{kind: tcp}",
    "DCTCP": "{kind: tcp, congestion_control: dctcp}",
    "RoCE, go-back-N": "{kind: roce, path_mtu: 4096}",
    "RoCE, selective repeat": "{kind: roce, path_mtu: 4096, loss_recovery: selective-repeat}",
    "MRC": "{kind: mrc}",
    "MRC, NSCC": "{kind: mrc, congestion_control: nscc}",
}
MARKS = ", queue: {kind: dctcp, k: 100KB, buffer: 4MB}"
"""The queues of transports that heed marks; others have 4 MB, too."""
COLLECTIVES = {
    "all-to-all": "{kind: all_to_all, size: 4MB}",
    "all-reduce": "{kind: all_reduce, size: 4MB}",
}
_SPEC = """
name: paths
fabric: {{kind: fat-tree, k: 4, link: {{rate: 100Gbps, delay: 500ns, mtu: 4200}},
  routing: {routing}{queue}}}
transport: {transport}
workload: {{kind: collectives, ranks: 16, operations: [{operation}]}}
collectives:
  backend: programs
  all_to_all: {{algorithm: direct}}
  all_reduce: {{algorithm: ring}}
capture: {{points: []}}
predict: []
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, required=True, metavar="DIR")
    parser.add_argument("--collectives", nargs="*", default=list(COLLECTIVES), metavar="NAME")
    parser.add_argument("--transports", nargs="*", default=list(TRANSPORTS), metavar="NAME")
    parser.add_argument("--routings", nargs="*", default=list(ROUTINGS), metavar="NAME")
    options = parser.parse_args(arguments)
    print("| collective | transport | routing | us | worst imbalance | sent again | drops |")
    print("|---|---|---|---|---|---|---|")
    for collective, transport, routing in itertools.product(
        options.collectives, options.transports, options.routings
    ):
        if transport.startswith("MRC") and routing not in ("ecmp", "source"):
            continue  # its entropy values are ports, which others do not look at
        directory = options.runs / f"{collective}-{transport}-{routing}".replace(" ", "-")
        found = _measure(collective, transport, routing, directory)
        imbalance = max(
            (group.imbalance or 1.0 for group in ecmp_groups(load_run(directory))), default=None
        )
        took_us = found["collectives"][0]["duration_ns"] / 1000
        summary = found["summary"]
        again = sum(summary.get(name, 0) for name in ("retransmits", "retries", "resent_alone"))
        told = "" if imbalance is None else f"{imbalance:.2f}"
        row = (collective, transport, routing, f"{took_us:,.0f}", told, again, summary["drops"])
        print("| " + " | ".join(map(str, row)) + " |", flush=True)


def _measure(collective: str, transport: str, routing: str, directory: Path) -> dict[str, Any]:
    text = _SPEC.format(
        routing=ROUTINGS[routing],
        transport=TRANSPORTS[transport],
        queue=MARKS if transport.startswith(("DCTCP", "MRC")) else "",
        operation=COLLECTIVES[collective],
    )
    if not (directory / "result.json").exists():
        run(parse_spec(text), kernel="virtual", out=directory, pages=False)
    result: dict[str, Any] = json.loads((directory / "result.json").read_text())
    return result


if __name__ == "__main__":
    main()
