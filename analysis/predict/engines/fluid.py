"""Joint programs whose messages are a fluid, as columns of the packet engine.

Messages go in quanta through ports that serve in the order of arrival
(simulation/engine/fluid.hpp).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.predict.engines.copied import Bools, copied_messages, copy_columns
from analysis.predict.engines.joint_programs import JointPrograms
from analysis.predict.engines.message_costs import MessageCosts
from analysis.predict.engines.packet.programs import EncodedPrograms
from analysis.predict.engines.paths import Paths
from analysis.predict.engines.ports.class_ports import class_rules
from analysis.predict.engines.wire import Floats, Ints
from analysis.predict.interface import PredictorError
from simulation.columns import Column
from simulation.engine_process import Report, run_engine
from simulation.failure import SimulationError
from simulation.timeline import EngineTimeline
from topologies.spec.queue_section import CLASSES

QUANTA_PER_MESSAGE = 48
"""A message goes in this many quanta at most; more change little."""

_QUANTA_IN_ALL = 2_000_000
"""About so many quanta are followed in all, and one a message at least. The more messages there
are, the less it matters how they are cut."""

_FINER = 4
"""With several classes of traffic, quanta are this much shorter: one that has begun is not
interrupted, while a packet of a higher class waits for one packet at most."""

_NO_PORT = (
    *("kind", "rate_bps", "delay_ns", "buffer", "mark_above", "memory"),
    *("first", "second", "third", "fourth", "fifth", "sixth"),
)
"""Columns of ports of packets."""

Route = Callable[[Paths, Ints, Ints, bool, Sequence[str | None]], tuple[Ints, "FluidPorts"]]
"""(paths, sources, destinations, whether it is over the carrier, groups) -> the path matrix of
pairs of ranks, and the ports that it names."""


@dataclass(frozen=True, slots=True)
class FluidPorts:
    """Ports by number: bytes per ns, and the directed link whose delay, queue and bound each one
    has."""

    bytes_per_ns: Floats
    link: Ints


def run_fluid(
    paths: Paths,
    joint: JointPrograms,
    costs: MessageCosts,
    route: Route,
    owners: Sequence[int] = (),
    report: Report | None = None,
    notices_queue: bool = True,
) -> EngineTimeline:
    """Follow joint programs to their end. `owners` has whose each message is, where the timeline is
    to have waits. Unless `notices_queue`, what invites a message waits in no port. Raises
    PredictorError."""
    joint.all_carried(paths.setting.transport)
    copied = _copied(paths, joint)
    encoded = EncodedPrograms(joint)
    priority = joint.priorities(paths.setting, costs.carried)
    several = len(set(priority)) > 1
    pairs, ports = _pairs(paths, joint, costs, route, priority)
    columns = {
        **encoded.columns(),
        **pairs,
        **_copies(paths, joint, pairs, copied),
        **_classes(paths, ports, several),
        **_messages(joint, costs),
        **_settings(joint, costs, QUANTA_PER_MESSAGE * (_FINER if several else 1), notices_queue),
        "fluid.owners": np.array(owners, dtype=np.int32),
        **_nothing(len(ports.link)),
    }
    try:
        timeline = run_engine(columns, report)
    except SimulationError as error:
        raise PredictorError(str(error)) from error
    encoded.take_back(timeline.stamps)
    return timeline


def _copied(paths: Paths, joint: JointPrograms) -> Bools:
    """Whether each message is a copy. Raises PredictorError where two ranks of a server send each
    other others as well."""
    copied = copied_messages(paths.setting, joint)
    programs = [paths.setting.copies_of(grouped.call) for grouped in joint.calls]
    if copied.any() and not all(programs):
        raise PredictorError(
            "copies of memory and collectives of Gloo's own in flight together; packet follows them"
        )
    return copied


def _copies(
    paths: Paths, joint: JointPrograms, pairs: Mapping[str, Column], copied: Bools
) -> dict[str, Column]:
    source, destination = (joint.ends[pairs[f"pair.{end}"]] for end in ("source", "destination"))
    of_pairs = np.zeros(len(source), dtype=bool)
    of_pairs[pairs["message.pair"][copied]] = True
    return copy_columns(paths.setting, source, destination, of_pairs)


def _pairs(
    paths: Paths, joint: JointPrograms, costs: MessageCosts, route: Route, priority: Sequence[int]
) -> tuple[dict[str, Column], FluidPorts]:
    """The pairs of ends and the pair of each message; and the ports. `priority` is by end."""
    ranks = joint.ends
    ends = max(len(ranks), 1)
    source, destination = joint.pairs
    keys = np.unique(np.concatenate([source * ends + destination, destination * ends + source]))
    source, destination = keys // ends, keys % ends
    groups = joint.groups(paths.setting)
    own = [groups[end] for end in source.tolist()]
    matrix, ports = route(paths, ranks[source], ranks[destination], costs.carried, own)
    count = len(ports.link)
    hops = (matrix < count).sum(axis=1)
    number = np.frombuffer(joint.compiled.source, dtype=np.int32).astype(np.int64) * ends
    number += np.frombuffer(joint.compiled.destination, dtype=np.int32)
    none = np.full(len(keys), -1, dtype=np.int32)
    segments = np.array(paths.queued_segments(), dtype=np.float64)
    delay_ns = paths.delay_ns + costs.parameters.hop_overhead_ns
    rows = np.stack([ports.bytes_per_ns, delay_ns[ports.link], segments[ports.link]], axis=1)
    return {
        "fluid.ports": rows.reshape(-1),
        "pair.source": source.astype(np.int32),
        "pair.destination": destination.astype(np.int32),
        "pair.reverse": np.searchsorted(keys, destination * ends + source).astype(np.int32),
        "pair.base_ns": np.zeros(len(keys), dtype=np.int64),
        "pair.links": matrix[matrix < count].astype(np.int32),
        "pair.first_link": np.cumsum([0, *hops.tolist()], dtype=np.int64),
        "pair.hops": hops.astype(np.int32),
        "pair.device": none,
        "pair.completions": none,
        "pair.selector": np.array(priority, dtype=np.int32)[source],
        "pair.mss": none,
        "message.pair": np.searchsorted(keys, number).astype(np.int32),
    }, ports


def _classes(paths: Paths, ports: FluidPorts, several: bool) -> dict[str, Column]:
    """By port and class selector, the class that serves it, and by port and class, the bytes of its
    turn where it shares by weight; nothing where there is one class of traffic."""
    rules = class_rules(paths.setting.fabric) if several else []
    own = [rules[link] for link in ports.link.tolist()] if several else []
    weights = [rule.quantum_bytes.get(each, 0.0) for rule in own for each in range(CLASSES)]
    return {
        "fluid.served_by": np.array([each for rule in own for each in rule.served_by], np.int64),
        "fluid.weights": np.array(weights, dtype=np.float64),
    }


def _messages(joint: JointPrograms, costs: MessageCosts) -> dict[str, Column]:
    cut_of, cuts = joint.cuts(costs)
    announced = bool(costs.control_bytes)
    messages = len(cut_of)
    return {
        "message.sender": np.frombuffer(joint.compiled.sender, dtype=np.int32),
        "message.receiver": np.frombuffer(joint.compiled.receiver, dtype=np.int32),
        "message.bytes": joint.size_bytes,
        "message.header": np.zeros(messages, dtype=np.int32),
        "message.announced": np.full(messages, announced, dtype=np.int32),
        "message.asked": np.zeros(messages, dtype=np.int64),
        "message.cut": cut_of,
        "fluid.cuts": np.array(
            [(cut.full, cut.full_bytes, cut.rest_bytes) for cut in cuts], dtype=np.float64
        ).reshape(-1),
    }


def _settings(
    joint: JointPrograms, costs: MessageCosts, most_quanta: int, notices_queue: bool
) -> dict[str, Column]:
    messages = max(1, len(joint.owners))
    carrier = costs.transport.carrier if costs.carried else None
    answer_bytes = costs.wire.completed_by_bytes
    queued, refilled_below = (0, 0) if carrier is None else carrier.in_port
    settings = (
        float(costs.control_bytes),
        costs.parameters.message_overhead_ns,
        costs.sharing_factor,
        0.0 if answer_bytes is None else float(answer_bytes),
        float(min(most_quanta, max(1, _QUANTA_IN_ALL // messages))),
        float(queued),
        float(refilled_below),
        float(notices_queue),
    )
    return {"fluid.settings": np.array(settings, dtype=np.float64)}


def _nothing(ports: int) -> dict[str, Column]:
    """The columns that scenarios of packets have: a fluid needs none of them."""
    longs = (
        *("tcp.control", "tcp.ecn", "tcp.initial_window", "tcp.min_rto_us", "tcp.receive_buffer"),
        *("tcp.send_buffer", "outer_bytes", "preamble_bytes", "greeting_bytes", "begin_ns"),
        *("roce.path_mtu", "roce.timeout_ns", "roce.retries", "completions", "keeps_messages"),
        *("choice.turns", "place.states"),
    )
    empty = ("queue.options", "roce.devices", "fault.rows", "switch.settings", "pair.flow")
    shorts = (
        *("choice.switch", "choice.turn", "choice.hops", "choice.routes", "value.links"),
        *("place.word", "place.next", "pair.place", "place.node", "pair.node"),
    )
    none = np.zeros(0, dtype=np.int64)
    no_port = np.full(ports, -1, dtype=np.int64)
    return {
        **{name: np.zeros(1, dtype=np.int64) for name in longs},
        **dict.fromkeys(empty, none),
        **dict.fromkeys(shorts, none.astype(np.int32)),
        **{f"port.{name}": no_port for name in _NO_PORT},
        "value.first_link": none,
        "choice.first": np.zeros(1, dtype=np.int32),
    }
