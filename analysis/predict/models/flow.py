"""Flows over the real paths, driven by events, with Gloo's own dependencies.

Up to 70,000 messages they are trains of packets in the FIFO queues of ports (`trains`);
beyond, flows that share links max-min fairly (`rank_programs`, `fluid`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.predict.engines.joint_programs import JointPrograms, has_programs
from analysis.predict.engines.many_chunks import price
from analysis.predict.engines.max_min import max_min_rates
from analysis.predict.engines.message_costs import MessageCosts
from analysis.predict.engines.paths import Paths, paths_of
from analysis.predict.engines.ports.class_ports import ClassPorts, class_rules
from analysis.predict.engines.rank_programs import RankPrograms, connections_of
from analysis.predict.engines.spread import SpreadPaths
from analysis.predict.engines.trains import TRAINS_PER_MESSAGE, PacketTrains, Stream
from analysis.predict.engines.wire import Floats, Ints
from analysis.predict.interface import PredictorError, Setting, connection_key
from analysis.predict.models.alpha_beta import AlphaBeta
from analysis.predict.parameters import RANGES, Parameters
from analysis.predict.queue_waits import QueueWaits
from analysis.predict.scenario import Scenario, Timeline, at_most
from analysis.predict.simulator import Simulator
from collectives.call import CollectiveCall
from collectives.kinds import Kind
from collectives.schedule.gloo import GLOO
from collectives.schedule.schedule import Post

_AT_ONCE = frozenset(
    {Kind.ALL_TO_ALL, Kind.GATHER, Kind.SCATTER, Kind.INCAST, Kind.SEND_RECV, Kind.PERMUTATION}
)
"""Kinds whose messages are all posted before the first wait, so that none waits for another."""

_SAMPLED_PATHS = 4_000
"""So many messages' paths say what latency costs those that are posted together."""

_MOST_TRAINS = 70_000
"""Up to this many messages, which take about 15 s, are followed as trains of packets, of one
collective or of several in flight together; beyond, links are shared fairly."""

_TRAINS_IN_ALL = 24_000
"""About so many trains are followed in all, and one a message at least. The more messages there
are, the less their trains' length matters: of an all-to-all of 63 ranks on a fat-tree, one train a
message says 0.3% more than 50 do."""

_MOST_MESSAGES = 200_000
"""Beyond this many, which take about 20 s, rings that share links are not followed by events."""

_FINER = 4
"""With several classes of traffic, trains are this much shorter: a train that has begun is not
interrupted, while a packet of a higher class waits for one packet at most."""

_BLOCK = 1 << 17
"""So many paths at a time are looked up to count what links carry: they fit a processor's cache."""


class FlowModel(StrEnum):
    """The models that answer calls."""

    NOTHING = "nothing"
    """No message leaves a rank."""
    RECURRENCE = "recurrence"
    """Every message has its path for itself: the ring's or tree's recurrence is exact."""
    TRAINS = "trains"
    """Messages are trains of packets in the FIFO queues of ports."""
    MAX_MIN = "max-min"
    """Messages share links max-min fairly; queues are not modelled."""
    BUSIEST_LINK = "busiest-link"
    """The ideal ring, slowed down by the load of its busiest link."""


class Flow(Simulator):
    """Built-in predictor "flow"; the keyword arguments are those of `Parameters`.

    ECMP is hashed: every pair of ranks has one path, the kernel's own where a run recorded the
    pair's ports, else drawn by the setting's seed. Messages between ranks of a host take no time.
    """

    name = "flow"
    knows_links = True
    ignores = (
        "losses, marks, and windows narrower than a message, with slow start and congestion "
        "control; beyond 70,000 messages queues as well: links are then shared max-min fairly"
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

    def run(self, scenario: Scenario) -> Timeline:
        """Follow a scenario message by message; a collective alone by the model that suits it.
        Raises PredictorError for more messages than are followed."""
        only = scenario.only
        if only is not None:
            model = self._chosen(scenario.setting, only)
            duration_ns = self._alone_ns(scenario.setting, only, model)
            return Timeline.of_one(only, duration_ns, model.value)
        joint, model = self._joint(scenario)
        self._run(paths_of(scenario.setting), joint, model is FlowModel.TRAINS)
        return joint.timeline(model.value)

    def queue_waits(self, scenario: Scenario, owners: Sequence[int]) -> QueueWaits:
        """The waits of messages behind those of other owners, told while a scenario is run.
        `owners` has whose each call is. Raises PredictorError for what no trains follow."""
        joint, model = self._joint(scenario)
        if model is not FlowModel.TRAINS:
            raise PredictorError(f"queues are followed up to {_MOST_TRAINS:,} messages")
        joint.waits = QueueWaits([owners[call] for call in joint.owners])
        self._run(paths_of(scenario.setting), joint, by_packets=True)
        return joint.waits

    def _alone_ns(self, setting: Setting, call: CollectiveCall, model: FlowModel) -> float:
        """Nanoseconds from the common start to the last member's completion."""
        paths = paths_of(setting)
        match model:
            case FlowModel.NOTHING:
                return 0.0
            case FlowModel.RECURRENCE:
                return self._alone.predict(setting, call)
            case FlowModel.MAX_MIN if call.kind in _AT_ONCE and call.schedule == GLOO:
                return self._at_once(paths, call)
            case FlowModel.BUSIEST_LINK:
                return self._slowed(setting, call)
            case _:
                return self._followed(paths, call, model)

    def _chosen(self, setting: Setting, call: CollectiveCall) -> FlowModel:
        if call.schedule.sends_nothing(call.shape):
            return FlowModel.NOTHING
        if call.schedule.observed:
            return FlowModel.TRAINS
        own = call.schedule == GLOO
        if own and call.kind not in _AT_ONCE and self._isolated(paths_of(setting), call):
            return FlowModel.RECURRENCE
        messages = call.schedule.count(call.shape, setting.seed, _MOST_MESSAGES)
        if self._by_packets and messages <= _MOST_TRAINS:
            return FlowModel.TRAINS
        if not own or call.kind in _AT_ONCE or messages <= _MOST_MESSAGES:
            return FlowModel.MAX_MIN
        return FlowModel.BUSIEST_LINK

    def _followed(self, paths: Paths, call: CollectiveCall, model: FlowModel) -> float:
        """A collective message by message: what its ranks do."""
        count = call.schedule.count(call.shape, paths.setting.seed, _MOST_TRAINS)
        if call.schedule.observed and count > _MOST_TRAINS:
            raise PredictorError(f"found {count:,} messages, allowed {_MOST_TRAINS:,}")

        def run(joint: JointPrograms) -> float:
            self._run(paths, joint, model is FlowModel.TRAINS)
            return joint.timeline().durations_ns()[0]

        return price(call, run, paths.setting.seed, paths.setting.transport)

    def _joint(self, scenario: Scenario) -> tuple[JointPrograms, FlowModel]:
        """A scenario compiled, and the model that follows it. Raises PredictorError."""
        calls, seed = scenario.calls, scenario.setting.seed
        most = _MOST_MESSAGES if has_programs(calls) else _MOST_TRAINS * self._by_packets
        if not at_most(most, calls, seed):
            raise PredictorError(f"found more messages than {self.name} follows, {most:,}")
        joint = JointPrograms(calls, scenario.acts, seed, scenario.setting.transport)
        by_packets = self._by_packets and len(joint.owners) <= _MOST_TRAINS
        return joint, FlowModel.TRAINS if by_packets else FlowModel.MAX_MIN

    def busy_ns(self, setting: Setting, call: CollectiveCall) -> tuple[Ints, Floats]:
        """The links that a call's messages take, and how long each is busy with them."""
        paths = paths_of(setting)
        costs = MessageCosts.on(paths, call, self.parameters)
        ends = call.participants
        ranks, world = np.array(ends, dtype=np.int64), len(ends)
        carried = np.zeros(world**2)
        for post in call.posts(setting.seed):
            pairs = post.source * world + post.destination
            np.add.at(carried, pairs, costs.wire_bytes(post.size_bytes))
        used = np.flatnonzero(carried)
        many = paths.setting.transport.between_ranks(call).count
        found: Floats = np.zeros(0)
        capacity: Floats = np.zeros(0)
        for start in range(0, len(used), _BLOCK):
            block = used[start : start + _BLOCK]
            source, destination = ranks[block // world], ranks[block % world]
            # Each of several connections of two ranks has as much as the others.
            for number in range(many):
                own = [connection_key(None, number)] * len(block)
                shared, capacity = self._route(paths, source, destination, costs.carried, own)
                each = np.broadcast_to(carried[block][:, None] / many, shared.shape).ravel()
                on = shared.ravel() < len(capacity)
                found = _added(found, np.bincount(shared.ravel()[on], each[on], len(capacity)))
        links = np.flatnonzero(found)
        return links, found[links] / capacity[links]

    def _run(self, paths: Paths, joint: JointPrograms, by_packets: bool) -> None:
        joint.all_carried(paths.setting.transport)
        groups = joint.groups(paths.setting)
        costs = MessageCosts.on(paths, joint.first, self.parameters)
        priority = joint.priorities(paths.setting, costs.carried)
        if by_packets:
            self._run_trains(paths, joint, costs, groups, priority)
        else:
            self._run_events(paths, joint, costs, groups, priority)

    def _run_trains(
        self,
        paths: Paths,
        joint: JointPrograms,
        costs: MessageCosts,
        groups: Sequence[str | None],
        priority: Sequence[int],
    ) -> None:
        ranks = joint.ends
        world, messages = len(ranks), len(joint.owners)
        source, destination = joint.pairs
        # Notifications go the other way.
        there, back = source * world + destination, destination * world + source
        keys = np.unique(np.concatenate([there, back]))
        source, destination = keys // world, keys % world
        own = [groups[end] for end in source.tolist()]
        path, capacity = self._route(paths, ranks[source], ranks[destination], costs.carried, own)
        several = len(set(priority)) > 1
        streams = {
            (a, b): Stream(
                tuple(n for n in path[i].tolist() if n < len(capacity)), priority[int(a)]
            )
            for i, (a, b) in enumerate(zip(source.tolist(), destination.tolist(), strict=True))
        }
        carrier = paths.setting.transport.carrier if costs.carried else None
        engine = PacketTrains if carrier is None else carrier.trains
        trains = engine(
            joint.compiled,
            joint.cuts(costs),
            streams,
            capacity.tolist(),
            (paths.delay_ns + self.parameters.hop_overhead_ns).tolist(),
            float(costs.wire.control_bytes),
            paths.queued_segments(),
            self.parameters.message_overhead_ns,
            costs.sharing_factor,
            min(
                TRAINS_PER_MESSAGE * (_FINER if several else 1),
                max(1, _TRAINS_IN_ALL // max(1, messages)),
            ),
            joint.waits,
            ClassPorts(class_rules(paths.setting.fabric)) if several else None,
        )
        trains.run()

    def _route(
        self,
        paths: Paths,
        source: Ints,
        destination: Ints,
        carried: bool = False,
        groups: Sequence[str | None] = (),
    ) -> tuple[Ints, Floats]:
        """(path matrix of pairs of ranks, capacity in bytes per ns of what its numbers name)."""
        choice = paths.setting.fabric.choice
        if not choice.by_hash:
            raise PredictorError(
                f"{self.name} gives each pair one path, and routing {choice.kind} several; "
                "packet follows it, and flow-ideal-ecmp splits messages evenly"
            )
        carrier = paths.setting.transport.carrier
        if carried and carrier is not None and carrier.values > 1:
            raise PredictorError(
                f"{self.name} gives each pair one path, and entropy gives it {carrier.values}; "
                "packet follows it, and flow-ideal-ecmp splits messages evenly"
            )
        return paths.hashed(source, destination, carried, groups), self._bytes_per_ns(
            paths.rate_bps
        )

    def _bytes_per_ns(self, rate_bps: Floats) -> Floats:
        return rate_bps / 8e9 * self.parameters.bandwidth_efficiency

    def _at_once(self, paths: Paths, call: CollectiveCall) -> float:
        """Messages that are posted together: each link sends the bytes of all that cross it, from
        when the first of them is invited, and each message takes as long as on its own."""
        posts = list(call.posts(paths.setting.seed))
        ranks = np.array(call.ranks, dtype=np.int64)
        source = ranks[np.concatenate([post.source for post in posts])]
        destination = ranks[np.concatenate([post.destination for post in posts])]
        costs = MessageCosts.on(paths, call, self.parameters)
        wire = costs.wire_bytes(np.concatenate([post.size_bytes for post in posts]))
        rows = np.linspace(0, len(wire) - 1, min(_SAMPLED_PATHS, len(wire))).astype(np.int64)
        cost = paths.costs(source[rows], destination[rows])
        ns_per_byte = costs.ns_per_byte(cost)
        ready = costs.notification_ns(paths.costs(destination[rows], source[rows]))
        # Every message has a SEND_READY and a RECV_READY, which leave by the same port first.
        sent = np.bincount(source, minlength=len(paths.setting.hosts))[source[rows]]
        ready = np.maximum(ready, costs.notice_bytes * ns_per_byte * sent)
        ready = ready + self.parameters.message_overhead_ns
        alone = float((ready + wire[rows] * ns_per_byte).max())
        busy_ns = self._busy_at_once_ns(paths, source, destination, wire, call.kind)
        begins = np.full(len(busy_ns) + 1, np.inf)
        shared, _ = self._route(paths, source[rows], destination[rows])
        np.minimum.at(begins, shared, ready[:, None])
        begins = np.where(np.isinf(begins), ready.min(), begins)[:-1]
        over = float((begins + busy_ns)[busy_ns > 0].max(initial=0.0))
        return max(over, alone) + float(costs.tail_ns(cost, wire[rows]).max())

    def _busy_at_once_ns(
        self, paths: Paths, source: Ints, destination: Ints, wire: Floats, kind: str
    ) -> Floats:
        """By link: how long it takes for the bytes of the messages that cross it."""
        count: Floats = np.zeros(0)
        load: Floats = np.zeros(0)
        capacity: Floats = np.zeros(0)
        for start in range(0, len(source), _BLOCK):
            block = slice(start, start + _BLOCK)
            shared, capacity = self._route(paths, source[block], destination[block])
            each = np.broadcast_to(wire[block][:, None], shared.shape).ravel()
            count = _added(count, np.bincount(shared.ravel(), minlength=len(capacity) + 1))
            load = _added(load, np.bincount(shared.ravel(), each, len(capacity) + 1))
        count, load = count[: len(capacity)], load[: len(capacity)]
        slower = np.where(count > 1, self.parameters.sharing_factor(kind), 1.0)
        return np.asarray(load * slower / capacity, dtype=np.float64)

    def _isolated(self, paths: Paths, call: CollectiveCall) -> bool:
        """Whether no two pairs that exchange messages share a link, and none shares a host."""
        if len({paths.setting.hosts[rank] for rank in call.ranks}) < len(call.ranks):
            return False
        ranks = np.array(call.ranks, dtype=np.int64)
        # One after the other: all posts of a ring over thousands of ranks are gigabytes.
        source, destination = _distinct_pairs(call, call.posts(paths.setting.seed))
        shared, capacity = self._route(paths, ranks[source], ranks[destination])
        count = np.bincount(shared.ravel(), minlength=len(capacity) + 1)[: len(capacity)]
        return bool(count.max(initial=0) <= 1)

    def _slowed(self, setting: Setting, call: CollectiveCall) -> float:
        """The recurrence with every link as slow as the slowest pair's when all pairs send."""
        paths = paths_of(setting)
        ranks = np.array(call.ranks, dtype=np.int64)
        source, destination = _distinct_pairs(call, call.posts(setting.seed))
        shared, capacity = self._route(paths, ranks[source], ranks[destination])
        alone = np.append(capacity, np.inf)[shared].min(axis=1)
        slowdown = float((alone / max_min_rates(capacity, shared)).max())
        values = asdict(self.parameters)
        values["bandwidth_efficiency"] /= slowdown
        return AlphaBeta(**values).predict(setting, call)

    def _run_events(
        self,
        paths: Paths,
        joint: JointPrograms,
        costs: MessageCosts,
        groups: Sequence[str | None],
        priority: Sequence[int],
    ) -> None:
        ranks, pairs = joint.ends, joint.pairs
        source, destination = pairs
        if len(set(priority)) > 1:
            raise PredictorError(
                "several classes of traffic are followed packet by packet, which flow does up to "
                f"{_MOST_TRAINS:,} messages"
            )
        own = [groups[end] for end in source.tolist()]
        shared, capacity = self._route(paths, ranks[source], ranks[destination], costs.carried, own)
        programs = RankPrograms(
            joint.compiled,
            joint.wire_bytes(costs),
            connections_of(paths, ranks, pairs, shared, capacity, costs),
            capacity.tolist(),
            self.parameters.message_overhead_ns,
            costs.sharing_factor,
        )
        programs.run()


def _added(before: Floats, more: npt.NDArray[Any]) -> Floats:
    """The sums of two vectors by place, of which the second is the longer one."""
    found: Floats = more.astype(np.float64)
    found[: len(before)] += before
    return found


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

    def run(self, scenario: Scenario) -> Timeline:
        """As `flow`, between hosts alone. Raises PredictorError."""
        scenario.expect_hosts_apart()
        scenario.expect_announced()
        return super().run(scenario)

    def _route(
        self,
        paths: Paths,
        source: Ints,
        destination: Ints,
        carried: bool = False,
        groups: Sequence[str | None] = (),
    ) -> tuple[Ints, Floats]:
        if self._spread is None or self._spread.paths is not paths:
            self._spread = SpreadPaths(paths)
        shared, rates = self._spread.follow(source, destination)
        return shared, self._bytes_per_ns(rates)
