"""Files of flows as graphs: ns-3's of HPCC and SimAI, and htsim's connection matrices.

ns-3: how many flows there are, then a line for each: source, destination, priority, port, bytes,
start in seconds. Source: alibaba-edu/High-Precision-Congestion-Control, scratch/third.cc
(ReadFlowInput).

htsim: `Nodes N`, `Connections M` and perhaps `Triggers T`, then lines `0->1 id 1 start 0 size
2000000`. `start` is in picoseconds. A flow with `trigger 3` begins when trigger 3 does, which flows
with `send_done_trigger 3` or `recv_done_trigger 3` set off, one (`trigger id 3 oneshot`) or all
(`trigger id 3 barrier`). Source: Broadcom/csg-htsim, sim/datacenter/connection_matrix.cpp (load).

A flow is a message, which its receiver awaits from the beginning; priorities and ports are not
kept. A flow that sets off another must end at the other's source: no rank sees the others' ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NoReturn

from analysis.chakra.codec import read_bytes
from analysis.chakra.errors import ChakraError
from analysis.chakra.graph import ComputeNode, Graph, GraphNode, ReceiveNode, SendNode
from analysis.chakra.limits import LONGEST_NS, MOST_RANKS
from topologies.spec.workload_types import MAX_SIZE_BYTES


@dataclass(frozen=True, slots=True)
class _Flow:
    """A flow; it begins at a time, or when all of `behind` (flows, and whether their sending or
    their receipt) are over."""

    line: int
    source: int
    destination: int
    size_bytes: int
    start_ns: int = 0
    trigger: int | None = None
    sends: int | None = None
    receives: int | None = None


def read_ns3_flows(path: Path) -> tuple[Graph, ...]:
    """Every rank's graph. Raises ChakraError naming the line."""
    reader = _Reader(path)
    rows = reader.rows()
    line, words = rows[0]
    count = reader.number(line, words[0], "the number of flows", MOST_RANKS)
    if len(rows) - 1 < count:
        reader.fail(line, f"found {count}, and {len(rows) - 1} flows behind it")
    flows = []
    for line, words in rows[1 : 1 + count]:
        if len(words) != 6:
            reader.fail(line, f"found {len(words)} words, expected 6")
        source, destination = (
            reader.number(line, words[at], "a node", MOST_RANKS) for at in (0, 1)
        )
        size_bytes = reader.number(line, words[4], "the size", MAX_SIZE_BYTES)
        start_ns = reader.time_ns(line, words[5], 9)
        flows.append(_Flow(line, source, destination, size_bytes, start_ns))
    if not flows:
        reader.fail(1, "found no flows")
    ranks = max(max(flow.source, flow.destination) for flow in flows) + 1
    return reader.graphs(flows, {}, ranks)


def read_connections(path: Path) -> tuple[Graph, ...]:
    """Every rank's graph. Raises ChakraError naming the line."""
    reader = _Reader(path)
    ranks = 0
    flows: list[_Flow] = []
    triggers: dict[int, str] = {}
    for line, words in reader.rows():
        if words[0].startswith("#") or words[0] in ("Connections", "Triggers"):
            continue
        if words[0] == "Nodes" and len(words) == 2:
            ranks = reader.number(line, words[1], "Nodes", MOST_RANKS)
        elif words[0] == "trigger":
            about = dict(zip(words[1::2], words[2::2], strict=False))
            id = reader.number(line, about.get("id", ""), "trigger id", 1 << 31)
            kind = next((word for word in words if word in ("oneshot", "multishot", "barrier")), "")
            if not kind or kind == "multishot":
                reader.fail(line, f"found {kind or 'no kind'}, allowed oneshot or barrier")
            triggers[id] = kind
        elif "->" in words[0]:
            flows.append(_connection(reader, line, words))
        else:
            reader.fail(line, f"found {words[0]!r}, allowed Nodes, Connections, a flow or trigger")
    if not ranks or not flows:
        reader.fail(1, "found no Nodes, or no flows")
    return reader.graphs(flows, triggers, ranks)


def _connection(reader: _Reader, line: int, words: Sequence[str]) -> _Flow:
    source, _, destination = words[0].partition("->")
    about: dict[str, str] = {}
    place = 1
    while place < len(words):
        key = words[place]
        if key not in ("start", "size", "id", "prio", "trigger", "send_done_trigger",
                       "recv_done_trigger"):  # fmt: skip
            reader.fail(line, f"found {key!r}, allowed start, size, id, prio and triggers")
        about[key] = words[place + 1] if place + 1 < len(words) else ""
        place += 2
    if "size" not in about:
        reader.fail(line, "size: is not there; flows without an end are not replayed")
    if ("start" in about) == ("trigger" in about):
        reader.fail(line, "expected either start or trigger")

    def known(key: str) -> int | None:
        return reader.number(line, about[key], key, 1 << 31) if key in about else None

    return _Flow(
        line,
        reader.number(line, source, "the source", MOST_RANKS),
        reader.number(line, destination, "the destination", MOST_RANKS),
        reader.number(line, about["size"], "size", MAX_SIZE_BYTES),
        reader.time_ns(line, about["start"], -3) if "start" in about else 0,
        known("trigger"),
        known("send_done_trigger"),
        known("recv_done_trigger"),
    )


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path

    def rows(self) -> list[tuple[int, list[str]]]:
        """The lines that are not empty, as words, by their numbers."""
        try:
            text = read_bytes(self._path).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ChakraError(self._path, error.start, "is no text (UTF-8)") from None
        found = [(n, line.split()) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
        return found or self.fail(1, "found nothing")

    def graphs(
        self, flows: Sequence[_Flow], triggers: Mapping[int, str], ranks: int
    ) -> tuple[Graph, ...]:
        nodes: list[list[GraphNode]] = [[] for _ in range(ranks)]
        sent: dict[int, int] = {}
        received: dict[int, int] = {}
        clock_ns: dict[int, int] = defaultdict(int)
        clock: dict[int, tuple[int, ...]] = defaultdict(tuple)
        numbers: dict[tuple[int, int], int] = defaultdict(int)
        tags = []
        for flow in flows:
            pair = flow.source, flow.destination
            if max(pair) >= ranks or flow.source == flow.destination:
                self.fail(flow.line, f"found {flow.source} to {flow.destination}, of {ranks} nodes")
            if not flow.size_bytes:
                self.fail(flow.line, "size: found 0, expected at least 1")
            tags.append(numbers[pair])
            numbers[pair] += 1
        for at, flow in enumerate(flows):
            own = nodes[flow.destination]
            received[at] = len(own)
            own.append(
                ReceiveNode(
                    id=len(own),
                    name=f"flow.{at}",
                    peer=flow.source,
                    size_bytes=flow.size_bytes,
                    tag=tags[at],
                )
            )
        for at in self._order(flows, triggers):
            flow = flows[at]
            own = nodes[flow.source]
            after = self._behind(at, flows, sent, received)
            if flow.trigger is None and flow.start_ns > clock_ns[flow.source]:
                wait = ComputeNode(
                    id=len(own),
                    name="clock",
                    after=clock[flow.source],
                    duration_ns=flow.start_ns - clock_ns[flow.source],
                    on_host=True,
                )
                own.append(wait)
                clock[flow.source], clock_ns[flow.source] = (wait.id,), flow.start_ns
            if flow.trigger is None:
                after = clock[flow.source]
            sent[at] = len(own)
            own.append(
                SendNode(
                    id=len(own),
                    name=f"flow.{at}",
                    after=after,
                    peer=flow.destination,
                    size_bytes=flow.size_bytes,
                    tag=tags[at],
                )
            )
        return tuple(tuple(own) or (ComputeNode(id=0, name="nothing"),) for own in nodes)

    def _order(self, flows: Sequence[_Flow], triggers: Mapping[int, str]) -> list[int]:
        """Flows by their starts, those that are set off behind what sets them off."""
        setting_off: dict[int, list[int]] = defaultdict(list)
        for at, flow in enumerate(flows):
            for trigger in (flow.sends, flow.receives):
                if trigger is not None:
                    setting_off[trigger].append(at)
        started = [at for at, flow in enumerate(flows) if flow.trigger is None]
        order = sorted(started, key=lambda at: flows[at].start_ns)
        waiting = [at for at, flow in enumerate(flows) if flow.trigger is not None]
        done = set(order)
        while waiting:
            ready = []
            for at in waiting:
                trigger = flows[at].trigger
                assert trigger is not None
                by = setting_off.get(trigger, [])
                if not by or (triggers.get(trigger) == "oneshot" and len(by) > 1):
                    self.fail(
                        flows[at].line,
                        f"trigger {trigger}: {len(by)} flows set it off, expected 1, or a barrier",
                    )
                if done.issuperset(by):
                    ready.append(at)
            if not ready:
                self.fail(flows[waiting[0]].line, "its triggers lead in a circle")
            order += ready
            done.update(ready)
            waiting = [at for at in waiting if at not in done]
        return order

    def _behind(
        self,
        at: int,
        flows: Sequence[_Flow],
        sent: Mapping[int, int],
        received: Mapping[int, int],
    ) -> tuple[int, ...]:
        flow = flows[at]
        if flow.trigger is None:
            return ()
        found = []
        for other, by in enumerate(flows):
            if by.sends == flow.trigger and by.source == flow.source:
                found.append(sent[other])
            elif by.receives == flow.trigger and by.destination == flow.source:
                found.append(received[other])
            elif flow.trigger in (by.sends, by.receives):
                self.fail(
                    flow.line,
                    f"trigger {flow.trigger} is set off at another node than {flow.source}, which "
                    "no rank sees",
                )
        return tuple(found)

    def number(self, line: int, word: str, what: str, most: int) -> int:
        if not (word.isascii() and word.isdigit() and len(word) <= 18 and int(word) <= most):
            self.fail(line, f"{what}: found {word!r}, expected a whole number to {most}")
        return int(word)

    def time_ns(self, line: int, word: str, digits: int) -> int:
        """A time in nanoseconds, of units that are 10 to the `digits` of them."""
        try:
            value = Decimal(word).scaleb(digits)
            if not 0 <= value <= LONGEST_NS:
                raise InvalidOperation
        except (InvalidOperation, ArithmeticError):
            self.fail(line, f"the start: found {word!r}, expected a time within a day")
        return round(value)

    def fail(self, line: int, what: str) -> NoReturn:
        raise ChakraError(self._path, None, f"line {line}: {what}")
