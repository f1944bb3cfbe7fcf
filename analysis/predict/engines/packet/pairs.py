"""The pairs of ends that exchange messages, over TCP or RoCE or as copies, and their paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.predict.engines.copied import copy_columns
from analysis.predict.engines.joint_programs import JointPrograms
from analysis.predict.engines.packet.choices import NextHopChoices
from analysis.predict.engines.packet.ports import FabricPorts
from analysis.predict.engines.paths import Paths
from analysis.predict.engines.wire import Ints
from analysis.predict.interface import PredictorError, Setting
from simulation.columns import Column

OVER_TCP, BY_CARRIER, AS_COPIES = range(3)
"""How the messages of a pair go."""

_MICROSECOND_NS = 1000


@dataclass(frozen=True, slots=True)
class PairsOfEnds:
    """Ordered pairs, both ways of each: how they are `carried`, `source` and `destination` by pair,
    in this order. `matrix` is their path matrix, `selector` the DSCP class selector of what is
    sent. `own_link` is the link of the first port of each one's host, whose device has what does
    not leave it. `by_value` has the path matrix of each entropy value, none where queue pairs have
    one path."""

    ends: Ints
    keys: Ints
    carried: Ints
    source: Ints
    destination: Ints
    matrix: Ints
    selector: Ints
    no_link: int
    own_link: Ints
    rate_bps: Ints
    groups: tuple[str | None, ...]
    by_value: tuple[Ints, ...]

    @classmethod
    def of(cls, paths: Paths, joint: JointPrograms, messages: Ints) -> PairsOfEnds:
        """The pairs of messages, whose three rows say how they go, from which end, and to
        which."""
        ends = joint.ends
        carried, source, destination = _parts(np.unique(_keys(messages, len(ends))), len(ends))
        back = np.stack([carried, destination, source])
        there = np.stack([carried, source, destination])
        keys = np.unique(_keys(np.concatenate([there, back], axis=1), len(ends)))
        carried, source, destination = _parts(keys, len(ends))
        groups = joint.groups(paths.setting)
        matrix = np.full((len(keys), 0), paths.links, dtype=np.int64)
        selector = np.zeros(len(keys), dtype=np.int64)
        values: list[Ints] = []
        for how in (OVER_TCP, BY_CARRIER, AS_COPIES):
            mine, by_carrier = carried == how, how == BY_CARRIER
            if not mine.any():
                continue
            carrier = paths.setting.transport.carrier if by_carrier else None
            many = 1 if carrier is None else carrier.values
            told = [groups[first] for first in source[mine].tolist()]
            own = ends[source[mine]], ends[destination[mine]]
            found = [paths.hashed(*own, by_carrier, told, value) for value in range(many)]
            longest = max(each.shape[1] for each in found)
            more = max(0, longest - matrix.shape[1])
            matrix = np.pad(matrix, ((0, 0), (0, more)), constant_values=paths.links)
            matrix[mine, : found[0].shape[1]] = found[0]
            if many > 1:
                values = [_rows_of(matrix, mine, each, paths.links) for each in found]
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
            paths.first_links(ends[source]),
            np.array(paths.rate_bps, dtype=np.int64),
            tuple(groups[first] for first in source.tolist()),
            tuple(values),
        )

    @property
    def by_carrier(self) -> Ints:
        """Whether each pair is one of the carrier's ends."""
        found: Ints = (self.carried == BY_CARRIER).astype(np.int64)
        return found

    @property
    def links(self) -> Ints:
        """The links of all pairs, one after the other."""
        found: Ints = np.concatenate(
            [rows[rows < self.no_link] for rows in (self.matrix, *self.by_value)]
        )
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
        ways = choices.routes(self.matrix, *own_ends, self.by_carrier, self.groups)
        reverse = self.numbers_of(np.stack([self.carried, self.destination, self.source]))
        one_way = fabric.one_way_ns(self.matrix)
        segments = fabric.paths.segment_bytes(self.matrix)
        device = np.full(len(self.keys), -1, dtype=np.int64)
        completions = np.full(len(self.keys), -1, dtype=np.int64)
        own = self.carried == BY_CARRIER
        # A rank waits for the completions of each of its devices in a thread of its own.
        place = self.ends[self.source[own]] * self.no_link + self._first_links()
        queues, completions[own] = np.unique(place, return_inverse=True)
        device[own] = np.searchsorted(self.line_rates_bps, self._device_bps())
        return {
            "pair.source": self.source.astype(np.int32),
            "pair.destination": self.destination.astype(np.int32),
            "pair.reverse": reverse.astype(np.int32),
            "pair.base_ns": one_way
            + one_way[reverse]
            + _phases(fabric.paths.setting, len(reverse)),
            **ways,
            "pair.device": device.astype(np.int32),
            "pair.completions": completions.astype(np.int32),
            "pair.selector": self.selector.astype(np.int32),
            "pair.mss": np.minimum(segments, segments[reverse]).astype(np.int32),
            "completions": np.array([len(queues)], dtype=np.int64),
            **self._handshakes(fabric.paths.setting),
            **self._values(),
            **copy_columns(fabric.paths.setting, *own_ends, self.carried == AS_COPIES),
        }

    def _handshakes(self, setting: Setting) -> dict[str, Column]:
        """The round trips that ends measured when they connected."""
        if not setting.handshakes_us and not setting.group_handshakes_us:
            return {}
        by_group = dict[str | None, Mapping[tuple[int, int], tuple[int, int]]]()
        by_group[None] = setting.handshakes_us
        for group, found in setting.group_handshakes_us.items():
            by_group[group] = found
        ranks = zip(
            self.ends[self.source].tolist(), self.ends[self.destination].tolist(), strict=True
        )
        unknown = -1, -1
        rows = [
            unknown if carried else by_group.get(group, {}).get(ends, unknown)
            for ends, group, carried in zip(ranks, self.groups, self.carried.tolist(), strict=True)
        ]
        return {"pair.handshakes": np.array(rows, dtype=np.int64).reshape(-1)}

    def _values(self) -> dict[str, Column]:
        """The routes of entropy values, those of a pair one after the other. Raises PredictorError
        where the ways between two hosts differ in length."""
        none = np.zeros(0, dtype=np.int64)
        if not self.by_value:
            return {"value.links": none.astype(np.int32), "value.first_link": none}
        rows = np.stack(self.by_value, axis=1)
        lengths = (rows < self.no_link).sum(axis=2)
        if (lengths != lengths[:, :1]).any():
            raise PredictorError("the ways between two hosts have not all the same length")
        return {
            "value.links": rows[rows < self.no_link].astype(np.int32),
            "value.first_link": np.cumsum([0, *lengths.reshape(-1)], dtype=np.int64),
        }

    def _first_links(self) -> Ints:
        """By pair of the carrier's ends: the link of the sending one's device."""
        own = self.carried == BY_CARRIER
        found: Ints = self.own_link[own]
        if self.matrix.shape[1]:
            first = self.matrix[own, 0]
            found = np.where(first < self.no_link, first, found)
        return found

    def _device_bps(self) -> Ints:
        found: Ints = self.rate_bps[self._first_links()]
        return found


def _phases(setting: Setting, pairs: int) -> Ints:
    """By how much each end finds its handshake's round trip longer than it is: Linux counts it in
    whole microseconds, by when in one of them it begins, which a draw draws. Without draws the
    engine rounds it."""
    if not setting.draw:
        return np.zeros(pairs, dtype=np.int64)
    drawn = np.random.default_rng([setting.seed, setting.draw])
    return drawn.integers(0, _MICROSECOND_NS, pairs) - _MICROSECOND_NS // 2


def _rows_of(matrix: Ints, mine: npt.NDArray[np.bool_], found: Ints, no_link: int) -> Ints:
    """A matrix of as many rows, in which those that are mine are what was found."""
    rows: Ints = np.full_like(matrix, no_link)
    rows[mine, : found.shape[1]] = found
    return rows


def _keys(messages: Ints, ends: int) -> Ints:
    carried, source, destination = messages
    found: Ints = (carried * ends + source) * ends + destination
    return found


def _parts(keys: Ints, ends: int) -> tuple[Ints, Ints, Ints]:
    """The carried, source and destination of keys."""
    rest, destination = np.divmod(keys, max(ends, 1))
    carried, source = np.divmod(rest, max(ends, 1))
    return carried, source, destination
