"""The work of every rank as a workload file of SimAI (`analysis/chakra/sources/simai.py` has the
format, and reads it).

SimAI has one program for all ranks: a line of layers. Its pass forward computes each layer and
awaits a collective. Its pass back does the same in the opposite order, with a second collective for
each layer that is not awaited. Any sequence of computation and collectives fits it: lines of the
pass forward first, then lines of the pass back alone, which stand in the opposite order. Groups are
Megatron's (tensor, data, pipeline, and experts among data-parallel ranks), so groups have to be of
that form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph, GraphNode
from analysis.chakra.sources.simai import KIND_NAMES, LEAST_FORWARD_BYTES, Degrees
from analysis.exporters.write import WrittenTrace
from collectives.call import CollectiveCall
from collectives.kinds import Kind
from topologies.spec.spec import Spec

_NOTHING = "{} NONE 0"
_SUFFIXES = ("", "EP", "DP_EP")


@dataclass(frozen=True, slots=True)
class _Act:
    """Computation of a rank, and the collective behind it, if there is one."""

    name: str
    duration_ns: int
    call: CollectiveCall | None = None
    awaited: bool = True
    update: bool = False
    """Whether it waits for collectives that ran beside others."""


def write_simai(
    folder: Path, spec: Spec, graphs: Sequence[Graph], fitted: Mapping[str, Any]
) -> WrittenTrace:
    """A workload of all ranks. Raises ValueError naming the rank and the node that SimAI lacks."""
    lines, notes = simai_lines(graphs)
    path = folder / f"{spec.name}.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    return WrittenTrace((path,), tuple(notes))


def simai_lines(graphs: Sequence[Graph]) -> tuple[list[str], list[str]]:
    """The lines of a workload, and notes of what it does not say. Raises ValueError
    (`write_simai`)."""
    acts = [_Sequence(rank, graph).acts() for rank, graph in enumerate(graphs)]
    notes = list(_alike(acts))
    degrees = _degrees(acts)
    durations = _durations(acts, max)
    forward: list[str] = []
    back: list[str] = []
    update_ns = 0
    for place, act in enumerate(acts[0]):
        duration_ns, call = durations[place], act.call
        if act.update:
            update_ns += duration_ns
            continue
        part = _NOTHING.format(duration_ns)
        suffix = ""
        if call is not None:
            suffix = _suffix(acts, place, degrees)
            name = KIND_NAMES[Kind(call.kind)] + (f"_{suffix}" if suffix else "")
            part = f"{duration_ns} {name} {call.size_bytes}"
        small = call is not None and call.size_bytes < LEAST_FORWARD_BYTES
        none = _NOTHING.format(0)
        if not act.awaited:
            back.append(f"{act.name} -1 {none} {none} {part} 0")
        elif back or small:
            back.append(f"{act.name} -1 {none} {part} {none} 0")
        else:
            forward.append(f"{act.name} -1 {part} {none} {none} 0")
    if update_ns:
        notes.append(
            f"computation of {update_ns} ns at the end waits for collectives of weight gradients: "
            "it is the time of an update, which SimAI adds to its next pass"
        )
        back[-1] = back[-1].rsplit(" ", 1)[0] + f" {update_ns}"
    head = (
        f"HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {degrees.tensor} "
        f"ep: {degrees.expert} pp: {degrees.pipeline} vpp: 1 ga: 1 all_gpus: {degrees.ranks} "
        "checkpoints: 0 checkpoint_initiates: 0"
    )
    layers = [*forward, *reversed(back)]
    if not layers:
        raise ValueError("ranks do nothing that a pass of SimAI has")
    return [head, str(len(layers)), *layers], notes


class _Sequence:
    """A rank's graph as acts one after another."""

    def __init__(self, rank: int, graph: Graph) -> None:
        self._rank = rank
        self._graph = graph
        self._names: Counter[str] = Counter()

    def acts(self) -> list[_Act]:
        """Raises ValueError naming the node that does not come after all before it."""
        bit = {node.id: 1 << place for place, node in enumerate(self._graph)}
        reached: dict[int, int] = {}  # what was over before a node began, as bits
        line = afloat = 0  # what comes next waits for the first; the second runs beside it
        last_call = max(
            (n for n, node in enumerate(self._graph) if isinstance(node, CollectiveNode)),
            default=-1,
        )
        found: list[_Act] = []
        for place, node in enumerate(self._graph):
            over = 0
            for parent in node.after:
                over |= bit[parent] | reached[parent]
            reached[node.id] = over
            if line & ~over:
                missing = self._graph[(line & ~over).bit_length() - 1]
                self._fail(node, f"may run beside node {missing.id}")
            if afloat & over and place <= last_call:
                late = self._graph[(afloat & over).bit_length() - 1]
                self._fail(node, f"waits for node {late.id}, which ran beside others")
            match node:
                case ComputeNode():
                    update = bool(afloat & over)
                    found.append(_Act(self._name(node), node.duration_ns, update=update))
                    line = bit[node.id]
                case CollectiveNode():
                    if node.call.kind not in KIND_NAMES:
                        allowed = ", ".join(sorted(KIND_NAMES))
                        self._fail(node, f"found {node.call.kind}, allowed {allowed}")
                    awaited = self._awaited(place)
                    self._behind(found, node, awaited)
                    if awaited:
                        line = bit[node.id]
                    else:
                        afloat |= bit[node.id]
                case _:
                    self._fail(node, "is a message, and SimAI has none")
        return _merged(found)

    def _awaited(self, place: int) -> bool:
        """Whether what comes next waits for the collective; so does the end."""
        node = self._graph[place]
        if place + 1 == len(self._graph):
            return True
        return node.id in self._graph[place + 1].after

    def _behind(self, found: list[_Act], node: CollectiveNode, awaited: bool) -> None:
        """Add a collective to the computation before it, or to one that takes no time."""
        if found and found[-1].call is None:
            found[-1] = _Act(found[-1].name, found[-1].duration_ns, node.call, awaited)
        else:
            found.append(_Act(self._name(node), 0, node.call, awaited))

    def _name(self, node: GraphNode) -> str:
        name = "_".join(node.name.split()) or "layer"
        self._names[name] += 1
        return name if self._names[name] == 1 else f"{name}_{self._names[name]}"

    def _fail(self, node: GraphNode, what: str) -> None:
        raise ValueError(
            f"rank {self._rank}, node {node.id} ({node.name}): {what}: SimAI's ranks do one thing "
            "after another, with collectives of weight gradients beside it to the end"
        )


def _merged(acts: Sequence[_Act]) -> list[_Act]:
    """The acts, with computation that nothing separates as one."""
    found: list[_Act] = []
    for act in acts:
        if found and found[-1].call is None and found[-1].update == act.update:
            found[-1] = replace(act, duration_ns=found[-1].duration_ns + act.duration_ns)
        else:
            found.append(act)
    return found


def _alike(acts: Sequence[Sequence[_Act]]) -> Iterator[str]:
    """A note where ranks compute for unequal times. Raises ValueError where they act unlike."""

    def shape(act: _Act) -> tuple[object, ...]:
        call = act.call
        return (
            act.awaited,
            act.update,
            *((call.kind, call.size_bytes, call.world) if call else ()),
        )

    for rank, own in enumerate(acts):
        pairs = enumerate(zip(acts[0], own, strict=False))
        unlike = [place for place, (one, other) in pairs if shape(one) != shape(other)]
        if unlike or len(own) != len(acts[0]):
            at = unlike[0] if unlike else min(len(own), len(acts[0]))
            name = (own if at < len(own) else acts[0])[at].name
            raise ValueError(
                f"rank {rank} does another thing than rank 0 at {name}: SimAI has one program for "
                "all ranks"
            )
    worst = max(_durations(acts, lambda each: max(each) - min(each)), default=0)
    if worst:
        yield (
            f"computation of ranks differs by up to {worst} ns: each takes as long as the slowest "
            "rank's"
        )


def _durations(acts: Sequence[Sequence[_Act]], of: Callable[[Sequence[int]], int]) -> list[int]:
    """One figure for each act, of its durations on all ranks."""
    return [of([own[place].duration_ns for own in acts]) for place in range(len(acts[0]))]


def _degrees(acts: Sequence[Sequence[_Act]]) -> Degrees:
    """Degrees of parallelism in whose groups all collectives run. Raises ValueError."""
    ranks = len(acts)
    divisors = [n for n in range(1, ranks + 1) if ranks % n == 0]
    candidates = [
        Degrees(ranks, tensor, pipeline, expert)
        for pipeline in divisors
        for expert in divisors
        for tensor in reversed(divisors)
        if ranks % (tensor * pipeline * expert) == 0
    ]
    places = [place for place, act in enumerate(acts[0]) if act.call is not None]
    kinds = {_groups(acts, place): place for place in places}
    best = 0
    for degrees in candidates:
        fit = [_fitting(acts, place, degrees) is not None for place in kinds.values()]
        if all(fit):
            return degrees
        best = max(best, fit.index(False))
    name = acts[0][list(kinds.values())[best]].name
    raise ValueError(
        f"the groups of {name} are none of Megatron's (tensor, data, experts) beside the others"
    )


def _groups(acts: Sequence[Sequence[_Act]], place: int) -> tuple[object, ...]:
    return acts[0][place].awaited, tuple(_members(own[place]) for own in acts)


def _members(act: _Act) -> tuple[int, ...]:
    return () if act.call is None else act.call.ranks


def _fitting(acts: Sequence[Sequence[_Act]], place: int, degrees: Degrees) -> str | None:
    """The suffix of the collective's name; None where no group is its own."""
    own = "TP" if acts[0][place].awaited else "DP"
    for suffix in _SUFFIXES:
        groups = (degrees.members(suffix or own, rank) for rank in range(degrees.ranks))
        if all(group == _members(acts[rank][place]) for rank, group in enumerate(groups)):
            return suffix
    return None


def _suffix(acts: Sequence[Sequence[_Act]], place: int, degrees: Degrees) -> str:
    found = _fitting(acts, place, degrees)
    assert found is not None
    return found
