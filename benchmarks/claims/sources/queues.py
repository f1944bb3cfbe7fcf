"""Claims of where switches keep what waits: queues by ingress, or a memory that ports share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.claims.claim import Claim
from benchmarks.claims.experiment import Bench, Experiment
from benchmarks.claims.rules import Above

_SPEC = """
name: queues
fabric: {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 8,
  link: {{rate: 100Gbps, delay: 500ns}}, queue: {queue}}}
transport: {{kind: tcp, min_rto: 1ms}}
workload: {{kind: collectives, ranks: 16, operations: [{operation}]}}
collectives: {{backend: programs, all_to_all: {{algorithm: direct}}}}
capture: {{points: []}}
predict: []
"""
_QUEUES = {
    "shared": "{kind: shared, buffer: 32MB, alpha: 0.125}",
    "divided": "{kind: voq, buffer: 355KB}",
    "deep": "{kind: voq, buffer: 4MB}",
}
"""A leaf has ten ports: 32 MB divided among its ninety queues by ingress are 355 KB each."""
_OPERATIONS = {
    "incast": "{kind: incast, size: 4MB}",
    "all_to_all": "{kind: all_to_all, size: 16MB}",
}


def _by_ingress(bench: Bench) -> Mapping[str, Any]:
    """Microseconds by traffic and queues."""
    return {
        traffic: {
            name: bench.draws_us(_SPEC.format(queue=queue, operation=operation))
            for name, queue in _QUEUES.items()
        }
        for traffic, operation in _OPERATIONS.items()
    }


_BY_INGRESS = Experiment("by-ingress", "the packet engine", _by_ingress)
_SETTING = (
    "2 leaves of 8 hosts, 2 spines, 100 Gb/s, TCP (cubic, time-outs of 1 ms): 15 ranks send 4 MB "
    "to one; a direct all-to-all of 16 MB"
)

CLAIMS = (
    Claim(
        "voq-deep",
        "Deep queues by ingress (VOQ) bear incast and all-to-all better than a shared memory",
        "the fabrics of the mission's clients",
        "in words",
        setting=f"{_SETTING}; 4 MB for each pair of ports, against 32 MB of a switch, alpha 1/8",
        experiment=_BY_INGRESS,
        shows="incast {incast[shared]:.0f} us shared, {incast[deep]:.0f} us deep; all-to-all "
        "{all_to_all[shared]:.0f} us shared, {all_to_all[deep]:.0f} us deep",
        rules=(
            Above("incast.shared", "incast.deep"),
            Above("all_to_all.shared", "all_to_all.deep"),
        ),
        conditions="queues stand at egress ports: there are no cells, and no credits that ask for "
        "them",
    ),
    Claim(
        "voq-divided",
        "As much memory bears more where ports share it than where it is divided by ingress",
        "Choudhury and Hahne, ToN 1998",
        "in words",
        setting=f"{_SETTING}; 32 MB of a switch, shared or divided among its pairs of ports",
        experiment=_BY_INGRESS,
        shows="incast {incast[divided]:.0f} us divided, {incast[shared]:.0f} us shared; all-to-all "
        "{all_to_all[divided]:.0f} us divided, {all_to_all[shared]:.0f} us shared",
        rules=(
            Above("incast.divided", "incast.shared"),
            Above("all_to_all.divided", "all_to_all.shared"),
        ),
    ),
)
