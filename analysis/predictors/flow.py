"""Flows over the real paths, driven by events, with Gloo's own dependencies.

Up to a few thousand messages they are trains of packets in the FIFO queues of ports (`trains`);
beyond, flows that share links max-min fairly (`rank_programs`, `fluid`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

import numpy as np

from analysis.predictors.alpha_beta import AlphaBeta
from analysis.predictors.fluid import drain
from analysis.predictors.gloo_schedule import Post, Step, gloo_schedule
from analysis.predictors.interface import CollectiveCall, Setting
from analysis.predictors.max_min import max_min_rates
from analysis.predictors.message_costs import MessageCosts
from analysis.predictors.parameters import RANGES, Parameters
from analysis.predictors.paths import Paths, paths_of
from analysis.predictors.rank_programs import Connection, RankPrograms
from analysis.predictors.spread import SpreadPaths
from analysis.predictors.trains import PacketTrains, Stream
from analysis.predictors.wire import CONTROL_BYTES, TCP_IP_BYTES, Floats, Ints

_AT_ONCE = frozenset({"all_to_all", "gather", "scatter", "incast", "send_recv", "permutation"})
"""Kinds whose messages are all posted before the first wait, so that none waits for another."""

_MANY = 4_000
"""From this many equal messages on, the busiest link's load gives the time (see `_busiest_ns`),
and as many of their paths say what latency costs."""


_MOST_TRAINS = 4_000
"""Up to this many messages are followed as trains of packets; beyond, links are shared fairly."""

_MOST_MESSAGES = 200_000
"""Beyond this many, which take about 20 s, rings that share links are not followed by events."""

_BLOCK = 1 << 17
"""So many paths at a time are looked up to count what links carry: they fit a processor's cache."""


class Flow:
    """Built-in predictor "flow"; the keyword arguments are those of `Parameters`.

    ECMP is hashed: every pair of ranks has one path, the kernel's own where a run recorded the
    pair's ports, else drawn by the setting's seed.
    """

    name = "flow"
    ignores = (
        "losses, marks, and windows narrower than a message, with slow start and congestion "
        "control; beyond 4,000 messages queues as well: links are then shared max-min fairly"
    )

    calibratable = RANGES

    def __init__(self, **parameters: float) -> None:
        self.parameters = Parameters(**parameters)
        self._alone = AlphaBeta(**parameters)
        self._by_packets = True

    @classmethod
    def fluid(cls) -> Flow:
        """The ideal with max-min fair sharing for any number of messages."""
        predictor = cls()
        predictor._by_packets = False
        return predictor

    def predict(self, setting: Setting, call: CollectiveCall) -> float:
        """Nanoseconds from the common start to the last member's completion."""
        if call.world == 1 or (call.size_bytes == 0 and call.kind != "barrier"):
            return 0.0
        paths = paths_of(setting)
        if call.kind not in _AT_ONCE and self._isolated(paths, call):
            # Then every message has its path for itself and the recurrence is exact.
            return self._alone.predict(setting, call)
        steps = list(gloo_schedule(call, setting.seed))
        posts = [step for step in steps if isinstance(step, Post)]
        if self._by_packets and sum(len(post.source) for post in posts) <= _MOST_TRAINS:
            return self._trains(paths, call, steps, posts)
        if call.kind in _AT_ONCE:
            return self._at_once(paths, call, posts)
        if sum(len(post.source) for post in posts) > _MOST_MESSAGES:
            return self._slowed(setting, call, posts)
        return self._by_events(paths, call, steps, posts)

    def _trains(
        self, paths: Paths, call: CollectiveCall, steps: list[Step], posts: list[Post]
    ) -> float:
        costs = MessageCosts(call, self.parameters, paths.mtu_bytes)
        ranks = np.array(call.ranks, dtype=np.int64)
        source, destination = _distinct_pairs(call, posts)
        # Notifications go the other way.
        there, back = source * call.world + destination, destination * call.world + source
        keys = np.unique(np.concatenate([there, back]))
        source, destination = keys // call.world, keys % call.world
        path, capacity = self._route(paths, ranks[source], ranks[destination])
        streams = {
            (a, b): Stream(tuple(n for n in path[i].tolist() if n < len(capacity)))
            for i, (a, b) in enumerate(zip(source.tolist(), destination.tolist(), strict=True))
        }
        trains = PacketTrains(
            steps,
            call.world,
            [costs.cuts(post.size_bytes) for post in posts],
            streams,
            capacity.tolist(),
            (paths.delay_ns + self.parameters.hop_overhead_ns).tolist(),
            float(CONTROL_BYTES),
            paths.mtu_bytes - TCP_IP_BYTES,
            self.parameters.message_overhead_ns,
            self.parameters.sharing_factor(call.kind),
        )
        return trains.run()

    def _route(self, paths: Paths, source: Ints, destination: Ints) -> tuple[Ints, Floats]:
        """(path matrix of pairs of ranks, capacity in bytes per ns of what its numbers name)."""
        return paths.hashed(source, destination), self._bytes_per_ns(paths.rate_bps)

    def _bytes_per_ns(self, rate_bps: Floats) -> Floats:
        return rate_bps / 8e9 * self.parameters.bandwidth_efficiency

    def _at_once(self, paths: Paths, call: CollectiveCall, posts: list[Post]) -> float:
        ranks = np.array(call.ranks, dtype=np.int64)
        source = ranks[np.concatenate([post.source for post in posts])]
        destination = ranks[np.concatenate([post.destination for post in posts])]
        size = np.concatenate([post.size_bytes for post in posts])
        costs = MessageCosts(call, self.parameters, paths.mtu_bytes)
        factor = self.parameters.sharing_factor(call.kind)
        many = len(size) >= _MANY and size.min() == size.max()
        rows = np.linspace(0, len(size) - 1, _MANY if many else len(size)).astype(np.int64)
        cost = paths.costs(source[rows], destination[rows])
        wire = costs.wire_bytes(size[rows])
        ready = costs.notification_ns(paths.costs(destination[rows], source[rows]))
        # Every message has a SEND_READY and a RECV_READY, which leave by the same port first.
        sent = np.bincount(source, minlength=len(paths.setting.hosts))[source[rows]]
        ready = np.maximum(ready, costs.notice_bytes * costs.ns_per_byte(cost) * sent)
        ready = ready + self.parameters.message_overhead_ns
        tail = costs.tail_ns(cost, wire)
        if many:
            busy = self._busiest_ns(paths, source, destination, factor) * float(wire[0])
            return float(np.median(ready)) + busy + float(tail.max())
        shared, capacity = self._route(paths, source, destination)
        finish = drain(ready, wire, shared, capacity, factor)
        return float((finish + tail).max())

    def _busiest_ns(self, paths: Paths, source: Ints, destination: Ints, factor: float) -> float:
        """Time per byte of equal flows that start together: no flow is ever slower than the fair
        share of the most loaded link, and there all of them have just this share until the end."""
        count = np.zeros(0, dtype=np.int64)
        capacity = np.zeros(0)
        for start in range(0, len(source), _BLOCK):
            block = slice(start, start + _BLOCK)
            shared, capacity = self._route(paths, source[block], destination[block])
            found = np.bincount(shared.ravel(), minlength=len(capacity) + 1)[: len(capacity)]
            found[: len(count)] += count
            count = found
        slower = np.where(count > 1, factor, 1.0)
        return float((count * slower / capacity).max())

    def _isolated(self, paths: Paths, call: CollectiveCall) -> bool:
        """Whether no two pairs that exchange messages share a link."""
        ranks = np.array(call.ranks, dtype=np.int64)
        # One after the other: all posts of a ring over thousands of ranks are gigabytes.
        steps = gloo_schedule(call, paths.setting.seed)
        source, destination = _distinct_pairs(call, (s for s in steps if isinstance(s, Post)))
        shared, capacity = self._route(paths, ranks[source], ranks[destination])
        count = np.bincount(shared.ravel(), minlength=len(capacity) + 1)[: len(capacity)]
        return bool(count.max(initial=0) <= 1)

    def _slowed(self, setting: Setting, call: CollectiveCall, posts: list[Post]) -> float:
        """The recurrence with every link as slow as the slowest pair's when all pairs send."""
        paths = paths_of(setting)
        ranks = np.array(call.ranks, dtype=np.int64)
        source, destination = _distinct_pairs(call, posts)
        shared, capacity = self._route(paths, ranks[source], ranks[destination])
        alone = np.append(capacity, np.inf)[shared].min(axis=1)
        slowdown = float((alone / max_min_rates(capacity, shared)).max())
        values = asdict(self.parameters)
        values["bandwidth_efficiency"] /= slowdown
        return AlphaBeta(**values).predict(setting, call)

    def _by_events(
        self, paths: Paths, call: CollectiveCall, steps: list[Step], posts: list[Post]
    ) -> float:
        costs = MessageCosts(call, self.parameters, paths.mtu_bytes)
        connections, capacity = self._connections(paths, call, posts, costs)
        programs = RankPrograms(
            steps,
            call.world,
            [costs.wire_bytes(post.size_bytes).tolist() for post in posts],
            connections,
            capacity.tolist(),
            self.parameters.message_overhead_ns,
            self.parameters.sharing_factor(call.kind),
        )
        return programs.run()

    def _connections(
        self, paths: Paths, call: CollectiveCall, posts: list[Post], costs: MessageCosts
    ) -> tuple[dict[tuple[int, int], Connection], Floats]:
        """(connection by pair of members that exchange messages, capacity of their links)."""
        source, destination = _distinct_pairs(call, posts)
        ranks = np.array(call.ranks, dtype=np.int64)
        shared, capacity = self._route(paths, ranks[source], ranks[destination])
        there = paths.costs(ranks[source], ranks[destination])
        backward = paths.follow(ranks[destination], ranks[source])
        back = paths.costs_of(backward)
        notice = costs.notification_ns(back)
        fixed = costs.tail_ns(there, 0.0)
        ns_per_byte = costs.ns_per_byte(back)
        forwarding = there.sum_ns_per_byte - there.ns_per_byte
        connections = {
            (a, b): Connection(
                links=tuple(n for n in shared[i].tolist() if n < len(capacity)),
                notice_link=int(backward[i, 0]),
                notice_ns=float(notice[i]),
                ns_per_byte=float(ns_per_byte[i]),
                fixed_ns=float(fixed[i]),
                forwarding=float(forwarding[i]),
                frame_bytes=float(there.full_frame_bytes),
            )
            for i, (a, b) in enumerate(zip(source.tolist(), destination.tolist(), strict=True))
        }
        return connections, capacity


def _distinct_pairs(call: CollectiveCall, posts: Iterable[Post]) -> tuple[Ints, Ints]:
    """(source, destination) members of the pairs that exchange messages, each once."""
    exchanged = np.zeros(call.world**2, dtype=bool)
    for post in posts:
        exchanged[post.source * call.world + post.destination] = True
    distinct = np.flatnonzero(exchanged)
    return distinct // call.world, distinct % call.world


class FlowIdealEcmp(Flow):
    """Built-in predictor "flow-ideal-ecmp": as flow, with traffic split evenly over equal paths."""

    name = "flow-ideal-ecmp"
    ignores = (
        "packets and queues: flows share links max-min fairly at once; ECMP collisions; losses, "
        "slow start and congestion control"
    )

    def __init__(self, **parameters: float) -> None:
        super().__init__(**parameters)
        self._by_packets = False  # a bundle of links has no queue
        self._spread: SpreadPaths | None = None

    def _route(self, paths: Paths, source: Ints, destination: Ints) -> tuple[Ints, Floats]:
        if self._spread is None or self._spread.paths is not paths:
            self._spread = SpreadPaths(paths)
        shared, rates = self._spread.follow(source, destination)
        return shared, self._bytes_per_ns(rates)
