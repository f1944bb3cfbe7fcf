"""The ways of packets while links go down and come back, as columns of the packet engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from analysis.predict.engines.packet.choices import NextHopChoices
from analysis.predict.engines.packet.pairs import PairsOfEnds
from analysis.predict.engines.paths import Paths
from analysis.predict.engines.wire import Ints
from analysis.predict.interface import PredictorError
from simulation.columns import Column
from topologies.routing.routes import Routes
from topologies.spec.routing_section import Srv6

_NONE = -1


@dataclass(slots=True)
class ChangingRoutes:
    """Where packets go on from each node that they come to, by which links routes do without.

    A place is a node to which packets may come: those of a flow, which is a pair of ends, and an
    entropy value where it has several; where switches choose by more than a hash, those for a node.
    """

    paths: Paths
    pairs: PairsOfEnds
    choices: NextHopChoices
    routes: Sequence[Routes]
    """By state; those at rest in the first."""
    links: set[int] = field(init=False, default_factory=set)
    """The directed links that may be taken."""
    _words: list[list[int]] = field(init=False, default_factory=list)
    _next: list[list[int]] = field(init=False, default_factory=list)
    _nodes: Sequence[int] = field(init=False, default=())
    _begin: Sequence[int] = field(init=False, default=())

    def __post_init__(self) -> None:
        if len(self.routes) < 2:
            return
        if isinstance(self.paths.setting.fabric.choice, Srv6):
            raise PredictorError(
                "packet does not follow segments while links go down: a packet that is on its way "
                "keeps its path"
            )
        further = [replace(self.paths.setting, routes=each) for each in self.routes[1:]]
        states = [self.paths, *map(Paths, further)]
        if self.choices.are_any:
            self._choose(states)
        else:
            self._hash(states)

    def _hash(self, states: Sequence[Paths]) -> None:
        flows = _Flows(self.pairs, self.paths)
        found: list[tuple[Ints, list[tuple[Ints, Ints]]]] = []
        new = known = np.unique(flows.keys(np.arange(flows.count), flows.at)[flows.travels])
        while len(new):
            ways = [flows.onward(paths, new) for paths in states]
            found.append((new, ways))
            reached = [flows.reached(new, *way) for way in ways]
            new = np.setdiff1d(np.concatenate(reached), known)
            known = np.union1d(known, new)
        order = np.argsort(np.concatenate([each for each, _ in found]))
        for state in range(len(states)):
            link, behind = (
                np.concatenate([ways[state][column] for _, ways in found])[order]
                for column in (0, 1)
            )
            leads = link < self.paths.links
            self.links |= {*link[leads].tolist()}
            goes_on = leads & (behind != flows.to[known // flows.nodes])
            place = np.full(len(known), _NONE, dtype=np.int64)
            onward = flows.keys(known // flows.nodes, behind)[goes_on]
            place[goes_on] = np.searchsorted(known, onward)
            self._words.append(np.where(leads, link, _NONE).tolist())
            self._next.append(place.tolist())
        self._nodes = (known % flows.nodes).tolist()
        begin = flows.keys(np.arange(flows.count), flows.at)
        self._begin = np.searchsorted(known, begin).tolist()

    def _choose(self, states: Sequence[Paths]) -> None:
        ends = [self.paths.ends[rank] for rank in self.pairs.ends.tolist()]
        numbers: dict[tuple[str, str], int] = {}
        self._words = [[] for _ in states]
        self._next = [[] for _ in states]
        self._begin = [
            numbers.setdefault((ends[at], ends[to]), len(numbers))
            for at, to in zip(
                self.pairs.source.tolist(), self.pairs.destination.tolist(), strict=True
            )
        ]
        left = [*numbers]
        for node, to in left:  # which grows
            for state, paths in enumerate(states):
                hops: list[tuple[int, int | None]] = []
                for link, behind in paths.next_links(node, to):
                    self.links.add(link)
                    if behind != to and (behind, to) not in numbers:
                        numbers[behind, to] = len(numbers)
                        left.append((behind, to))
                    hops.append((link, None if behind == to else numbers[behind, to]))
                word, place = hops[0] if hops else (_NONE, None)
                if len(hops) > 1:
                    word = self.choices.add(node, hops)
                self._words[state].append(word)
                self._next[state].append(_NONE if place is None else place)
        self._nodes = [self.paths.place(node) for node, _ in left]

    def columns(self) -> dict[str, Column]:
        """As simulation/engine/README.md has them."""
        return {
            "place.states": np.array([len(self._words)], dtype=np.int64),
            "place.word": _all(self._words),
            "place.next": _all(self._next),
            "place.node": np.array(self._nodes, dtype=np.int32),
            "pair.node": self.paths.places(self.pairs.ends[self.pairs.source]).astype(np.int32),
            "pair.place": np.array(self._begin, dtype=np.int32),
        }


def _all(rows: Sequence[Sequence[int]]) -> Column:
    return np.array([number for row in rows for number in row], dtype=np.int32)


class _Flows:
    """The flows of pairs, one of each entropy value. A key is a flow at a node."""

    def __init__(self, pairs: PairsOfEnds, paths: Paths) -> None:
        values = max(1, len(pairs.by_value))
        self.source, self.destination, self._carried = (
            np.repeat(each, values)
            for each in (pairs.ends[pairs.source], pairs.ends[pairs.destination], pairs.by_carrier)
        )
        self.count, self.nodes = len(self.source), len(paths.setting.fabric.nodes)
        self._links = paths.links
        self.at, self.to = (paths.places(each) for each in (self.source, self.destination))
        self.travels = self.at != self.to
        kinds: dict[tuple[bool, str | None, int], list[int]] = {}
        for flow, carried in enumerate(self._carried.tolist()):
            value = flow % values if carried else 0
            kind = bool(carried), pairs.groups[flow // values], value
            kinds.setdefault(kind, []).append(flow)
        self._kinds = list(kinds)
        self._kind = np.zeros(self.count, dtype=np.int64)
        for number, flows in enumerate(kinds.values()):
            self._kind[flows] = number

    def keys(self, flow: Ints, node: Ints) -> Ints:
        """The keys of flows at nodes."""
        return flow * self.nodes + node

    def onward(self, paths: Paths, keys: Ints) -> tuple[Ints, Ints]:
        """The directed link over which each goes on, and the node behind it."""
        flow, node = np.divmod(keys, self.nodes)
        link, behind = np.zeros_like(keys), np.zeros_like(keys)
        kind = self._kind[flow]
        for number in np.unique(kind).tolist():
            rows = np.flatnonzero(kind == number)
            own = flow[rows]
            told = self.source[own], self.destination[own], node[rows]
            link[rows], behind[rows] = paths.onward(*told, *self._kinds[number])
        return link, behind

    def reached(self, keys: Ints, link: Ints, behind: Ints) -> Ints:
        """The keys of the nodes to which these lead, but for those that packets are for."""
        flow = keys // self.nodes
        goes_on = (link < self._links) & (behind != self.to[flow])
        return np.unique(self.keys(flow, behind)[goes_on])
