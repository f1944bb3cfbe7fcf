"""The pairs of ends that exchange messages, over TCP or RoCE, and their paths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.predict.engines.joint_programs import JointPrograms
from analysis.predict.engines.packet.choices import NextHopChoices
from analysis.predict.engines.packet.ports import FabricPorts
from analysis.predict.engines.paths import Paths
from analysis.predict.engines.wire import Ints
from simulation.columns import Column


@dataclass(frozen=True, slots=True)
class PairsOfEnds:
    """Ordered pairs, both ways of each: `carried`, `source` and `destination` by pair, in this
    order. `matrix` is their path matrix, `selector` the DSCP class selector of what is sent."""

    ends: Ints
    keys: Ints
    carried: Ints
    source: Ints
    destination: Ints
    matrix: Ints
    selector: Ints
    no_link: int
    rate_bps: Ints
    groups: tuple[str | None, ...]

    @classmethod
    def of(cls, paths: Paths, joint: JointPrograms, messages: Ints) -> PairsOfEnds:
        """The pairs of messages, whose three rows say whether they go over RoCE, from which end,
        and to which."""
        ends = joint.ends
        carried, source, destination = _parts(np.unique(_keys(messages, len(ends))), len(ends))
        back = np.stack([carried, destination, source])
        there = np.stack([carried, source, destination])
        keys = np.unique(_keys(np.concatenate([there, back], axis=1), len(ends)))
        carried, source, destination = _parts(keys, len(ends))
        groups = joint.groups(paths.setting)
        matrix = np.full((len(keys), 0), paths.links, dtype=np.int64)
        selector = np.zeros(len(keys), dtype=np.int64)
        for by_carrier in (False, True):
            mine = carried == by_carrier
            if not mine.any():
                continue
            found = paths.hashed(
                ends[source[mine]],
                ends[destination[mine]],
                by_carrier,
                [groups[first] for first in source[mine].tolist()],
            )
            more = max(0, found.shape[1] - matrix.shape[1])
            matrix = np.pad(matrix, ((0, 0), (0, more)), constant_values=paths.links)
            matrix[mine, : found.shape[1]] = found
            of_ends = np.array(joint.priorities(paths.setting, by_carrier), dtype=np.int64)
            selector[mine] = of_ends[source[mine]]
        return cls(
            ends,
            keys,
            carried,
            source,
            destination,
            matrix,
            selector,
            paths.links,
            np.array(paths.rate_bps, dtype=np.int64),
            tuple(groups[first] for first in source.tolist()),
        )

    @property
    def links(self) -> Ints:
        """The links of all pairs, one after the other."""
        found: Ints = self.matrix[self.matrix < self.no_link]
        return found

    @property
    def line_rates_bps(self) -> list[int]:
        """The rates of the devices of queue pairs, each once."""
        found: list[int] = np.unique(self._device_bps()).tolist()
        return found

    def numbers_of(self, messages: Ints) -> Ints:
        """The pair of each message (`of`)."""
        return np.searchsorted(self.keys, _keys(messages, len(self.ends)))

    def columns(self, fabric: FabricPorts, choices: NextHopChoices) -> dict[str, Column]:
        """As simulation/engine/README.md has them."""
        own_ends = self.ends[self.source], self.ends[self.destination]
        ways = choices.routes(self.matrix, *own_ends, self.carried, self.groups)
        reverse = self.numbers_of(np.stack([self.carried, self.destination, self.source]))
        one_way = fabric.one_way_ns(self.matrix)
        device = np.full(len(self.keys), -1, dtype=np.int64)
        completions = np.full(len(self.keys), -1, dtype=np.int64)
        own = self.carried == 1
        # A rank waits for the completions of each of its devices in a thread of its own.
        place = self.ends[self.source[own]] * self.no_link + self._first_links()
        queues, completions[own] = np.unique(place, return_inverse=True)
        device[own] = np.searchsorted(self.line_rates_bps, self._device_bps())
        return {
            "pair.source": self.source.astype(np.int32),
            "pair.destination": self.destination.astype(np.int32),
            "pair.reverse": reverse.astype(np.int32),
            "pair.base_ns": one_way + one_way[reverse],
            **ways,
            "pair.device": device.astype(np.int32),
            "pair.completions": completions.astype(np.int32),
            "pair.selector": self.selector.astype(np.int32),
            "completions": np.array([len(queues)], dtype=np.int64),
        }

    def _first_links(self) -> Ints:
        if not self.matrix.shape[1]:
            return np.zeros(0, dtype=np.int64)
        found: Ints = self.matrix[self.carried == 1, 0]
        return found

    def _device_bps(self) -> Ints:
        found: Ints = self.rate_bps[self._first_links()]
        return found


def _keys(messages: Ints, ends: int) -> Ints:
    carried, source, destination = messages
    found: Ints = (carried * ends + source) * ends + destination
    return found


def _parts(keys: Ints, ends: int) -> tuple[Ints, Ints, Ints]:
    """The carried, source and destination of keys."""
    rest, destination = np.divmod(keys, max(ends, 1))
    carried, source = np.divmod(rest, max(ends, 1))
    return carried, source, destination
