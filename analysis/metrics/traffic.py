"""Bytes from rank to rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.metrics.flow import Flows
from analysis.predict.engines.wire import Ints
from analysis.predict.run_predictions import call_of
from analysis.predict.traffic import bytes_between
from analysis.runs.collectives import collectives_of
from analysis.runs.copies import copied_between
from analysis.runs.run import Run
from collectives.call import CollectiveCall, CollectiveError

SCHEDULE = "Gloo's message schedule"
CAPTURE = "the capture, preambles included"


@dataclass(frozen=True)
class TrafficMatrix:
    """`bytes[source, destination]`, shape (ranks, ranks), of all collectives of the run. `source`
    says where the figures come from; `left_out` are collectives of which it knows nothing."""

    bytes: Ints
    source: str
    left_out: tuple[str, ...] = ()


def traffic_matrix(run: Run) -> TrafficMatrix:
    """Payload between ranks as the schedules of Gloo and of programs have it."""
    size = len(run.ranks)
    total = np.zeros((size, size), dtype=np.int64)
    seen: dict[CollectiveCall, Ints] = {}
    left_out = []
    for collective in collectives_of(run):
        try:
            call = call_of(collective)
            if call not in seen:
                seen[call] = bytes_between(call, size, run.spec.seed)
            total += seen[call]
        except CollectiveError:
            left_out.append(collective.id)
    return TrafficMatrix(total, SCHEDULE, tuple(left_out))


def captured_traffic(flows: Flows) -> TrafficMatrix:
    """TCP payload between ranks as captured: Gloo's preambles and the alignments included. Copies
    of memory, which no capture has, are added. Raises RunError."""
    run = flows.capture.run
    size = len(run.ranks)
    total = np.zeros((size, size), dtype=np.int64)
    for flow in flows.flows:
        total[flow.source, flow.destination] += flow.payload_bytes
    copied = copied_between(run)
    for (source, destination), size_bytes in copied.items():
        total[source, destination] += size_bytes
    return TrafficMatrix(total, f"{CAPTURE}, and copies of memory" if copied else CAPTURE)
