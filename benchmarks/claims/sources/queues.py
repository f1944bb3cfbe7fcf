"""Claims of where switches keep what waits: queues by ingress, or a memory that ports share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmarks.claims.claim import Claim
from benchmarks.claims.experiment import Bench, Experiment
from benchmarks.claims.rules import Above

_SPEC = """
name: queues
fabric: {{{fabric},
  link: {{rate: 100Gbps, delay: 500ns}}, queue: {queue}}}
transport: {{kind: tcp, min_rto: 1ms}}
workload: {{kind: collectives, ranks: 16, operations: [{operation}]}}
collectives: {{backend: programs, all_to_all: {{algorithm: direct}}}}
capture: {{points: []}}
predict: []
"""
_OVERSUBSCRIBED = "kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 8"
_LEAVES_AND_SPINES = "kind: leaf-spine, leaves: 4, spines: 4, hosts_per_leaf: 4"
_ONE_SWITCH = "kind: flat, hosts: 16"
_OPERATIONS = {
    "incast": "{kind: incast, size: 4MB}",
    "all_to_all": "{kind: all_to_all, size: 16MB}",
}
_QUEUES = {
    "shared": (_OVERSUBSCRIBED, "{kind: shared, buffer: 32MB, alpha: 0.125}"),
    "divided": (_OVERSUBSCRIBED, "{kind: voq, buffer: 355KB}"),
    "deep": (_OVERSUBSCRIBED, "{kind: voq, buffer: 4MB}"),
}
"""A leaf has ten ports: 32 MB divided among its ninety queues by ingress are 355 KB each."""
_SWITCHES = {
    "chips": (_LEAVES_AND_SPINES, "{kind: shared, buffer: 8MB, alpha: 0.125}"),
    "large": (_LEAVES_AND_SPINES, "{kind: shared, buffer: 32MB, alpha: 0.125}"),
    "one": (_ONE_SWITCH, "{kind: shared, buffer: 8MB, alpha: 0.125}"),
    "cells": (_ONE_SWITCH, "{kind: cells, ports: 4, links: 4, link_rate: 106.25Gbps}"),
}
"""8 MB are as much for the 1.6 Tb/s of sixteen ports as a chip of 12.8 Tb/s with 64 MB has; a leaf
and a spine have half of these ports."""


def _by_traffic(bench: Bench, *, fabrics: Mapping[str, tuple[str, str]]) -> Mapping[str, Any]:
    """Microseconds by traffic, and by the name of a fabric with its queues."""
    return {
        traffic: {
            name: bench.draws_us(_SPEC.format(fabric=fabric, queue=queue, operation=operation))
            for name, (fabric, queue) in fabrics.items()
        }
        for traffic, operation in _OPERATIONS.items()
    }


_BY_INGRESS = Experiment("by-ingress", "the packet engine", partial(_by_traffic, fabrics=_QUEUES))
_CELLS = Experiment("cells", "the packet engine", partial(_by_traffic, fabrics=_SWITCHES))
_SETTING = (
    "2 leaves of 8 hosts, 2 spines, 100 Gb/s, TCP (cubic, time-outs of 1 ms): 15 ranks send 4 MB "
    "to one; a direct all-to-all of 16 MB"
)
_CELLS_SETTING = (
    "16 hosts, 100 Gb/s, TCP (cubic, time-outs of 1 ms): 15 ranks send 4 MB to one; a direct "
    "all-to-all of 16 MB; virtual output queues and a fabric of cells between four cards of four "
    "ports, each with four links of 106.25 Gb/s, against four leaves and four spines with output "
    "queues, by ECMP"
)

CLAIMS = (
    Claim(
        "voq-cells-incast",
        "A fabric of cells with virtual output queues bears an incast better than output queues "
        "with a shared memory",
        "the fabrics of the mission's clients",
        "in words",
        setting=_CELLS_SETTING,
        experiment=_CELLS,
        shows="{incast[cells]:.0f} us with cells; {incast[chips]:.0f} us shared with 8 MB a "
        "switch, {incast[large]:.0f} us with 32 MB; {incast[one]:.0f} us on one switch of 8 MB",
        rules=(
            Above("incast.chips", "incast.cells"),
            Above("incast.one", "incast.cells"),
        ),
        conditions="a memory as a switch chip has; with 32 MB nothing is lost that takes time",
    ),
    Claim(
        "voq-cells-all-to-all",
        "A fabric of cells with virtual output queues bears an all-to-all better than output "
        "queues with a shared memory",
        "the fabrics of the mission's clients",
        "in words",
        setting=_CELLS_SETTING,
        experiment=_CELLS,
        shows="{all_to_all[cells]:.0f} us with cells; {all_to_all[chips]:.0f} us shared with 8 MB "
        "a switch, {all_to_all[large]:.0f} us with 32 MB; {all_to_all[one]:.0f} us on one switch, "
        "which has no links that ECMP could fill unevenly",
        rules=(
            Above("all_to_all.chips", "all_to_all.cells"),
            Above("all_to_all.large", "all_to_all.cells"),
        ),
    ),
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
        conditions="queues stand at egress ports (`voq`); with cells and credits: "
        "voq-cells-incast, voq-cells-all-to-all",
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
