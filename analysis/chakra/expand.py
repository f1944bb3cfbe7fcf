"""Collectives as the messages that Gloo really sends, for formats that have no such collective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from analysis.chakra.graph import Collective, Graph, GraphNode, Receive, Send
from analysis.predictors.gloo_schedule import Post, gloo_schedule
from analysis.predictors.interface import CollectiveCall


@dataclass(frozen=True, slots=True)
class Operation:
    """One message on one rank: sent to or received from `peer`.

    `after` are positions, in the rank's list, of operations that must be over before it is posted.
    """

    sends: bool
    peer: int
    size_bytes: int
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One rank's part in a collective; `last` are the operations that end it."""

    operations: tuple[Operation, ...]
    last: tuple[int, ...]


def parts(call: CollectiveCall, seed: int = 1) -> dict[int, Part]:
    """Every rank's messages, in the order of its program (gloo_schedule). `seed` draws
    permutations. Raises PredictorError for a collective without a schedule."""
    ranks = call.ranks
    operations: dict[int, list[Operation]] = {rank: [] for rank in ranks}
    # Per rank and post, the positions of its operations; and what it has waited for so far.
    posted: dict[int, list[dict[bool, list[int]]]] = {rank: [] for rank in ranks}
    waited: dict[int, set[int]] = {rank: set() for rank in ranks}
    for step in gloo_schedule(call, seed):
        if isinstance(step, Post):
            for rank in ranks:
                posted[rank].append({True: [], False: []})
            for source, destination, size in zip(
                step.source.tolist(), step.destination.tolist(), step.size_bytes.tolist(),
                strict=True,
            ):  # fmt: skip
                for sends, member, peer in (
                    (False, destination, source),
                    (True, source, destination),
                ):
                    rank = ranks[member]
                    posted[rank][-1][sends].append(len(operations[rank]))
                    gate = tuple(sorted(waited[rank]))
                    operations[rank].append(Operation(sends, ranks[peer], size, gate))
        else:
            for rank in ranks:
                done = posted[rank][step.post]
                over = {
                    position
                    for sends, wanted in ((True, step.sends), (False, step.receives))
                    if wanted
                    for position in done[sends]
                }
                # What these waited for themselves is over with them.
                implied = {p for position in over for p in operations[rank][position].after}
                waited[rank] = (waited[rank] - implied) | over
    return {
        rank: Part(tuple(operations[rank]), tuple(sorted(waited[rank] or _ends(operations[rank]))))
        for rank in ranks
    }


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
    found: dict[CollectiveCall, dict[int, Part]] = {}
    expanded = []
    for rank, graph in enumerate(graphs):
        met: dict[CollectiveCall, int] = {}
        next_id = max((node.id for node in graph), default=0) + 1
        ends: dict[int, tuple[int, ...]] = {}
        nodes: list[GraphNode] = []
        for node in graph:
            after = tuple(dict.fromkeys(e for p in node.after for e in ends.get(p, (p,))))
            if not isinstance(node, Collective) or not chosen(node.call):
                nodes.append(replace(node, after=after))
                continue
            call = node.call
            occurrence = met[call] = met.get(call, -1) + 1
            tag = tags.setdefault((call, occurrence), first_tag + len(tags))
            if call not in found:
                found[call] = parts(call, seed)
            part = found[call][rank]
            made = _nodes(node, part, after, next_id, tag)
            nodes += made
            next_id += len(made)
            ends[node.id] = tuple(made[position].id for position in part.last) or after
        expanded.append(tuple(nodes))
    return expanded


def _nodes(
    node: Collective, part: Part, after: tuple[int, ...], first_id: int, tag: int
) -> list[GraphNode]:
    made: list[GraphNode] = []
    for position, operation in enumerate(part.operations):
        kind = Send if operation.sends else Receive
        made.append(
            kind(
                id=first_id + position,
                name=f"{node.name}.{'send' if operation.sends else 'receive'}.{position}",
                after=tuple(first_id + p for p in operation.after) or after,
                peer=operation.peer,
                size_bytes=operation.size_bytes,
                tag=tag,
            )
        )
    return made


def _ends(operations: Sequence[Operation]) -> set[int]:
    """Operations that no other waits for."""
    return set(range(len(operations))) - {p for o in operations for p in o.after}
