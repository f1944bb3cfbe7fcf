"""Bytes from rank to rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.collectives import collectives_of
from analysis.metrics.flow import Flows
from analysis.predictors.gloo_schedule import Post, gloo_schedule
from analysis.predictors.interface import CollectiveCall, PredictorError
from analysis.predictors.run_predictions import call_of
from analysis.predictors.wire import Ints
from analysis.run import Run

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
    """Payload between ranks as Gloo's schedules have it."""
    size = len(run.ranks)
    total = np.zeros((size, size), dtype=np.int64)
    seen: dict[CollectiveCall, Ints] = {}
    left_out = []
    for collective in collectives_of(run):
        try:
            call = call_of(collective)
            if call not in seen:
                seen[call] = _of_call(call, size, run.spec.seed)
            total += seen[call]
        except PredictorError:
            left_out.append(collective.id)
    return TrafficMatrix(total, SCHEDULE, tuple(left_out))


def captured_traffic(flows: Flows) -> TrafficMatrix:
    """TCP payload between ranks as captured: Gloo's preambles and the alignments included."""
    size = len(flows.capture.run.ranks)
    total = np.zeros((size, size), dtype=np.int64)
    for flow in flows.flows:
        total[flow.source, flow.destination] += flow.payload_bytes
    return TrafficMatrix(total, CAPTURE)


def _of_call(call: CollectiveCall, size: int, seed: int) -> Ints:
    found = np.zeros((size, size), dtype=np.int64)
    ranks = np.array(call.ranks, dtype=np.int64)
    for step in gloo_schedule(call, seed):
        if isinstance(step, Post):
            np.add.at(found, (ranks[step.source], ranks[step.destination]), step.size_bytes)
    return found
