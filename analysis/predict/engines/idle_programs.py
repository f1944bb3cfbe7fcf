"""Programs on an idle fabric, as a fluid: only the ports of hosts are shared, or nothing is.

Where all chunks of a collective run the same program and a bounded number is in flight, each chunk
that starts replaces one that has ended. After as many as are in flight this repeats, so that time
grows by the same amount with each chunk (the steady state of a pipeline). So the first chunks of
many tell the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from analysis.predict.engines.fluid import FluidPorts, Route, run_fluid
from analysis.predict.engines.joint_programs import MOST_MESSAGES, JointPrograms
from analysis.predict.engines.message_costs import MessageCosts
from analysis.predict.engines.paths import Paths
from analysis.predict.engines.wire import Ints
from analysis.predict.interface import PredictorError
from collectives.call import CollectiveCall
from collectives.schedule.program import ProgramSchedule

Bools = npt.NDArray[np.bool_]


def price_idle(paths: Paths, call: CollectiveCall, costs: MessageCosts) -> float:
    """Nanoseconds until the last rank has finished its program. Beyond `MOST_MESSAGES` messages two
    beginnings of it are priced: as many rounds of chunks in flight as can be followed, and half of
    them. Raises PredictorError where chunks differ or are not bounded, or are too large."""
    schedule = call.schedule
    count = schedule.count(call.shape, 1, MOST_MESSAGES)
    if count <= MOST_MESSAGES or not isinstance(schedule, ProgramSchedule):
        return _priced(paths, call, costs)
    total = len(schedule.chunks)
    # The messages by which ranks agree on the order are followed, too: at most twice up and down
    # a tree.
    many = (MOST_MESSAGES - 4 * len(call.ranks)) // (count // total)
    at_once = max(1, schedule.in_flight)
    # Chunks that start together end together: whole rounds of them are compared.
    many -= many % at_once
    few = max(at_once, many // 2 // at_once * at_once)
    alike = len({id(chunk.program) for chunk in schedule.chunks}) == 1
    if not alike or schedule.turns or not schedule.in_flight or few >= many:
        raise PredictorError(
            f"found {count:,} messages, allowed {MOST_MESSAGES:,}, or chunks that "
            "run alike, of which twice as many as are in_flight can be followed"
        )
    first, second = (
        _priced(paths, replace(call, schedule=replace(schedule, chunks=schedule.chunks[:n])), costs)
        for n in (few, many)
    )
    return second + (second - first) / (many - few) * (total - many)


def _priced(paths: Paths, call: CollectiveCall, costs: MessageCosts) -> float:
    joint = JointPrograms.of_one(call)
    run_idle(paths, joint, costs)
    return joint.timeline().durations_ns()[0]


def run_idle(paths: Paths, joint: JointPrograms, costs: MessageCosts) -> None:
    """Run collectives that are in flight together. Between its first link and its last one each
    pair of ends has links of its own, as fast as those of the fabric."""
    run_fluid(paths, joint, costs, _route(costs, lambda at, hops: (at > 0) & (at < hops - 1)))


def run_apart(paths: Paths, joint: JointPrograms, costs: MessageCosts) -> None:
    """Run collectives as if the messages of different pairs of ranks met nowhere, and what invites
    a message waited in no queue. The rest is a cost that no fabric can avoid: a message begins when
    its sender has posted it and the receiver's word has come, and the one before it has left; its
    bytes take the slowest link's time for them, and a frame of them is stored and forwarded at each
    of the others."""
    route = _route(costs, lambda at, hops: at < hops)
    run_fluid(paths, joint, costs, route, notices_queue=False)


def _route(costs: MessageCosts, has_own: Callable[[Ints, Ints], Bools]) -> Route:
    """Routes by the first of equal-cost paths. `has_own` has (places in a path, how many links each
    path has) -> whether a pair has a port of its own in place of the link there."""

    def route(
        paths: Paths, source: Ints, destination: Ints, carried: bool, groups: Sequence[str | None]
    ) -> tuple[Ints, FluidPorts]:
        links = paths.follow(source, destination)
        is_link = links < paths.links
        own = has_own(np.arange(links.shape[1]), is_link.sum(axis=1, keepdims=True))
        stands_for = np.concatenate([np.arange(paths.links), links[own]])
        links[~is_link] = len(stands_for)
        links[own] = np.arange(paths.links, len(stands_for))
        rate_bps = paths.rate_bps[stands_for] * costs.parameters.bandwidth_efficiency
        return links, FluidPorts(rate_bps / 8e9, stands_for)

    return route
