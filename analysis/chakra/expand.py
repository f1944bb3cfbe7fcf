"""Collectives as the messages that Gloo really sends, for formats that have no such collective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from analysis.chakra.graph import CollectiveNode, Graph, GraphNode, ReceiveNode, SendNode
from collectives.call import CollectiveCall, CollectiveError
from collectives.schedule.operations import Await, CompiledPrograms, Mark, Operation, Start


@dataclass(frozen=True, slots=True)
class RankMessage:
    """One message on one rank: sent to or received from `peer`.

    `after` are positions, in the rank's list, of operations that must be over before it is posted.
    `tag` counts from the collective's first one.
    """

    sends: bool
    peer: int
    size_bytes: int
    after: tuple[int, ...]
    tag: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """One rank's part in a collective; `last` are the operations that end it, `tags` is how many
    tags the collective takes."""

    operations: tuple[RankMessage, ...]
    last: tuple[int, ...]
    tags: int = 1


def parts(call: CollectiveCall, seed: int = 1) -> dict[int, Part]:
    """Every rank's messages, in the order of its program. Chunks that take turns, and sequences
    that wait for each other, do so here as well; injecting takes no time. `seed` draws
    permutations.
    Raises CollectiveError for a collective without a schedule, and where switches take part."""
    if call.schedule.aggregators:
        raise CollectiveError(
            f"{call.kind} by {call.schedule.algorithm}: switches take part in it, and "
            "messages here are those between ranks"
        )
    compiled = call.schedule.alone(call.shape, seed)
    numbered = bool(call.schedule.chunks)
    tags = max(1, len(compiled.source)) if numbered else 1
    found = {}
    for member, rank in enumerate(call.ranks):
        own = [p for p, end in zip(compiled.programs, compiled.ends, strict=True) if end == member]
        operations, last = _Unrolled(compiled, call.ranks, numbered).run(own)
        found[rank] = Part(tuple(operations), last, tags)
    return found


def runs_by_ranks(call: CollectiveCall) -> bool:
    """Whether it runs as a program of which the ranks alone send the messages."""
    return call.schedule.by_carrier


class _Unrolled:
    """The programs of one rank as one list, whose operations name the operations that they wait
    for."""

    def __init__(self, programs: CompiledPrograms, ranks: Sequence[int], numbered: bool) -> None:
        self._programs = programs
        self._ranks = ranks
        self._numbered = numbered
        self._operations: list[RankMessage] = []
        self._sent: dict[int, int] = {}
        self._received: dict[int, int] = {}
        self._marked: dict[int, frozenset[int]] = {}

    def run(self, programs: Sequence[list[Operation]]) -> tuple[list[RankMessage], tuple[int, ...]]:
        places = [0] * len(programs)
        waited: list[frozenset[int]] = [frozenset()] * len(programs)
        again = True
        while again:
            again = False
            for number, program in enumerate(programs):
                while places[number] < len(program):
                    known = self._step(program[places[number]], waited[number])
                    if known is None:
                        break
                    waited[number] = known
                    places[number] += 1
                    again = True
        return self._operations, tuple(sorted(_ends(self._operations)))

    def _step(self, operation: Operation, waited: frozenset[int]) -> frozenset[int] | None:
        """The operations that the program has waited for after this; None when it must wait for
        another one."""
        match operation:
            case Start():
                for sends in (operation.sends_first, not operation.sends_first):
                    for message in operation.sends if sends else operation.receives:
                        self._post(message, sends, waited)
            case Await():
                if not all(mark in self._marked for mark in operation.marks):
                    return None
                if not all(m in self._sent for m in operation.sends):
                    return None
                if not all(m in self._received for m in operation.receives):
                    return None
                over = {self._sent[m] for m in operation.sends}
                over |= {self._received[m] for m in operation.receives}
                for mark in operation.marks:
                    over |= self._marked[mark]
                # Nodes that these waited for themselves are over with them.
                implied = {p for position in over for p in self._operations[position].after}
                return (waited - implied) | over
            case Mark():
                self._marked[operation.number] = waited
        return waited

    def _post(self, message: int, sends: bool, waited: frozenset[int]) -> None:
        ends = self._programs.destination if sends else self._programs.source
        (self._sent if sends else self._received)[message] = len(self._operations)
        peer = self._ranks[ends[message]]
        after = tuple(sorted(waited))
        size_bytes = self._programs.size_bytes[message]
        tag = message if self._numbered else 0
        self._operations.append(RankMessage(sends, peer, size_bytes, after, tag))


def expand_all(graphs: Sequence[Graph], *, seed: int = 1) -> list[Graph]:
    """The graphs with sends and receives in place of all collectives, with tags above those of
    their own messages."""
    tags = (n.tag for graph in graphs for n in graph if isinstance(n, SendNode | ReceiveNode))
    first_tag = max(tags, default=-1) + 1
    return expand(graphs, lambda call: True, first_tag=first_tag, seed=seed)


def expand(
    graphs: Sequence[Graph],
    chosen: Callable[[CollectiveCall], bool],
    *,
    first_tag: int,
    seed: int = 1,
) -> list[Graph]:
    """Replace the chosen collectives by their sends and receives, on every rank.

    Each collective of a group gets a tag of its own from `first_tag` up, so that messages of one
    never meet those of another; all ranks must run a group's collectives in the same order, as
    Gloo's slots demand.
    """
    tags: dict[tuple[CollectiveCall, int], int] = {}
    next_tag = first_tag
    found: dict[CollectiveCall, dict[int, Part]] = {}
    expanded = []
    for rank, graph in enumerate(graphs):
        met: dict[CollectiveCall, int] = {}
        next_id = max((node.id for node in graph), default=0) + 1
        ends: dict[int, tuple[int, ...]] = {}
        nodes: list[GraphNode] = []
        for node in graph:
            after = tuple(dict.fromkeys(e for p in node.after for e in ends.get(p, (p,))))
            if not isinstance(node, CollectiveNode) or not chosen(node.call):
                nodes.append(replace(node, after=after))
                continue
            call = node.call
            occurrence = met[call] = met.get(call, -1) + 1
            if call not in found:
                found[call] = parts(call, seed)
            part = found[call][rank]
            if (call, occurrence) not in tags:
                tags[call, occurrence] = next_tag
                next_tag += part.tags
            tag = tags[call, occurrence]
            made = _nodes(node, part, after, next_id, tag)
            nodes += made
            next_id += len(made)
            ends[node.id] = tuple(made[position].id for position in part.last) or after
        expanded.append(tuple(nodes))
    return expanded


def _nodes(
    node: CollectiveNode, part: Part, after: tuple[int, ...], first_id: int, tag: int
) -> list[GraphNode]:
    made: list[GraphNode] = []
    for position, operation in enumerate(part.operations):
        kind = SendNode if operation.sends else ReceiveNode
        made.append(
            kind(
                id=first_id + position,
                name=f"{node.name}.{'send' if operation.sends else 'receive'}.{position}",
                after=tuple(first_id + p for p in operation.after) or after,
                peer=operation.peer,
                size_bytes=operation.size_bytes,
                tag=tag + operation.tag,
                stream=node.stream,
            )
        )
    return made


def _ends(operations: Sequence[RankMessage]) -> set[int]:
    """Operations that no other waits for."""
    return set(range(len(operations))) - {p for o in operations for p in o.after}
