"""Next hops that switches choose by more than a hash, as columns of the packet engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from analysis.predict.engines.paths import Paths
from analysis.predict.engines.wire import Ints
from analysis.predict.interface import PredictorError
from simulation.columns import Column
from topologies.routing.choices import choice_settings


@dataclass(slots=True)
class NextHopChoices:
    """The routes of pairs: links, one after the other, up to a switch that chooses. From there on a
    packet has the route of the hop that is taken, which begins with the link to it.

    Where packets are hashed, a route is a path.
    """

    paths: Paths
    _words: list[int] = field(init=False, default_factory=list)
    _starts: dict[tuple[int, str, str], int] = field(init=False, default_factory=dict)
    _numbers: dict[tuple[str, str], int] = field(init=False, default_factory=dict)
    _hops: list[list[int]] = field(init=False, default_factory=list)
    _switches: dict[str, int] = field(init=False, default_factory=dict)
    _at: list[int] = field(init=False, default_factory=list)
    _turn: list[int] = field(init=False, default_factory=list)
    _turns: dict[tuple[int, ...], int] = field(init=False, default_factory=dict)
    _lengths: dict[tuple[str, str], int] = field(init=False, default_factory=dict)

    @property
    def are_any(self) -> bool:
        """Whether a packet's path is not known beforehand."""
        return not self.paths.setting.fabric.choice.by_headers

    def routes(
        self,
        matrix: Ints,
        source: Ints,
        destination: Ints,
        carried: Ints,
        groups: Sequence[str | None],
    ) -> dict[str, Column]:
        """Columns of pairs of ends with the path matrix that they would have by a hash. Raises
        PredictorError where the ways between two hosts differ in length."""
        ends = self.paths.ends
        rows: list[list[int]] = []
        lengths: list[int] = []
        for row, at, to in zip(matrix.tolist(), source.tolist(), destination.tolist(), strict=True):
            if self.are_any:
                rows.append(self._row(ends[at], ends[to]))
                lengths.append(self._length(ends[at], ends[to]))
            else:
                rows.append([link for link in row if link < self.paths.links])
                lengths.append(len(rows[-1]))
        flows: Sequence[int] | npt.NDArray[np.uint64] = ()
        if self.are_any:
            flows = self.paths.flow_keys(source, destination, carried, groups)
        first = np.cumsum([0, *(len(row) for row in rows)])
        chosen = np.cumsum([0, *(len(hops) for hops in self._hops)])
        seed, choice = self.paths.setting.seed, self.paths.setting.fabric.choice
        told = [choice_settings(choice, seed, name) or () for name in self._switches]
        settings = np.array(told, dtype=np.uint64).reshape(-1).view(np.int64)
        return {
            "pair.links": np.array([word for row in rows for word in row], dtype=np.int32),
            "pair.first_link": first.astype(np.int64),
            "pair.hops": np.array(lengths, dtype=np.int32),
            "pair.flow": np.array(flows, dtype=np.uint64).view(np.int64),
            "choice.switch": np.array(self._at, dtype=np.int32),
            "choice.turn": np.array(self._turn, dtype=np.int32),
            "choice.first": chosen.astype(np.int32),
            "choice.hops": np.array([hop for hops in self._hops for hop in hops], dtype=np.int32),
            "choice.routes": np.array([self._word(word) for word in self._words], dtype=np.int32),
            "choice.turns": np.array([len(self._turns)], dtype=np.int64),
            "switch.settings": settings,
        }

    @property
    def links(self) -> set[int]:
        """The directed links that may be taken, of the routes that were asked for."""
        return {word for word in self._words if 0 <= word < self.paths.links}

    def add(self, node: str, hops: Sequence[tuple[int, int | None]]) -> int:
        """A choice of a switch between directed links, each with the place to which it leads, None
        where that is where packets are for; its word."""
        starts = []
        for link, place in hops:
            starts.append(len(self._words))
            self._words += [link] if place is None else [link, -1 - place]
        return self.paths.links + self._added(node, [link for link, _ in hops], starts)

    def _added(self, node: str, links: Sequence[int], starts: list[int]) -> int:
        number = len(self._hops)
        self._hops.append(starts)
        self._at.append(self._switches.setdefault(node, len(self._switches)))
        self._turn.append(self._turns.setdefault(tuple(links), len(self._turns)))
        return number

    def _word(self, word: int) -> int:
        """Places (`ChangingRoutes`) are numbered after all choices."""
        return word if word >= 0 else self.paths.links + len(self._hops) - 1 - word

    def _row(self, node: str, destination: str) -> list[int]:
        """Links from a node up to the first choice, and that."""
        row: list[int] = []
        while node != destination:
            hops = self._next(node, destination)
            if len(hops) > 1:
                row.append(self.paths.links + self._choice(node, destination))
                break
            link, node = hops[0]
            row.append(link)
        return row

    def _next(self, node: str, destination: str) -> list[tuple[int, str]]:
        """Directed links of next hops, and where they lead."""
        hops = self.paths.next_links(node, destination)
        if not hops:
            raise PredictorError(f"no route from {node} to {destination}")
        return hops

    def _choice(self, node: str, destination: str) -> int:
        if (node, destination) not in self._numbers:
            hops = self._next(node, destination)
            number = self._added(node, [link for link, _ in hops], [])
            self._numbers[node, destination] = number
            self._hops[number] = [self._start(*hop, destination) for hop in hops]
        return self._numbers[node, destination]

    def _start(self, link: int, node: str, destination: str) -> int:
        """The index at which the route begins that goes on over a link to a node."""
        key = link, node, destination
        if key not in self._starts:
            row = [link, *self._row(node, destination)]
            self._starts[key] = len(self._words)
            self._words += row
        return self._starts[key]

    def _length(self, node: str, destination: str) -> int:
        """How many links there are, whatever is chosen."""
        if node == destination:
            return 0
        if (node, destination) not in self._lengths:
            found = {1 + self._length(n, destination) for _, n in self._next(node, destination)}
            if len(found) > 1:
                raise PredictorError(
                    f"the ways from {node} to {destination} have {min(found)} to {max(found)} links"
                )
            self._lengths[node, destination] = found.pop()
        return self._lengths[node, destination]
