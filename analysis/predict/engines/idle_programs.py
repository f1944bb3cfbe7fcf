"""Programs on an idle fabric: only the ports of hosts are shared, fairly, or nothing is.

Where all chunks of a collective run the same program and a bounded number is in flight, each chunk
that starts replaces one that has ended. After as many as are in flight this repeats, so that time
grows by the same amount with each chunk (the steady state of a pipeline). So the first chunks of
many tell the whole.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.predict.engines.joint_programs import MOST_MESSAGES, JointPrograms
from analysis.predict.engines.message_costs import MessageCosts
from analysis.predict.engines.paths import Paths
from analysis.predict.engines.rank_programs import RankPrograms, connections_of
from analysis.predict.engines.wire import Floats, Ints
from analysis.predict.interface import PredictorError
from collectives.call import CollectiveCall
from collectives.schedule.program import ProgramSchedule


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
    """Run collectives that are in flight together. `costs` has the effects and the parameters; its
    call's kind says how messages that share a port slow each other down."""
    source, destination = joint.pairs
    ranks = joint.ends
    shared, capacity = _ports(paths, paths.follow(ranks[source], ranks[destination]), costs)
    _run(paths, joint, costs, shared, capacity)


def run_apart(paths: Paths, joint: JointPrograms, costs: MessageCosts) -> None:
    """Run collectives as if the messages of different pairs of ranks met nowhere, and what invites
    a message waited in no queue. The rest is a cost that no fabric can avoid: a message begins when
    its sender has posted it and the receiver's word has come, and the one before it has left; its
    bytes take the slowest link's time for them, and a frame of them is stored and forwarded at each
    of the others."""
    source, destination = joint.pairs
    ranks = joint.ends
    links = paths.follow(ranks[source], ranks[destination])
    if not links.shape[1] or (links[:, 0] == paths.links).any():
        raise PredictorError("its ranks share a host; what these exchange is not predicted")
    shared, capacity = _ports(paths, links, costs)
    _run(paths, joint, costs, shared[:, 2:], capacity)


def _run(
    paths: Paths, joint: JointPrograms, costs: MessageCosts, shared: Ints, capacity: Floats
) -> None:
    """`shared` has the links that each pair shares with others, as a path matrix."""
    messages = len(joint.owners)
    if messages > MOST_MESSAGES:
        raise PredictorError(f"found {messages:,} messages, allowed {MOST_MESSAGES:,}")
    joint.all_carried(paths.setting.transport)
    source, destination = joint.pairs
    ranks = joint.ends
    programs = RankPrograms(
        joint.compiled,
        joint.wire_bytes(costs),
        connections_of(paths, ranks, (source, destination), shared, capacity, costs),
        capacity.tolist(),
        costs.parameters.message_overhead_ns,
        costs.sharing_factor,
    )
    programs.run()


def _ports(paths: Paths, links: Ints, costs: MessageCosts) -> tuple[Ints, Floats]:
    """(the first and the last link of each path, and one of its own that is as slow as the
    slowest; the capacity of all these in bytes per ns)."""
    pairs = np.arange(len(links))
    hops = (links < paths.links).sum(axis=1)
    slowest = paths.costs_of(links)
    with np.errstate(divide="ignore"):  # no link is between a rank and the switch on its own host
        own_capacity = 1 / slowest.ns_per_byte
    capacity = np.concatenate([paths.rate_bps / 8e9, own_capacity])
    own = paths.links + pairs
    columns = [links[:, 0], links[pairs, np.maximum(hops - 1, 0)], own]
    # A path of one link has it once, and one of none has none.
    columns[0] = np.where(hops > 0, columns[0], len(capacity))
    columns[1] = np.where(hops > 1, columns[1], len(capacity))
    return np.stack(columns, axis=1), capacity * costs.parameters.bandwidth_efficiency
