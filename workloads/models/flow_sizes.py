"""Published distributions of flow sizes, and flows drawn from them."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from topologies.spec.errors import Problem
from topologies.spec.jobs.flows import FlowsWorkload
from topologies.spec.sections import Sections
from workloads.models.step import Action, Pause, StartMessage, WaitFor

CDFS: dict[str, tuple[tuple[int, float], ...]] = {
    # Web search: Alizadeh et al., DCTCP, SIGCOMM 2010, figure 4, as HPCC's evaluation has it (Li et
    # al., SIGCOMM 2019).
    "websearch": (
        (0, 0.0), (10_000, 15.0), (20_000, 20.0), (30_000, 30.0), (50_000, 40.0),
        (80_000, 53.0), (200_000, 60.0), (1_000_000, 70.0), (2_000_000, 80.0),
        (5_000_000, 90.0), (10_000_000, 97.0), (30_000_000, 100.0),
    ),
    # Alibaba's block storage of 2019, with HPCC's traffic generator.
    "storage": (
        (0, 0.0), (4_000, 22.93), (8_000, 69.21), (16_000, 80.61), (32_000, 90.47),
        (64_000, 93.53), (128_000, 96.77), (256_000, 97.53), (2_000_000, 100.0),
    ),
    # Hadoop at Facebook: Roy et al., SIGCOMM 2015, as HPCC's evaluation has it.
    "hadoop": (
        (0, 0.0), (100, 1.0), (200, 2.0), (300, 5.0), (350, 15.0), (400, 20.0), (500, 30.0),
        (600, 40.0), (700, 50.0), (1_000, 60.0), (2_000, 67.0), (7_000, 70.0), (30_000, 72.0),
        (50_000, 82.0), (80_000, 87.0), (120_000, 90.0), (300_000, 95.0), (1_000_000, 97.5),
        (2_000_000, 99.0), (10_000_000, 100.0),
    ),
}  # fmt: skip
"""Size in bytes -> percent of the flows that are at most so large; linear in between."""

MOST_FLOWS = 100_000
"""In a run. Each takes milliseconds of wall time in a guest, and some of its memory."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow: its place among all, when it begins, its two ranks, its size."""

    number: int
    at_ns: int
    source: int
    destination: int
    size_bytes: int


def mean_bytes(sizes: str | int) -> float:
    """The mean size: of a distribution, each piece's middle by its share."""
    if isinstance(sizes, int):
        return float(sizes)
    return sum(
        (low + high) / 2 * (above - below) / 100
        for (low, below), (high, above) in pairwise(CDFS[sizes])
    )


def size_at(cdf: Sequence[tuple[int, float]], percent: float) -> float:
    """The size that so many percent of the flows do not exceed, from 0 to 100."""
    place = max(1, bisect_left([share for _, share in cdf], percent))
    (low, below), (high, above) = cdf[place - 1], cdf[place]
    return low + (high - low) * (percent - below) / (above - below)


def flows_of(workload: FlowsWorkload) -> list[Flow]:
    """All flows of an iteration, in order of time. Sizes are whole items of the dtype."""
    drawn = sorted(flow for source in _senders(workload) for flow in _sent_by(workload, source))
    return [Flow(number, *flow) for number, flow in enumerate(drawn)]


def flow_count(workload: FlowsWorkload) -> float:
    """How many flows all iterations have, on average of all seeds."""
    of_sender = 1.0
    if workload.rate_bps is not None and workload.duration_ns is not None:
        of_sender = workload.duration_ns * workload.rate_bps / (8e9 * mean_bytes(workload.sizes))
    return of_sender * len(_senders(workload)) * workload.iterations


def flow_problems(spec: Sections) -> Iterator[Problem]:
    """More flows than a run or a prediction comes to an end with."""
    workload = spec.workload
    if isinstance(workload, FlowsWorkload) and (count := flow_count(workload)) > MOST_FLOWS:
        yield Problem(
            ("workload",),
            f"about {count:,.0f} flows",
            f"expected at most {MOST_FLOWS:,}: each has a message, a row and a prediction; lower "
            "rate, duration or iterations, or set larger sizes",
        )


CHECKS = (flow_problems,)
"""Those of `topologies.spec.checks`."""


def flow_steps(workload: FlowsWorkload, rank: int) -> Iterator[Action]:
    """The work of a rank: it posts its ends of flows when these begin, and waits for all."""
    item_bytes = workload.item_bytes
    mine = [flow for flow in flows_of(workload) if rank in (flow.source, flow.destination)]
    now_ns = 0
    for flow in mine:
        if flow.at_ns > now_ns:
            yield Pause(f"gap.{flow.number}", "flow", flow.at_ns - now_ns)
            now_ns = flow.at_ns
        elements = flow.size_bytes // item_bytes
        yield StartMessage(f"flow.{flow.number}", "flow", elements, flow.source, flow.destination)
    for flow in mine:
        yield WaitFor(f"flow.{flow.number}")


def _senders(workload: FlowsWorkload) -> range:
    return range(0, workload.ranks, 2 if workload.pattern == "pairs" else 1)


def _sent_by(workload: FlowsWorkload, source: int) -> Iterator[tuple[int, int, int, int]]:
    """(time, source, destination, size) of a sender's flows."""
    # Text seeds by SHA-512, the same everywhere.
    draw = random.Random(f"{workload.seed}/{source}")
    if workload.rate_bps is None or workload.duration_ns is None:
        yield 0, source, _destination(workload, source, draw), _size(workload, draw)
        return
    mean_gap_ns = mean_bytes(workload.sizes) * 8e9 / workload.rate_bps
    at_ns = 0.0
    while True:
        at_ns += -math.log(1 - draw.random()) * mean_gap_ns
        if at_ns >= workload.duration_ns:
            return
        destination = _destination(workload, source, draw)
        yield round(at_ns), source, destination, _size(workload, draw)


def _destination(workload: FlowsWorkload, source: int, draw: random.Random) -> int:
    if workload.pattern == "pairs":
        return source + 1
    return (source + draw.randrange(1, workload.ranks)) % workload.ranks


def _size(workload: FlowsWorkload, draw: random.Random) -> int:
    item_bytes = workload.item_bytes
    sizes = workload.sizes
    wanted = float(sizes) if isinstance(sizes, int) else size_at(CDFS[sizes], 100 * draw.random())
    return max(1, round(wanted / item_bytes)) * item_bytes
