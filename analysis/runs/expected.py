"""What a run's collectives must take at least, and would take at most on an undisturbed fabric.

The least is physics: the bytes that a collective moves over the most loaded of its links, by the
paths that its connections really took, at that link's rate. How many acknowledgements there were
beside the data is taken from the ports' own counters. The most is Gloo's own chain of messages
with all that queues in ports (`flow`). Neither knows of losses, marks and windows, and where
latency decides the least is far below what is measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.predict.engines.message_costs import Effects
from analysis.predict.engines.paths import Paths, paths_of
from analysis.predict.engines.wire import (
    HEADER_BYTES,
    SEGMENTS_PER_ACK,
    Floats,
    data_bytes,
    full_frame_bytes,
)
from analysis.predict.interface import Setting
from analysis.predict.models.alpha_beta import AlphaBeta
from analysis.predict.models.flow import Flow
from analysis.predict.run_predictions import RunPredictor, call_of
from analysis.runs.collectives import MeasuredCollective
from analysis.runs.records import LinkRecord
from collectives.call import CollectiveCall, CollectiveError
from collectives.gloo.schedule import Post, gloo_schedule
from topologies.fabrics.fabric import L1_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class ExpectedTime:
    """Collectives that were in flight together: how long they took, from the first one's start to
    the last one's end, and what they take at least and at most. A collective starts when its last
    rank has posted it; its first rank did `early_ns` before, and what moved in between is not in
    the time. Nanoseconds of target time."""

    collectives: tuple[MeasuredCollective, ...]
    measured_ns: int
    least_ns: float
    most_ns: float
    early_ns: int = 0

    @property
    def slower(self) -> float:
        """Share of the least by which they took longer."""
        return self.measured_ns / self.least_ns - 1

    @property
    def faster(self) -> float:
        """Share of the most by which they were over sooner, counted from the first rank's post:
        nothing can have moved before."""
        return 1 - (self.measured_ns + self.early_ns) / self.most_ns


class Expectation:
    """What a setting's collectives take. `links` are the ports' counters over the whole run, of
    which `collectives` is everything that was measured; `scale` is what it was slowed down by."""

    def __init__(
        self,
        setting: Setting,
        collectives: Sequence[MeasuredCollective],
        links: Sequence[LinkRecord],
        scale: int,
    ) -> None:
        self._collectives = collectives
        self._scale = scale
        self._setting = setting
        self._paths = paths_of(setting)
        self._loads: dict[CollectiveCall, Floats] = {}
        self._bare = RunPredictor(setting, AlphaBeta.counting(Effects(acknowledgements=False)))
        self._acknowledged = RunPredictor(setting, AlphaBeta())
        self._flow = RunPredictor(setting, Flow())
        self._acknowledgements = self._measured_acknowledgements(links)

    def of_all(self) -> list[ExpectedTime]:
        """All that were in flight together, in order of time. Raises CollectiveError for what no
        predictor knows."""
        found = [self._of(group) for group in _in_flight_together(self._collectives)]
        return [expected for expected in found if expected.least_ns > 0]

    def _of(self, group: Sequence[MeasuredCollective]) -> ExpectedTime:
        start_ns = min(c.start_ns for c in group)
        measured_ns = (max(c.end_ns for c in group) - start_ns) // self._scale
        load = np.sum([self._load(call_of(c)) for c in group], axis=0)
        wire_ns = float((load * 8e9 / self._paths.rate_bps).max(initial=0.0))
        more = self._acknowledgements * _acknowledgement_share(self._paths)
        least_ns = wire_ns * (1 + more)
        most_ns = least_ns
        begun = {c.id: (c.start_ns - start_ns) / self._scale for c in group}
        for collective, together in zip(
            group, self._flow.together(group, self._scale), strict=True
        ):
            if isinstance(together, CollectiveError):
                raise together
            bare, full = (
                self._alone(self._bare, collective),
                self._alone(self._acknowledged, collective),
            )
            saved = (1 - self._acknowledgements) * (full - bare)
            most_ns = max(most_ns, begun[collective.id] + together.duration_ns - saved)
        posted_ns = min(r.start_ns for c in group for r in c.by_rank.values())
        early_ns = (start_ns - posted_ns) // self._scale
        most_ns = max(least_ns, most_ns)
        return ExpectedTime(tuple(group), measured_ns, least_ns, most_ns, early_ns)

    def _alone(self, predictor: RunPredictor, collective: MeasuredCollective) -> int:
        answer = predictor.alone(collective)
        if isinstance(answer, CollectiveError):
            raise answer
        return answer

    def _load(self, call: CollectiveCall) -> Floats:
        """Bytes of data, with headers, on each directed link."""
        if call not in self._loads:
            self._loads[call] = _load_of(self._paths, call, self._setting.seed)
        return self._loads[call]

    def _measured_acknowledgements(self, links: Sequence[LinkRecord]) -> float:
        """How much of the acknowledgements that a one-way stream has (1) there was beside the data
        of the port that sent most; where data goes both ways it carries most of them (0)."""
        loads = [self._load(call_of(c)) for c in self._collectives]
        if not loads:
            return 0.0
        expected = np.sum(loads, axis=0)
        counted = np.zeros(self._paths.links)
        for record in links:
            link = self._setting.fabric.links[record.link]
            number = 2 * record.link + (record.node != link.a.node)
            counted[number] = record.bytes + record.packets * L1_OVERHEAD_BYTES
        most = int(np.argmax(expected))
        if expected[most] == 0:
            return 0.0
        more = counted[most] / expected[most] - 1
        return float(min(1.0, max(0.0, more / _acknowledgement_share(self._paths))))


def _acknowledgement_share(paths: Paths) -> float:
    """Bytes of acknowledgements per byte of full frames, in a stream that goes one way."""
    return HEADER_BYTES / SEGMENTS_PER_ACK / full_frame_bytes(paths.mtu_bytes)


def _load_of(paths: Paths, call: CollectiveCall, seed: int) -> Floats:
    size: Counter[tuple[int, int]] = Counter()
    for step in gloo_schedule(call, seed):
        if isinstance(step, Post):
            wire = data_bytes(step.size_bytes, paths.mtu_bytes)
            for source, destination, bytes_ in zip(
                step.source.tolist(), step.destination.tolist(), wire.tolist(), strict=True
            ):
                size[source, destination] += bytes_
    load = np.zeros(paths.links + 1)
    if size:
        pairs = np.array(list(size), dtype=np.int64)
        ranks = np.array(call.ranks, dtype=np.int64)
        rows = paths.hashed(ranks[pairs[:, 0]], ranks[pairs[:, 1]])
        np.add.at(load, rows, np.array(list(size.values()), dtype=np.float64)[:, None])
    return load[: paths.links]


def _in_flight_together(
    collectives: Sequence[MeasuredCollective],
) -> list[list[MeasuredCollective]]:
    """Groups of collectives whose times overlap, directly or by others between them."""
    groups: list[list[MeasuredCollective]] = []
    end_ns = 0
    for collective in sorted(collectives, key=lambda c: c.start_ns):
        if groups and collective.start_ns < end_ns:
            groups[-1].append(collective)
        else:
            groups.append([collective])
        end_ns = max(end_ns, collective.end_ns)
    return groups
