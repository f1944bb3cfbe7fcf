"""Flows over the real paths, driven by events, with Gloo's own dependencies.

Messages are a fluid: they go in quanta through ports that serve in the order of arrival
(`engines.fluid`), whatever the scenario and its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.predict.engines.fluid import FluidPorts, run_fluid
from analysis.predict.engines.joint_programs import JointPrograms
from analysis.predict.engines.message_costs import MessageCosts
from analysis.predict.engines.paths import Paths, paths_of
from analysis.predict.engines.spread import SpreadPaths
from analysis.predict.engines.wire import Floats, Ints
from analysis.predict.interface import PredictorError, Setting, connection_key
from analysis.predict.parameters import RANGES, Parameters
from analysis.predict.scenario import Scenario, Timeline, at_most
from analysis.predict.simulator import Simulator
from collectives.call import CollectiveCall
from simulation.engine_process import EngineProgress
from simulation.timeline import EngineTimeline
from topologies.fabrics.copies import NO_LINK

_MOST_MESSAGES = 40_000_000
"""Beyond this many messages, which take about 6 GB, nothing is followed."""

_NUMBERS = 4
"""A row of waits has these: link, whose messages waited, behind whose, nanoseconds."""

_BLOCK = 1 << 17
"""So many paths at a time are looked up to count what links carry: they fit a processor's cache."""


class Flow(Simulator):
    """Built-in predictor "flow"; the keyword arguments are those of `Parameters`.

    ECMP is hashed: every pair of ranks has one path, the kernel's own where a run recorded the
    pair's ports, else drawn by the setting's seed. Messages between ranks of a host take no time.
    """

    name = "flow"
    knows_links = True
    follows_copies = True
    ignores = (
        "losses, marks, and windows narrower than a message, with slow start and congestion control"
    )

    calibratable = RANGES

    def __init__(self, **parameters: float) -> None:
        self.parameters = Parameters(**parameters)

    def run(self, scenario: Scenario) -> Timeline:
        """Follow a scenario message by message. Raises PredictorError for more messages than are
        followed."""
        only = scenario.only
        if only is not None and scenario.silent:
            return Timeline.of_one(only, 0.0)
        joint, _ = self._followed(scenario)
        return joint.timeline()

    def queue_waits(
        self, scenario: Scenario, owners: Sequence[int]
    ) -> dict[tuple[int, int, int], float]:
        """Waits behind messages of other owners: (link, whose messages waited, behind whose) -> ns,
        added up over the messages. `owners` has whose each call is.

        A port serves in order, so a message waits for just those before it that are not yet
        through. The part of a message counts that waits longest at a port behind the same owner.
        Raises PredictorError.
        """
        _, timeline = self._followed(scenario, owners)
        rows = timeline.columns["fluid.waits"].reshape(-1, _NUMBERS).tolist()
        return {(int(link), int(own), int(other)): ns for link, own, other, ns in rows}

    def _followed(
        self, scenario: Scenario, owners: Sequence[int] = ()
    ) -> tuple[JointPrograms, EngineTimeline]:
        """A scenario compiled and run. `owners` as of `queue_waits`, none to know of no waits."""
        calls, setting = scenario.calls, scenario.setting
        if not at_most(_MOST_MESSAGES, calls, setting.seed):
            raise PredictorError(
                f"found more messages than {self.name} follows, {_MOST_MESSAGES:,}"
            )
        joint = JointPrograms(
            calls,
            scenario.acts,
            setting.seed,
            setting.transport,
            follows_steps=True,
            is_whole=setting.is_copied,
        )
        paths = paths_of(setting)
        costs = MessageCosts.on(paths, joint.first, self.parameters)
        own = [owners[call] for call in joint.owners] if owners else ()
        return joint, run_fluid(paths, joint, costs, self._route, own, self._report)

    def _report(self, engine: EngineProgress) -> None:
        if self.progress is not None:
            self.progress(engine.now_ns, engine.received / engine.messages)

    def busy_ns(self, setting: Setting, call: CollectiveCall) -> tuple[Ints, Floats]:
        """The links that a call's messages take, and how long each is busy with them."""
        paths = paths_of(setting)
        costs = MessageCosts.on(paths, call, self.parameters)
        ends = call.participants
        ranks, world = np.array(ends, dtype=np.int64), len(ends)
        carried, copied = np.zeros(world**2), np.zeros(world**2)
        is_copy = _copies(setting, call)
        for post in call.posts(setting.seed):
            pairs = post.source * world + post.destination
            over = is_copy[pairs]
            np.add.at(carried, pairs[~over], costs.wire_bytes(post.size_bytes)[~over])
            np.add.at(copied, pairs[over], post.size_bytes[over])
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
                shared, ports = self._route(paths, source, destination, costs.carried, own)
                capacity = ports.bytes_per_ns
                each = np.broadcast_to(carried[block][:, None] / many, shared.shape).ravel()
                on = shared.ravel() < len(capacity)
                found = _added(found, np.bincount(shared.ravel()[on], each[on], len(capacity)))
        busy_ns: Floats = np.zeros(max(len(found), paths.links))
        busy_ns[: len(found)] = found / capacity
        for pair in np.flatnonzero(copied).tolist():
            over_links = setting.copied_over(ends[pair // world], ends[pair % world]) or ()
            for link in over_links:
                if link != NO_LINK:
                    busy_ns[link] += copied[pair] * 8e9 / paths.rate_bps[link]
        links = np.flatnonzero(busy_ns)
        return links, busy_ns[links]

    def _route(
        self,
        paths: Paths,
        source: Ints,
        destination: Ints,
        carried: bool = False,
        groups: Sequence[str | None] = (),
    ) -> tuple[Ints, FluidPorts]:
        """The path matrix of pairs of ranks, and the ports that its numbers name."""
        choice = paths.setting.fabric.choice
        if not choice.by_headers:
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
        flows = paths.setting.transport.flows
        if flows > 1:
            raise PredictorError(
                f"{self.name} gives each connection one path, and MPTCP gives it {flows}; "
                "flow-ideal-ecmp splits messages evenly"
            )
        found = paths.hashed(source, destination, carried, groups)
        return found, self._ports(paths.rate_bps, np.arange(paths.links))

    def _ports(self, rate_bps: Floats, link: Ints) -> FluidPorts:
        return FluidPorts(rate_bps / 8e9 * self.parameters.bandwidth_efficiency, link)


def _copies(setting: Setting, call: CollectiveCall) -> npt.NDArray[np.bool_]:
    """By pair of those who take part in a call, whether its messages are copies."""
    ends = call.participants
    found = np.zeros(len(ends) ** 2, dtype=bool)
    if setting.copies_of(call):
        found[:] = [setting.is_copied(a, b) for a in ends for b in ends]
    return found


def _added(before: Floats, more: npt.NDArray[Any]) -> Floats:
    """The sums of two vectors by place, of which the second is the longer one."""
    found: Floats = more.astype(np.float64)
    found[: len(before)] += before
    return found


class FlowIdealEcmp(Flow):
    """Built-in predictor "flow-ideal-ecmp": as flow, with traffic split evenly over equal paths."""

    name = "flow-ideal-ecmp"
    ignores = "ECMP collisions; losses, marks, slow start and congestion control"

    def __init__(self, **parameters: float) -> None:
        super().__init__(**parameters)
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
    ) -> tuple[Ints, FluidPorts]:
        if self._spread is None or self._spread.paths is not paths:
            self._spread = SpreadPaths(paths)
        shared, rates = self._spread.follow(source, destination)
        return shared, self._ports(rates, self._spread.first_links)
