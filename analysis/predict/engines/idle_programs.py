"""Programs on an idle fabric: only the ports of hosts are shared, fairly, or nothing is."""

from __future__ import annotations

import numpy as np

from analysis.predict.engines.joint_programs import MOST_MESSAGES, JointPrograms
from analysis.predict.engines.many_chunks import price
from analysis.predict.engines.message_costs import MessageCosts
from analysis.predict.engines.paths import Paths
from analysis.predict.engines.rank_programs import RankPrograms, connections_of
from analysis.predict.engines.wire import Floats, Ints
from analysis.predict.interface import PredictorError
from collectives.call import CollectiveCall


def price_idle(paths: Paths, call: CollectiveCall, costs: MessageCosts) -> float:
    """Nanoseconds until the last rank has finished its program. Raises PredictorError."""

    def run(joint: JointPrograms) -> float:
        run_idle(paths, joint, costs)
        return joint.timeline().durations_ns()[0]

    return price(call, run)


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
