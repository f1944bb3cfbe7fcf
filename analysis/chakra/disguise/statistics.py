"""A statistical model of a corpus of traces, and traces of other sizes drawn from it.

The ranks of a trace run alike (SPMD): the same steps, each a computation or a collective of the
world, of an inner group (neighbours) or of an outer one (every so-manieth rank). A trace's size is
its `ranks` n, the ranks of an `inner` group t, and those of an outer one, d = n / t. All traces of
a corpus have the same steps, and differ in size.

The model keeps of each step what it does, in which group, after which steps, and a law of its bytes
or its nanoseconds: y = a + b f(n, t, d), where f is one of n, t, d and their inverses, fitted by
least squares to the means over ranks. A constant is taken where it fits within 0.1%, else the f
that leaves the least; of several that fit within 0.1% an inverse, as work is divided. The deviation
of single ranks is kept as a spread of logarithms, and drawn from a log-normal distribution by the
seed. Names, shapes, ids and the corpus itself are not kept.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from analysis.chakra.disguise.outline import outlines
from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph, GraphNode
from collectives.call import CollectiveCall
from collectives.kinds import Kind, rounded_elements

_CONSTANT_WITHIN = 0.001
_WORLD, _INNER, _OUTER = "world", "inner", "outer"


@dataclass(frozen=True, slots=True)
class Size:
    """The ranks of a trace, and of its inner groups."""

    ranks: int
    inner: int

    @property
    def outer(self) -> int:
        return self.ranks // self.inner

    def members(self, group: str, rank: int) -> tuple[int, ...]:
        """The ranks of a rank's group."""
        if group == _WORLD:
            return tuple(range(self.ranks))
        if group == _INNER:
            first = rank - rank % self.inner
            return tuple(range(first, first + self.inner))
        return tuple(range(rank % self.inner, self.ranks, self.inner))


@dataclass(frozen=True, slots=True)
class Law:
    """y = `constant` + `slope` f, with the `feature` f of a size; `spread` is the standard
    deviation of a rank's logarithm around it."""

    constant: float
    slope: float
    feature: str
    spread: float

    def mean(self, size: Size) -> float:
        return self.constant + self.slope * _features(size)[self.feature]

    def draw(self, size: Size, random: random.Random) -> float:
        mean = max(self.mean(size), 0.0)
        if not self.spread:
            return mean
        return mean * random.lognormvariate(-(self.spread**2) / 2, self.spread)


@dataclass(frozen=True, slots=True)
class Step:
    """A step of all ranks. `kind` and `group` are None of a computation; `root` is a position in
    the group."""

    after: tuple[int, ...]
    law: Law
    kind: str | None = None
    group: str | None = None
    element_bytes: int = 4
    root: int = 0
    on_host: bool = False


@dataclass(frozen=True, slots=True)
class Model:
    """The model that a corpus teaches."""

    steps: tuple[Step, ...]
    sizes: tuple[Size, ...]

    @property
    def inner(self) -> int | None:
        """The ranks of an inner group, where all of the corpus have as many."""
        found = {size.inner for size in self.sizes}
        return found.pop() if len(found) == 1 else None

    def draw(self, ranks: int, inner: int, seed: int) -> tuple[Graph, ...]:
        """Traces of `ranks` ranks. Raises ValueError for a size that the steps cannot have."""
        if inner < 1 or ranks % inner or ranks < 2:
            raise ValueError(f"ranks is {ranks}, expected a multiple of inner = {inner}, 2 or more")
        grouped = {step.group for step in self.steps}
        if _INNER in grouped and inner < 2:
            raise ValueError(
                f"inner is {inner}, expected 2 or more, as the corpus has inner groups"
            )
        if _OUTER in grouped and ranks == inner:
            raise ValueError(
                f"ranks is {ranks}, expected more than inner = {inner}, as the corpus has outer "
                "groups"
            )
        size = Size(ranks, inner)
        # A collective's size is one for all its ranks.
        shared = random.Random(f"{seed}.collectives")
        drawn = [step.law.draw(size, shared) if step.kind else 0.0 for step in self.steps]
        return tuple(
            tuple(self._rank(size, rank, drawn, random.Random(f"{seed}.{rank}")))
            for rank in range(ranks)
        )

    def _rank(
        self, size: Size, rank: int, sizes: Sequence[float], own: random.Random
    ) -> Iterator[GraphNode]:
        for id, step in enumerate(self.steps):
            if step.kind is None or step.group is None:
                yield ComputeNode(
                    id=id,
                    name="compute",
                    after=step.after,
                    duration_ns=round(step.law.draw(size, own)),
                    on_host=step.on_host,
                )
                continue
            ranks = size.members(step.group, rank)
            kind = Kind(step.kind)
            wanted = max(round(sizes[id]), 0)
            elements = rounded_elements(kind, wanted, len(ranks), step.element_bytes)
            size_bytes = 0 if kind is Kind.BARRIER else elements * step.element_bytes
            call = CollectiveCall(
                kind, size_bytes, ranks, step.element_bytes, min(step.root, len(ranks) - 1)
            )
            yield CollectiveNode(id=id, name=step.kind, after=step.after, call=call)


def learn(corpus: Mapping[str, Sequence[Graph]]) -> Model:
    """The model of traces, by their names. Raises ValueError naming the trace, rank and step of
    what it cannot learn: messages, ranks that differ, groups of another shape, other steps."""
    outlined = {name: outlines(graphs) for name, graphs in corpus.items()}
    sizes = {name: _size(name, graphs) for name, graphs in outlined.items()}
    first = next(iter(outlined))
    expected = _shape(first, outlined[first][0], 0, sizes[first])
    for name, graphs in outlined.items():
        for rank, graph in enumerate(graphs):
            found = _shape(name, graph, rank, sizes[name])
            if found != expected:
                at = next(
                    (i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b),
                    min(len(expected), len(found)),
                )
                raise ValueError(
                    f"{name}: rank {rank}: step {at}: found {_told(found, at)}, where rank 0 of "
                    f"{first} has {_told(expected, at)}: all ranks and traces of a corpus run alike"
                )
    steps = []
    for at, (kind, group, after) in enumerate(expected):
        node = outlined[first][0][at]
        values = {
            sizes[name]: [_value(graph[at]) for graph in graphs]
            for name, graphs in outlined.items()
        }
        law = _law(values)
        if isinstance(node, CollectiveNode):
            call = node.call
            steps.append(Step(after, law, kind, group, call.element_bytes, call.root))
        else:
            on_host = isinstance(node, ComputeNode) and node.on_host
            steps.append(Step(after, law, on_host=on_host))
    return Model(tuple(steps), tuple(sizes.values()))


_Shape = list[tuple[str, str | None, tuple[int, ...]]]


def _told(shape: _Shape, at: int) -> str:
    if at >= len(shape):
        return "no more steps"
    kind, group, after = shape[at]
    return f"{kind}{f' of the {group}' if group else ''} after {list(after)}"


def _size(name: str, graphs: Sequence[Graph]) -> Size:
    """The size of a trace: inner groups are neighbours, and not the world."""
    ranks = len(graphs)
    inner = 1
    for rank, graph in enumerate(graphs):
        for node in graph:
            if isinstance(node, CollectiveNode):
                members = sorted(node.call.ranks)
                if 1 < len(members) < ranks and members[1] - members[0] == 1:
                    if inner not in (1, len(members)):
                        _fail(name, rank, node.id, "has inner groups of two sizes")
                    inner = len(members)
    if inner == 1:
        strides = {
            sorted(n.call.ranks)[1] - sorted(n.call.ranks)[0]
            for graph in graphs
            for n in graph
            if isinstance(n, CollectiveNode) and 1 < len(n.call.ranks) < ranks
        }
        inner = strides.pop() if len(strides) == 1 else 1
    return Size(ranks, inner)


def _shape(name: str, graph: Graph, rank: int, size: Size) -> _Shape:
    found: _Shape = []
    for node in graph:
        if isinstance(node, ComputeNode):
            found.append(("host" if node.on_host else "compute", None, node.after))
        elif isinstance(node, CollectiveNode):
            members = tuple(sorted(node.call.ranks))
            group = next(
                (g for g in (_WORLD, _INNER, _OUTER) if members == size.members(g, rank)), None
            )
            if group is None:
                _fail(name, rank, node.id, f"is a collective of ranks {list(members)}")
            found.append((str(node.call.kind), group, node.after))
        else:
            _fail(name, rank, node.id, "is a message")
    return found


def _fail(name: str, rank: int, step: int, what: str) -> NoReturn:
    raise ValueError(
        f"{name}: rank {rank}: step {step} {what}; computation and collectives of the world, of "
        "neighbours and of ranks at equal distances are learned"
    )


def _value(node: GraphNode) -> int:
    return node.call.size_bytes if isinstance(node, CollectiveNode) else node.duration_ns


def _features(size: Size) -> dict[str, float]:
    found = {"n": size.ranks, "t": size.inner, "d": size.outer}
    return {"1": 0.0} | found | {f"1/{name}": 1 / value for name, value in found.items()}


def _law(values: Mapping[Size, Sequence[int]]) -> Law:
    means = {size: sum(each) / len(each) for size, each in values.items()}
    spread = _spread(values, means)
    middle = sum(means.values()) / len(means)
    if max(abs(y - middle) for y in means.values()) <= _CONSTANT_WITHIN * max(abs(middle), 1):
        return Law(middle, 0.0, "1", spread)
    best = Law(middle, 0.0, "1", spread)
    least = math.inf
    as_good = len(means) * (_CONSTANT_WITHIN * middle) ** 2
    for feature in ("1/t", "1/n", "1/d", "t", "n", "d"):
        pairs = [(_features(size)[feature], y) for size, y in means.items()]
        mean_x = sum(x for x, _ in pairs) / len(pairs)
        width = sum((x - mean_x) ** 2 for x, _ in pairs)
        if not width:
            continue
        slope = sum((x - mean_x) * (y - middle) for x, y in pairs) / width
        left = max(sum((y - middle - slope * (x - mean_x)) ** 2 for x, y in pairs), as_good)
        if left < least:
            least, best = left, Law(middle - slope * mean_x, slope, feature, spread)
    return best


def _spread(values: Mapping[Size, Sequence[int]], means: Mapping[Size, float]) -> float:
    off = [
        math.log(value / means[size])
        for size, each in values.items()
        for value in each
        if value > 0 and means[size] > 0
    ]
    return math.sqrt(sum(x * x for x in off) / len(off)) if off else 0.0
