"""Sums of heads by the switches of the network: what CollNet hands to a SHARP plugin.

The heads of a part of the data, one on each server, are the leaves of a tree of switches. Each
switch adds up what comes from below; the root's sum comes down to all heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collectives.algorithms.channel_flow import SORTS, ChannelFlow, Item
from collectives.program import Blocks
from topologies.aggregation_tree import ROOT

_UP, _DOWN = range(2)


@dataclass(frozen=True, slots=True)
class HeadTree:
    """The tree of the heads of a part: the participant above each that is in it, the root's being
    `ROOT`. Participants are the ranks of a group and then its switches."""

    heads: tuple[int, ...]
    parents: tuple[tuple[int, int], ...]


class NetworkSums:
    """Writes what heads and switches do with chunks; `regions` has three regions of the flow, which
    switches use."""

    def __init__(
        self, flow: ChannelFlow, trees: Sequence[HeadTree], regions: tuple[int, int, int]
    ) -> None:
        self._flow = flow
        self._trees: Mapping[tuple[int, ...], Mapping[int, int]]
        self._trees = {tree.heads: dict(tree.parents) for tree in trees}
        self._regions = regions

    def exchange(self, sequence: int, item: Item, head: int, own: Blocks, result: Blocks) -> None:
        """A head's sum goes up, and the result is awaited: the plugin takes both buffers at once
        (iallreduce of ncclCollNet, src/transport/coll_net.cc)."""
        above = self._trees[item.heads][head]
        self._flow.receive(sequence, "network down", item, (above, head), result)
        self._flow.send(sequence, "network up", item, (head, above), own)

    def write(self, channel: int, items: Sequence[Item]) -> None:
        """All that the switches do in a channel: in one sequence they add up, in another they pass
        results on."""
        ranks = self._flow.builder.ranks
        in_trees = {one for tree in self._trees.values() for one in tree}
        for switch in sorted(one for one in in_trees if one >= ranks):
            mine = [item for item in items if switch in self._trees[item.heads]]
            self._add_up(SORTS * channel + _UP, mine, switch)
            self._pass_on(SORTS * channel + _DOWN, mine, switch)

    def _add_up(self, sequence: int, items: Sequence[Item], switch: int) -> None:
        flow = self._flow
        come, added, _ = self._regions
        for item, later in flow.in_advance(items):
            if later is not None:
                for place, below in enumerate(self._below(later, switch)):
                    ends, target = (below, switch), flow.aside(come, later)
                    flow.receive(sequence, "network up", later, ends, target, reduce=place > 0)
            if item is not None:
                ready = flow.aside(added, item)
                flow.builder.copy(switch, flow.aside(come, item), ready, sequence)
                above = self._trees[item.heads][switch]
                if above != ROOT:
                    flow.send(sequence, "network up", item, (switch, above), ready)

    def _pass_on(self, sequence: int, items: Sequence[Item], switch: int) -> None:
        flow = self._flow
        _, added, passed = self._regions
        for item, later in flow.in_advance(items):
            if later is not None:
                above = self._trees[later.heads][switch]
                if above != ROOT:
                    ends = above, switch
                    flow.receive(sequence, "network down", later, ends, flow.aside(passed, later))
            if item is not None:
                at_root = self._trees[item.heads][switch] == ROOT
                ready = flow.aside(added if at_root else passed, item)
                for below in self._below(item, switch):
                    flow.send(sequence, "network down", item, (switch, below), ready)

    def _below(self, item: Item, switch: int) -> list[int]:
        return [one for one, above in self._trees[item.heads].items() if above == switch]
