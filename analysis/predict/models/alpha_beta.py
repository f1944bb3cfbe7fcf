"""Latency and bandwidth alone: Gloo's protocol on an idle fabric, where only hosts' ports are
shared.

Programs, and what is in flight together, are a fluid (`idle_programs`). Gloo's own alone have
recurrences and closed forms, for thousands of ranks: rings, barriers and permutations step by step
for all members at once (`lockstep`), all-to-all, trees and rooted collectives, whose messages share
a port, with fair sharing. Every path has its own latency and rate.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from analysis.predict.engines.idle_programs import price_idle, run_apart, run_idle
from analysis.predict.engines.joint_programs import MOST_MESSAGES, JointPrograms, has_programs
from analysis.predict.engines.lockstep import Lockstep
from analysis.predict.engines.message_costs import ALL_EFFECTS, Effects, MessageCosts
from analysis.predict.engines.paths import PathCosts, Paths, paths_of
from analysis.predict.engines.wire import Floats, Ints
from analysis.predict.interface import PredictorError, Setting
from analysis.predict.parameters import RANGES, Parameters
from analysis.predict.scenario import Scenario, Timeline, at_most
from analysis.predict.setting import setting_of_spec
from analysis.predict.simulator import Simulator
from collectives.call import CollectiveCall, CollectiveError
from collectives.kinds import Kind
from collectives.schedule.gloo import GLOO
from collectives.schedule.gloo_steps import gloo_steps
from collectives.schedule.schedule import Post
from topologies.spec.spec import Spec
from workloads.models.planned import planned_calls

_SAMPLED_MEMBERS = 64
"""All-to-all looks at the paths of this many members; regular fabrics show every distance so."""


class AlphaBeta(Simulator):
    """Built-in predictor "alpha-beta"; the keyword arguments are those of `Parameters`."""

    name = "alpha-beta"
    ignores = (
        "contention inside the fabric (ECMP collisions, oversubscription), losses and congestion "
        "control, slow start, stragglers; assumes fair sharing of a host's port"
    )

    follows_copies = True
    calibratable = RANGES

    def __init__(self, **parameters: float) -> None:
        self.parameters = Parameters(**parameters)
        self._effects = ALL_EFFECTS
        self._run_joint = run_idle
        self._follows_all = False

    @classmethod
    def counting(cls, effects: Effects, **parameters: float) -> AlphaBeta:
        """With some of the protocol's effects left out."""
        predictor = cls(**parameters)
        predictor._effects = effects
        return predictor

    @classmethod
    def apart(cls, effects: Effects) -> AlphaBeta:
        """With what no fabric can do without (`run_apart`), for whatever is in flight together."""
        predictor = cls.counting(effects)
        predictor._run_joint = run_apart
        predictor._follows_all = True
        return predictor

    def run(self, scenario: Scenario) -> Timeline:
        """Follow programs, and messages beside collectives, which wait for each other on the
        connection of their two ranks; a collective alone in closed form. Raises PredictorError for
        others that are in flight together: on an idle fabric, nothing else is known of them."""
        scenario.expect_hosts_apart()
        scenario.expect_announced()
        setting, calls, only = scenario.setting, scenario.calls, scenario.only
        if only is not None and not self._follows_all:
            return Timeline.of_one(only, self._alone_ns(setting, only))
        messages = (one.call.schedule.queue(one.call.shape.kind) is None for one in calls)
        if not self._follows_all and not has_programs(calls) and not any(messages):
            raise PredictorError(f"{self.name} does not follow collectives of Gloo's own together")
        if not at_most(MOST_MESSAGES, calls, setting.seed):
            raise PredictorError(f"found more messages than {self.name} follows, {MOST_MESSAGES:,}")
        joint, paths = (
            JointPrograms(calls, scenario.acts, setting.seed, follows_steps=True),
            paths_of(setting),
        )
        costs = MessageCosts.on(paths, joint.first, self.parameters, self._effects)
        self._run_joint(paths, joint, costs)
        return joint.timeline()

    def _alone_ns(self, setting: Setting, call: CollectiveCall) -> float:
        """Nanoseconds from the common start to the last member's completion."""
        if call.schedule.sends_nothing(call.shape):
            return 0.0
        paths = paths_of(setting)
        costs = MessageCosts.on(paths, call, self.parameters, self._effects)
        if call.schedule != GLOO:
            return price_idle(paths, call, costs)
        idle = _IdleFabric(paths, call, costs)
        match call.kind:
            case Kind.ALL_TO_ALL:
                duration = idle.all_to_all()
            case Kind.BROADCAST:
                duration = idle.broadcast()
            case (
                Kind.GATHER
                | Kind.SCATTER
                | Kind.INCAST
                | Kind.SEND_RECV
                | Kind.PERMUTATION
                | Kind.EXCHANGE
            ):
                (post,) = call.posts(setting.seed)
                duration = idle.at_once(post, np.zeros(call.world))
            case Kind.REDUCE:
                *ring, gather, _ = gloo_steps(call.shape)
                assert isinstance(gather, Post)
                clock = Lockstep(paths, call, costs).run(ring)
                duration = max(float(clock.max()), idle.at_once(gather, clock))
            case _:
                clock = Lockstep(paths, call, costs).run(gloo_steps(call.shape))
                duration = float(clock.max())
        return duration


def idle_times_ns(spec: Spec) -> list[float]:
    """Nanoseconds of the collectives of a spec, of all its jobs, on an idle fabric; empty where
    they are not known before a run."""
    found = []
    try:
        for part in spec.parts.values():
            setting, predictor = setting_of_spec(part), AlphaBeta()
            calls = {planned.call for planned in planned_calls(part)}
            found += [predictor.predict(setting, call) for call in calls]
    except CollectiveError:
        return []
    return found


class _IdleFabric:
    """Closed forms for messages that share nothing but the ports of the members' hosts."""

    def __init__(self, paths: Paths, call: CollectiveCall, costs: MessageCosts) -> None:
        self._paths = paths
        self._call = call
        self._costs = costs
        self._ranks = np.array(call.ranks, dtype=np.int64)

    def at_once(self, post: Post, clock: Floats) -> float:
        """Last completion of messages that are posted together and may share ports at both ends."""
        if len(post.source) == 0:
            return 0.0
        forward = self._follow(post.source, post.destination)
        cost = self._paths.costs_of(forward)
        invited = clock[post.destination] + self._notification_ns(post.source, post.destination)
        ready = np.maximum(clock[post.source], invited)
        wire = self._costs.wire_bytes(post.size_bytes)
        hops = cost.hops - 1
        ports = (forward[:, 0], forward[np.arange(len(forward)), np.maximum(hops, 0)])
        return max(
            self._shared_ns(
                ready[port == n], wire[port == n], _rows(cost, np.flatnonzero(port == n))
            )
            for port in ports
            for n in np.unique(port)
        )

    def _shared_ns(self, ready: Floats, wire: Floats, cost: PathCosts) -> float:
        """Last completion of messages that become ready in time and share one port fairly."""
        each = wire * self._costs.ns_per_byte(cost)
        tail = self._costs.tail_ns(cost, wire)
        ready = ready + self._costs.parameters.message_overhead_ns
        factor = self._costs.sharing_factor if len(each) > 1 else 1.0
        order = np.argsort(ready, kind="stable")
        work = np.cumsum(each[order][::-1])[::-1] * factor
        last_out = float(np.max(ready[order] + work))
        return max(last_out + float(tail.max()), float(np.max(ready + each + tail)))

    def all_to_all(self) -> float:
        """Every port carries n-1 messages each way, their rendezvous and acknowledgements."""
        world = self._call.world
        size = np.full(world - 1, self._call.size_bytes // world, dtype=np.int64)
        wire = self._costs.wire_bytes(size)
        worst = 0.0
        for member in range(min(world, _SAMPLED_MEMBERS)):
            peers = np.delete(np.arange(world), member)
            here = np.full_like(peers, member)
            forward = self._follow(here, peers)
            cost = self._paths.costs_of(forward)
            ready = self._notification_ns(here, peers)
            for port in np.unique(forward[:, 0]):
                rows = np.flatnonzero(forward[:, 0] == port)
                sharing = _rows(cost, rows)
                notices = (
                    self._costs.notice_bytes * len(rows) * self._costs.ns_per_byte(sharing).min()
                )
                begun = np.maximum(ready[rows], notices)
                worst = max(worst, self._shared_ns(begun, wire[rows], sharing))
        return worst

    def broadcast(self) -> float:
        """Binomial tree; a member sends to all of its children at once and they share its port."""
        world, root = self._call.world, self._call.root
        levels = (world - 1).bit_length()
        child = np.arange(1, world, dtype=np.int64)
        joined = np.frompyfunc(int.bit_length, 1, 1)(child.astype(object)).astype(np.int64)
        parent = child - (1 << (joined - 1))
        source, destination = (parent + root) % world, (child + root) % world
        forward = self._follow(source, destination)
        cost = self._paths.costs_of(forward)
        invited = self._notification_ns(source, destination)
        ports, sharing = np.unique(forward[:, 0], return_inverse=True)
        shared = np.bincount(sharing, minlength=len(ports))[sharing]
        factor = np.where(shared > 1, self._costs.sharing_factor, 1.0)
        wire = self._costs.wire_bytes(np.full(world - 1, self._call.size_bytes))
        body = wire * self._costs.ns_per_byte(cost) * shared * factor
        tail = self._costs.tail_ns(cost, wire)
        received = np.zeros(world)
        for level in range(1, levels + 1):
            at = np.flatnonzero(joined == level)
            ready = np.maximum(received[parent[at]], invited[at])
            ready += self._costs.parameters.message_overhead_ns
            received[child[at]] = ready + body[at] + tail[at]
        return float(received.max())

    def _follow(self, source: npt.ArrayLike, destination: npt.ArrayLike) -> Ints:
        return self._paths.follow(
            self._ranks[np.asarray(source)], self._ranks[np.asarray(destination)]
        )

    def _notification_ns(self, source: npt.ArrayLike, destination: npt.ArrayLike) -> Floats:
        """RECV_READY's way from each message's destination to its source."""
        back = self._paths.costs_of(self._follow(destination, source))
        return self._costs.notification_ns(back)


def _rows(cost: PathCosts, rows: Ints) -> PathCosts:
    return PathCosts(
        cost.hops[rows],
        cost.propagation_ns[rows],
        cost.ns_per_byte[rows],
        cost.sum_ns_per_byte[rows],
        cost.full_frame_bytes,
    )
