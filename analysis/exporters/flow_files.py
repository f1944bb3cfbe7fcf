"""The work of every rank as messages alone: htsim's connection matrix, and ns-3's files of HPCC.

Both formats have flows between nodes and no computation. In htsim's a flow begins at a time, or
when a trigger fires: each flow has one trigger that the end of its sending fires and one that its
receipt does, and a `barrier` of `count` N fires when N flows have. Source: Broadcom/csg-htsim,
sim/datacenter/connection_matrix.cpp (load, getTrigger). In ns-3's every flow begins at a time.
Source: alibaba-edu/High-Precision-Congestion-Control, scratch/third.cc (ReadFlowInput).

In both, receivers are ready from the beginning, as in `analysis/exporters/messages.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.chakra.graph import Graph
from analysis.exporters.messages import Message, messages_of
from analysis.exporters.write import WrittenTrace
from topologies.plan import Plan
from topologies.spec.spec import Spec

_PS_PER_NS = 1000
_LARGEST_OF_HTSIM = 2**31 - 1
"""htsim reads a size into an int."""
_PRIORITY, _PORT = 3, 100
"""The priority group and the port of HPCC's own traffic generator."""


def write_htsim(
    folder: Path, spec: Spec, graphs: Sequence[Graph], fitted: Mapping[str, Any]
) -> WrittenTrace:
    """A connection matrix, whose nodes are the ranks. Raises ValueError naming the message that its
    triggers cannot say, or that is too long."""
    messages = messages_of(graphs, spec.seed)
    notes = list(_left_out(messages))
    try:
        lines = list(htsim_lines(messages, len(graphs)))
    except TriggersLacking:
        # Gloo's connections keep messages in order, and so do chains of triggers.
        lines = list(htsim_lines(one_after_another(messages), len(graphs)))
        notes.append(
            "a flow of htsim fires one trigger, and messages here wait for more: each also waits "
            "for the one before it from its source to its destination, as on a connection"
        )
    path = folder / f"{spec.name}.cm"
    path.write_text("".join(f"{line}\n" for line in lines))
    return WrittenTrace((path,), tuple(notes))


class TriggersLacking(ValueError):
    """The end of a message would have to fire two triggers."""


def htsim_lines(messages: Sequence[Message], nodes: int) -> Iterator[str]:
    """The lines of a connection matrix. Raises TriggersLacking, and ValueError for what is too long
    for it."""
    triggers: dict[tuple[int, frozenset[tuple[str, int]]], int] = {}
    fires: dict[tuple[str, int], int] = {}
    begins: list[str] = []
    for number, message in enumerate(messages):
        if message.size_bytes > _LARGEST_OF_HTSIM:
            raise ValueError(
                f"{_named(number, message)} has {message.size_bytes} bytes, and htsim's sizes are "
                f"below {_LARGEST_OF_HTSIM + 1}"
            )
        needs = frozenset(
            [("send_done", each) for each in message.sent]
            + [("recv_done", each) for each in message.received]
        )
        if not needs:
            begins.append(f"start {_start_ns(message) * _PS_PER_NS}")
            continue
        trigger = triggers.setdefault((message.source, needs), len(triggers) + 1)
        for end in sorted(needs):
            if fires.setdefault(end, trigger) != trigger:
                raise TriggersLacking(
                    f"{_named(number, message)} waits for {_named(end[1], messages[end[1]])} and "
                    "for others, and another message waits for that one without these: a flow of "
                    "htsim fires one trigger. GOAL (--format goal) says it"
                )
        begins.append(f"trigger {trigger}")
    yield f"Nodes {nodes}"
    yield f"Connections {len(messages)}"
    if triggers:
        yield f"Triggers {len(triggers)}"
    for number, message in enumerate(messages):
        # A flow without a size never ends there.
        line = f"{message.source}->{message.destination} id {number + 1} {begins[number]}"
        line += f" size {max(1, message.size_bytes)}"
        for end_of in ("send_done", "recv_done"):
            if (end_of, number) in fires:
                line += f" {end_of}_trigger {fires[end_of, number]}"
        yield line
    for (_, needs), trigger in triggers.items():
        kind = "oneshot" if len(needs) == 1 else f"barrier count {len(needs)}"
        yield f"trigger id {trigger} {kind}"


def one_after_another(messages: Sequence[Message]) -> list[Message]:
    """The messages, each of which waits for the sending of the one before it between its ends, too;
    without what that implies."""
    before: dict[tuple[int, int], int] = {}
    sent_over: list[tuple[set[int], set[int]]] = []  # sent, received: over when it has been sent
    come_over: list[set[int]] = []  # received: over when it has come
    found: list[Message] = []
    for number, message in enumerate(messages):
        previous = before.get((message.source, message.destination))
        before[message.source, message.destination] = number
        sent = {*message.sent, *(() if previous is None else (previous,))}
        received = set(message.received)
        implied_sent: set[int] = set()
        implied_received: set[int] = set()
        for each in sent:
            implied_sent |= sent_over[each][0]
            implied_received |= sent_over[each][1]
        for each in received:
            implied_received |= come_over[each]
        found.append(
            replace(
                message,
                sent=tuple(sorted(sent - implied_sent)),
                received=tuple(sorted(received - implied_received)),
            )
        )
        sent_over.append((sent | implied_sent, received | implied_received))
        come_over.append(set() if previous is None else {previous} | come_over[previous])
    return found


def _named(number: int, message: Message) -> str:
    return f"message {number} of rank {message.source} to {message.destination}"


def _start_ns(message: Message) -> int:
    return max(message.computed_ns, message.measured_ns)


def _left_out(messages: Sequence[Message]) -> Iterator[str]:
    lost = [message.computed_ns for message in messages if message.waits and message.computed_ns]
    if lost:
        yield (
            f"{len(lost)} messages wait for others and for computation behind these, {sum(lost)} "
            "ns in all: htsim has no computation, so they begin when the others are over"
        )
    yield from _without_bytes(messages)


def _without_bytes(messages: Sequence[Message]) -> Iterator[str]:
    empty = sum(not message.size_bytes for message in messages)
    if empty:
        yield f"{empty} messages have no bytes: they have 1 there"


def write_ns3(
    folder: Path, spec: Spec, graphs: Sequence[Graph], fitted: Mapping[str, Any]
) -> WrittenTrace:
    """The flows, and the topology, whose first nodes are the hosts of ranks 0, 1, ... Raises
    ValueError where ranks share a host."""
    plan = spec.plan
    if len(set(plan.hosts)) < len(plan.hosts):
        raise ValueError("ranks share a host, and a flow of ns-3 has two nodes")
    messages = messages_of(graphs, spec.seed)
    topology, flows = folder / f"{spec.name}-topology.txt", folder / f"{spec.name}-flows.txt"
    topology.write_text("".join(f"{line}\n" for line in topology_lines(plan)))
    flows.write_text("".join(f"{line}\n" for line in ns3_lines(messages, _idle_ns(plan))))
    notes = list(_without_bytes(messages))
    waiting = sum(message.waits for message in messages)
    if waiting:
        notes.append(
            f"{waiting} flows wait for others, and ns-3's begin at times: they begin when these "
            "would be over on an idle fabric"
        )
    return WrittenTrace((topology, flows), tuple(notes))


def ns3_lines(
    messages: Sequence[Message], lasts_ns: Callable[[Message], tuple[int, int]]
) -> Iterator[str]:
    """The lines of a file of flows, by their starts. `lasts_ns` is how long a message's sending
    takes, and how long it takes to its receipt."""
    sent_ns: list[int] = []
    received_ns: list[int] = []
    starts: list[tuple[int, int]] = []
    for number, message in enumerate(messages):
        over = [sent_ns[each] for each in message.sent]
        over += [received_ns[each] for each in message.received]
        begin_ns = max(max(over, default=0) + message.computed_ns, message.measured_ns)
        sending_ns, receipt_ns = lasts_ns(message)
        sent_ns.append(begin_ns + sending_ns)
        received_ns.append(begin_ns + receipt_ns)
        starts.append((begin_ns, number))
    yield str(len(messages))
    for begin_ns, number in sorted(starts):
        message = messages[number]
        seconds = f"{begin_ns // 10**9}.{begin_ns % 10**9:09d}"
        ends = f"{message.source} {message.destination}"
        yield f"{ends} {_PRIORITY} {_PORT} {max(1, message.size_bytes)} {seconds}"


def _idle_ns(plan: Plan) -> Callable[[Message], tuple[int, int]]:
    """A message's sending and receipt on an idle fabric: its bytes at the slowest rate of a path of
    its pair, and the path's delays."""
    known: dict[tuple[int, int], tuple[int, int]] = {}

    def path(source: int, destination: int) -> tuple[int, int]:
        node, end = plan.hosts[source], plan.hosts[destination]
        rates_bps, delay_ns = [], 0
        while node != end:
            hop = plan.routes.next_hops(node, end)[0]
            link = plan.fabric.links[hop.link]
            rates_bps.append(link.rate_bps)
            delay_ns += link.delay_ns
            node = hop.node
        return min(rates_bps), delay_ns

    def lasts(message: Message) -> tuple[int, int]:
        ends = message.source, message.destination
        if ends not in known:
            known[ends] = path(*ends)
        rate_bps, delay_ns = known[ends]
        sending_ns = -(-message.size_bytes * 8 * 10**9 // rate_bps)
        return sending_ns, sending_ns + delay_ns

    return lasts


def topology_lines(plan: Plan) -> Iterator[str]:
    """The lines of a topology of HPCC: the hosts of ranks, other hosts, then the switches. Raises
    ValueError for hosts that forward, which ns-3's do not."""
    fabric = plan.fabric
    through = next((host.name for host in fabric.hosts if host.forwards), None)
    if through is not None:
        raise ValueError(f"host {through} forwards, and ns-3's hosts do not")
    others = [host.name for host in fabric.hosts if host.name not in set(plan.hosts)]
    names = [*plan.hosts, *others, *(switch.name for switch in fabric.switches)]
    number = {name: place for place, name in enumerate(names)}
    yield f"{len(names)} {len(fabric.switches)} {len(fabric.links)}"
    yield " ".join(str(number[switch.name]) for switch in fabric.switches)
    for link in fabric.links:
        ends = f"{number[link.a.node]} {number[link.b.node]}"
        yield f"{ends} {_ns3_rate(link.rate_bps)} {link.delay_ns}ns 0"


def _ns3_rate(rate_bps: int) -> str:
    for unit, scale in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if rate_bps % scale == 0:
            return f"{rate_bps // scale}{unit}bps"
    return f"{rate_bps}bps"
