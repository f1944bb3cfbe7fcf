"""The work of every rank as messages alone: htsim's connection matrix, and ns-3's files of HPCC.

Both formats have flows between nodes and no computation. In htsim's a flow begins at a time, or
when a trigger fires: each flow has one trigger that the end of its sending fires and one that its
receipt does, and a `barrier` of `count` N fires when N flows have. Source: Broadcom/csg-htsim,
sim/datacenter/connection_matrix.cpp (load, getTrigger). In ns-3's every flow begins at a time.
Source: alibaba-edu/High-Precision-Congestion-Control, scratch/third.cc (ReadFlowInput).

In both, receivers are ready from the beginning. So a message that waits for a receipt here waits
there for what that receipt was posted after, too.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.chakra.expand import expand
from analysis.chakra.graph import Graph, GraphNode, ReceiveNode, SendNode
from analysis.chakra.sources.graph_builder import positions
from analysis.exporters.write import WrittenTrace
from topologies.plan import Plan
from topologies.spec.spec import Spec

_PS_PER_NS = 1000
_LARGEST_OF_HTSIM = 2**31 - 1
"""htsim reads a size into an int."""
_PRIORITY, _PORT = 3, 100
"""The priority group and the port of HPCC's own traffic generator."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message, by its place among all: its two ends, and what must be over before it begins.

    `sent` and `received` are messages whose sending from, or receipt at, its source it waits for;
    `computed_ns` is computation since the last of these, or since the beginning; `measured_ns` is
    its start in a run, 0 where nothing was measured.
    """

    source: int
    destination: int
    size_bytes: int
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()
    computed_ns: int = 0
    measured_ns: int = 0

    @property
    def waits(self) -> bool:
        """Whether it waits for other messages."""
        return bool(self.sent or self.received)


def messages_of(graphs: Sequence[Graph], seed: int = 1) -> list[Message]:
    """All messages of a workload, in the order in which they can begin; a collective is the
    messages of its program, or of Gloo.

    Raises ValueError for what has no messages of ranks (switches take part), and for ranks that
    wait for each other.
    """
    expanded = expand(graphs, lambda call: True, first_tag=_first_tag(graphs), seed=seed)
    order, numbers = _in_order(expanded)
    known = [_Known(graph, numbers[rank]) for rank, graph in enumerate(expanded)]
    return [known[rank].message(expanded, rank, node) for rank, node in order]


def _first_tag(graphs: Sequence[Graph]) -> int:
    tags = (n.tag for g in graphs for n in g if isinstance(n, SendNode | ReceiveNode))
    return max(tags, default=-1) + 1


def _in_order(
    graphs: Sequence[Graph],
) -> tuple[list[tuple[int, SendNode]], list[dict[int, int]]]:
    """The sends, each behind those that it waits for; and the number of its message for each
    communication node, by rank."""
    ends: dict[tuple[int, int, int, int], deque[tuple[int, int]]] = defaultdict(deque)
    for rank, graph in enumerate(graphs):
        for node in graph:
            if isinstance(node, ReceiveNode):
                ends[node.peer, rank, node.tag, node.size_bytes].append((rank, node.id))
    receipt: dict[tuple[int, int], tuple[int, int]] = {}
    for rank, graph in enumerate(graphs):
        for node in graph:
            if isinstance(node, SendNode):
                met = ends[rank, node.peer, node.tag, node.size_bytes]
                if not met:
                    raise ValueError(f"rank {rank}, node {node.id}: nobody receives its message")
                receipt[rank, node.id] = met.popleft()
    return _ordered(graphs, receipt)


def _ordered(
    graphs: Sequence[Graph], receipt: Mapping[tuple[int, int], tuple[int, int]]
) -> tuple[list[tuple[int, SendNode]], list[dict[int, int]]]:
    nodes = {(rank, node.id): node for rank, graph in enumerate(graphs) for node in graph}
    followers: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    waits: dict[tuple[int, int], int] = {}
    for place, node in nodes.items():
        before = [(place[0], parent) for parent in dict.fromkeys(node.after)]
        for each in before:
            followers[each].append(place)
        waits[place] = len(before)
    for send, end in receipt.items():
        followers[send].append(end)
        waits[end] += 1
    ready = deque(place for place, count in waits.items() if not count)
    order: list[tuple[int, SendNode]] = []
    numbers: list[dict[int, int]] = [{} for _ in graphs]
    done = 0
    while ready:
        place = ready.popleft()
        done += 1
        node = nodes[place]
        if isinstance(node, SendNode):
            numbers[place[0]][node.id] = len(order)
            rank, id = receipt[place]
            numbers[rank][id] = len(order)
            order.append((place[0], node))
        for each in followers[place]:
            waits[each] -= 1
            if not waits[each]:
                ready.append(each)
    if done < len(nodes):
        (rank, id), _ = next(item for item in waits.items() if item[1])
        raise ValueError(f"rank {rank}, node {id}: waits for ever")
    return order, numbers


class _Known:
    """The messages that are over when the nodes of a rank begin, as bit sets of its communication
    nodes."""

    def __init__(self, graph: Graph, numbers: Mapping[int, int]) -> None:
        self._nodes = {node.id: node for node in graph}
        self._numbers = numbers
        self._ends = [node for node in graph if isinstance(node, SendNode | ReceiveNode)]
        self._bit = {node.id: place for place, node in enumerate(self._ends)}
        self._before: dict[int, int] = {}
        self._sent: dict[int, int] = {}
        self._computed: dict[int, int] = {}
        for node in _parents_first(graph):
            self._add(node)

    def _add(self, node: GraphNode) -> None:
        """Bits of the nodes that it waits for. A send brings all that it waited for itself, and a
        receipt does not, as receivers are ready from the beginning."""
        needed = implied = 0
        computed_ns = 0
        for parent in node.after:
            bit = self._bit.get(parent)
            if bit is None:
                needed |= self._before[parent]
                duration_ns = self._nodes[parent].duration_ns
                computed_ns = max(computed_ns, self._computed[parent] + duration_ns)
                continue
            needed |= 1 << bit
            if isinstance(self._nodes[parent], ReceiveNode):
                needed |= self._before[parent]
        for place in positions(needed):
            end = self._ends[place]
            if isinstance(end, SendNode):
                implied |= self._sent[end.id]
        self._before[node.id] = needed & ~implied
        self._sent[node.id] = needed | implied
        self._computed[node.id] = computed_ns

    def message(self, graphs: Sequence[Graph], rank: int, node: SendNode) -> Message:
        sent: list[int] = []
        received: list[int] = []
        for place in positions(self._before[node.id]):
            end = self._ends[place]
            (sent if isinstance(end, SendNode) else received).append(self._numbers[end.id])
        return Message(
            rank,
            node.peer,
            node.size_bytes,
            tuple(sorted(sent)),
            tuple(sorted(received)),
            self._computed[node.id],
            node.start_ns,
        )


def _parents_first(graph: Graph) -> Iterator[GraphNode]:
    """The nodes of a graph, each behind those that it waits for."""
    nodes = {node.id: node for node in graph}
    done: set[int] = set()
    for node in graph:
        stack = [node]
        while stack:
            left = [nodes[parent] for parent in stack[-1].after if parent not in done]
            if left and stack[-1].id not in done:
                stack += left
                continue
            last = stack.pop()
            if last.id not in done:
                done.add(last.id)
                yield last


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
