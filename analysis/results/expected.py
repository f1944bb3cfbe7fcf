"""The least time of a run's collectives, and the most on an undisturbed fabric.

The least is physics, the larger of two bounds:

- what crosses the most loaded link, by the paths that connections really took, at that link's rate,
  from when the first ranks that exchange something over it had posted. Beside the data there are
  notifications and acknowledgements, as many as the ports' own counters say, and no more than the
  protocol needs.
- the longest chain of messages that wait for each other, each with its latency, where nothing else
  is in the way (`AlphaBeta.apart`), from when each rank posted. It is asked for where it can
  matter: where the first bound is far below the most.

The most is the chain of messages, of Gloo or of a program over RoCE, with all that queues in ports
(`flow`). None of them knows of losses, marks, windows and controllers of rates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.predict.engines.message_costs import Effects, wire_of
from analysis.predict.engines.paths import Paths, paths_of
from analysis.predict.engines.wire import (
    HEADER_BYTES,
    SEGMENTS_PER_ACK,
    Floats,
    Ints,
)
from analysis.predict.interface import PredictorError, Setting
from analysis.predict.models.alpha_beta import AlphaBeta
from analysis.predict.models.flow import Flow
from analysis.predict.run_predictions import RunPredictor, as_posted, call_of
from analysis.predict.scenario import at_most
from analysis.runs.collectives import MeasuredCollective
from analysis.runs.records import LinkRecord
from collectives.call import CollectiveCall, CollectiveError
from collectives.schedule.gloo import GLOO
from topologies.ethernet import full_frame_bytes
from topologies.fabrics.fabric import L1_OVERHEAD_BYTES

_BARE = Effects(acknowledgements=False)
_CLOSE = 0.01
"""Nothing is gained by chains of messages where the most is this close to what links need."""
_MOST_MESSAGES = 20_000
"""Beyond this many, which take about a second, they are not looked at."""
_AS_LOADED = 0.99
"""Links with this share of the largest load are the most loaded ones."""


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
    """The expected times of a setting's collectives. `links` are the ports' counters over the whole
    run. `collectives` are all that were measured, and `others` the other messages of ranks; `scale`
    is the run's slow-down."""

    def __init__(
        self,
        setting: Setting,
        collectives: Sequence[MeasuredCollective],
        links: Sequence[LinkRecord],
        scale: int,
        others: Sequence[MeasuredCollective] = (),
    ) -> None:
        self._collectives = collectives
        self._scale = scale
        self._setting = setting
        self._paths = paths_of(setting)
        self._loads: dict[CollectiveCall, _Load] = {}
        self._bare = RunPredictor(setting, AlphaBeta.counting(_BARE))
        self._acknowledged = RunPredictor(setting, AlphaBeta())
        self._flow = RunPredictor(setting, Flow())
        self._acknowledgements, self._beside = self._measured_beside(links, others)

    def of_all(self) -> list[ExpectedTime]:
        """All that were in flight together, in order of time. Raises CollectiveError for what no
        predictor knows."""
        found = [self._of(group) for group in _in_flight_together(self._collectives)]
        return [expected for expected in found if expected.least_ns > 0]

    def _of(self, group: Sequence[MeasuredCollective]) -> ExpectedTime:
        start_ns = min(c.start_ns for c in group)
        measured_ns = (max(c.end_ns for c in group) - start_ns) // self._scale
        least_ns = self._links_ns(group, start_ns)
        most_ns = least_ns
        begun = [(c.start_ns - start_ns) / self._scale for c in group]
        for collective, begun_ns, together in zip(
            group, begun, self._flow.together(group, self._scale), strict=True
        ):
            if isinstance(together, CollectiveError):
                raise together
            saved = self._saved_ns(collective)
            most_ns = max(most_ns, begun_ns + together.duration_ns - saved)
        if most_ns > (1 + _CLOSE) * least_ns:
            least_ns = max(least_ns, self._chains_ns(group, begun))
        posted_ns = min(r.start_ns for c in group for r in c.by_rank.values())
        early_ns = (start_ns - posted_ns) // self._scale
        most_ns = max(least_ns, most_ns)
        return ExpectedTime(tuple(group), measured_ns, least_ns, most_ns, early_ns)

    def _links_ns(self, group: Sequence[MeasuredCollective], start_ns: int) -> float:
        """When the last bytes of the most loaded link have come, from `start_ns` on: with all that
        is beside the data, which begins when ranks post, or the data alone, which is invited and
        has come a way by then."""
        loads = [self._load(call_of(c)) for c in group]
        data = np.sum([each.data for each in loads], axis=0)
        beside = np.sum([each.beside for each in loads], axis=0)
        posted = [
            each.posted_ns(c, start_ns) / self._scale for each, c in zip(loads, group, strict=True)
        ]
        after = np.min([each.after_ns for each in loads], axis=0)
        bounds = []
        for load, lead in ((data + self._beside * beside, False), (data, True)):
            begins = np.min(
                [each.begins_ns(at, lead) for each, at in zip(loads, posted, strict=True)], axis=0
            )
            over = begins + load * 8e9 / self._paths.rate_bps + after
            bounds.append(float(over[np.isfinite(over)].max(initial=0.0)))
        return max(bounds)

    def _chains_ns(self, group: Sequence[MeasuredCollective], begun: Sequence[float]) -> float:
        """When the last chain of messages is over, from the start of the first collective on; 0
        where nobody knows."""
        scenario = as_posted(self._setting, group, self._scale)
        if not at_most(_MOST_MESSAGES, scenario.calls, self._setting.seed):
            return 0.0
        try:
            timeline = AlphaBeta.apart(_BARE).run(scenario)
        except PredictorError:
            return 0.0
        return max(
            begun_ns + duration
            for begun_ns, duration in zip(begun, timeline.durations_ns(), strict=True)
        )

    def _saved_ns(self, collective: MeasuredCollective) -> float:
        """By how much acknowledgements that data carried made it shorter; none over RoCE, which
        knows no such."""
        if self._setting.transport.carries(call_of(collective)):
            return 0.0
        bare, full = (
            self._alone(self._bare, collective),
            self._alone(self._acknowledged, collective),
        )
        return (1 - self._acknowledgements) * (full - bare)

    def _alone(self, predictor: RunPredictor, collective: MeasuredCollective) -> int:
        answer = predictor.alone(collective)
        if isinstance(answer, CollectiveError):
            raise answer
        return answer.alone_ns

    def _load(self, call: CollectiveCall) -> _Load:
        if call not in self._loads:
            self._loads[call] = _Load(self._paths, call, self._setting.seed)
        return self._loads[call]

    def _measured_beside(
        self, links: Sequence[LinkRecord], others: Sequence[MeasuredCollective]
    ) -> tuple[float, float]:
        """How much was beside the data at the ports that sent most, as shares of what can be. The
        first share is that of the acknowledgements of a one-way stream (where data goes both ways
        it carries most of them); the second that of those and notifications together."""
        loads = [self._load(call_of(c)) for c in self._collectives]
        if not loads:
            return 0.0, 0.0
        data = np.sum([each.data for each in loads], axis=0)
        beside = np.sum([each.beside for each in loads], axis=0)
        counted = np.zeros(self._paths.links)
        for record in links:
            link = self._setting.fabric.links[record.link]
            number = 2 * record.link + (record.node != link.a.node)
            counted[number] = record.bytes + record.packets * L1_OVERHEAD_BYTES
        for other in others:
            if other.algorithm is None:
                load = self._load(call_of(other))
                counted -= load.data + load.beside
        loaded = (data > 0) & (data >= _AS_LOADED * data.max())
        if not loaded.any():
            return 0.0, 0.0
        more = np.clip(counted - data, 0.0, None)[loaded]
        one_way = _acknowledgement_share(self._paths) * data[loaded]
        least = int(np.argmin(more / beside[loaded]))
        return (
            float(min(1.0, more[least] / one_way[least])),
            float(min(1.0, more[least] / beside[loaded][least])),
        )


def _acknowledgement_share(paths: Paths) -> float:
    """Bytes of acknowledgements per byte of full frames, in a stream that goes one way."""
    headers = HEADER_BYTES + paths.outer_bytes
    return headers / SEGMENTS_PER_ACK / full_frame_bytes(paths.mtu_bytes)


class _Load:
    """The load of a call on each directed link, in L1 bytes: its messages with their headers
    (`data`), and the packets that can be `beside` them: invitations and acknowledgements.
    `after_ns` is how long the last data that leaves a link is on its way at least; infinite where
    there is none."""

    def __init__(self, paths: Paths, call: CollectiveCall, seed: int) -> None:
        carried: Counter[tuple[int, int]] = Counter()
        noticed: Counter[tuple[int, int]] = Counter()
        first: dict[tuple[int, int], float] = {}
        transport = paths.setting.transport
        by_carrier = transport.carries(call)
        wire = wire_of(transport, call, paths.mtu_bytes, paths.outer_bytes)
        sizes: dict[int, tuple[int, int, int]] = {}
        for source, destination, size_bytes in _messages(call, seed, by_carrier):
            if size_bytes not in sizes:
                sizes[size_bytes] = int(wire.data_bytes(size_bytes)), *wire.sides(size_bytes)
            pair, (bytes_, along, against) = (source, destination), sizes[size_bytes]
            carried[pair] += bytes_
            first[pair] = min(first.get(pair, wire.full_frame_bytes), bytes_)
            noticed[pair] += along
            noticed[destination, source] += against
        self._links = paths.links
        ranks = np.array(call.ranks, dtype=np.int64)
        pairs = np.array(list(noticed), dtype=np.int64).reshape(-1, 2)
        rows = paths.hashed(ranks[pairs[:, 0]], ranks[pairs[:, 1]], by_carrier)
        self.data = self._on_links(rows, [carried[pair] for pair in noticed])
        self.beside = self._on_links(rows, list(noticed.values()))
        # The time of the way to and from each link of the pairs that exchange data.
        number = {pair: i for i, pair in enumerate(noticed)}
        sending = [number[pair] for pair in first]
        back = rows[[number[b, a] for a, b in first]]
        self._rows = rows[sending]
        self._ends = [(int(ranks[a]), int(ranks[b])) for a, b in first]
        delay = np.append(paths.delay_ns, 0.0)[self._rows]
        per_byte = np.append(8e9 / paths.rate_bps, 0.0)[self._rows]
        invited = paths.costs_of(back).latency_ns(wire.control_bytes)[:, None]
        frame = np.array(list(first.values()))[:, None]
        self._lead = invited + _before(delay + frame * per_byte)
        # A last segment has a byte at least.
        onward = (delay + wire.least_frame_bytes * per_byte)[:, ::-1]
        self.after_ns = self._least(delay + _before(onward)[:, ::-1])

    def _on_links(self, rows: Ints, size_bytes: Sequence[int]) -> Floats:
        load = np.zeros(self._links + 1)
        np.add.at(load, rows, np.array(size_bytes, dtype=np.float64)[:, None])
        return load[: self._links]

    def _least(self, by_pair_and_hop: Floats) -> Floats:
        found = np.full(self._links + 1, np.inf)
        np.minimum.at(found, self._rows, by_pair_and_hop)
        return found[: self._links]

    def posted_ns(self, collective: MeasuredCollective, start_ns: int) -> Floats:
        """By pair that exchanges data: when both had posted, after `start_ns`."""
        posted = {rank: record.start_ns for rank, record in collective.by_rank.items()}
        both = [max(posted[a], posted[b]) - start_ns for a, b in self._ends]
        return np.array(both, dtype=np.float64)

    def begins_ns(self, posted_ns: Floats, lead: bool) -> Floats:
        """By link: when it can first carry something, or with `lead` data. Infinite where no data
        comes by."""
        way = self._lead if lead else np.zeros_like(self._lead)
        return self._least(posted_ns[:, None] + way)


def _messages(call: CollectiveCall, seed: int, by_carrier: bool) -> Iterator[tuple[int, int, int]]:
    """Sender, receiver and bytes of each of a call's messages. Raises CollectiveError for those of
    a program over TCP: what invites and acknowledges short ones is less than is known of them."""
    if call.schedule != GLOO and not (call.schedule.uneven or by_carrier):
        raise CollectiveError(f"{call.kind} does not run as Gloo's own")
    for post in call.posts(seed):
        ends = post.source.tolist(), post.destination.tolist()
        yield from zip(*ends, post.size_bytes.tolist(), strict=True)


def _before(by_hop: Floats) -> Floats:
    """The sum of what comes before each column."""
    found: Floats = np.cumsum(by_hop, axis=1) - by_hop
    return found


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
