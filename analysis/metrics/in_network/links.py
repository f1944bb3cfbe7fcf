"""The savings by switches that compute: bytes on links, beside those of an algorithm of hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.predict.engines.paths import Paths
from analysis.predict.engines.wire import Ints
from analysis.predict.setting import setting_of
from analysis.runs.collectives import MeasuredCollective, collectives_of, section_of_record
from analysis.runs.run import Run
from collectives.algorithms.base import DoesNotFit
from collectives.kinds import Kind
from collectives.schedule.schedule import Schedule
from collectives.settings import schedule_of, settings_of
from topologies.fabrics.fabric import Link

_HOSTS: Mapping[Kind, str] = {
    Kind.ALL_REDUCE: "ring",
    Kind.REDUCE_SCATTER: "ring",
    Kind.ALL_GATHER: "ring",
    Kind.BROADCAST: "tree",
    Kind.REDUCE: "tree",
}
"""The algorithms of hosts that are beside: those that send least over a host's link."""


@dataclass(frozen=True)
class TreeLink:
    """A link of the aggregation tree: what its collectives sent over it, up and down, in payload,
    and what an algorithm of hosts would have sent over it in their place."""

    link: Link
    child: str
    parent: str
    up_bytes: int
    down_bytes: int
    by_hosts_up_bytes: int
    by_hosts_down_bytes: int


def tree_links(run: Run) -> tuple[TreeLink, ...]:
    """The links of a run's aggregation trees, in order; empty where switches took no part."""
    collectives = [c for c in collectives_of(run) if c.schedule.aggregators]
    if not collectives:
        return ()
    paths = Paths(setting_of(run))
    mine = np.zeros(paths.links, dtype=np.int64)
    hosts = np.zeros(paths.links, dtype=np.int64)
    for collective in collectives:
        _add(mine, paths, collective.ranks, collective.schedule)
        instead = _by_hosts(run, collective)
        if instead is not None:
            _add(hosts, paths, collective.ranks, instead)
    groups = {tuple(collective.ranks): collective for collective in collectives}
    return tuple(_links(run, groups, mine, hosts))


def _by_hosts(run: Run, collective: MeasuredCollective) -> Schedule | None:
    settings = settings_of(run.spec)
    try:
        entry = {"algorithm": _HOSTS[Kind(collective.kind)]}
        return schedule_of(settings, collective.shape, entry, collective.ranks)
    except DoesNotFit:
        return None


def _add(carried: Ints, paths: Paths, ranks: Sequence[int], schedule: Schedule) -> None:
    """Add the payload of a schedule's messages to the directed links that they take."""
    numbers = schedule.participants(ranks)
    sizes: dict[tuple[int, int], int] = {}
    for message in schedule.numbered_messages():
        pair = numbers[message.source], numbers[message.destination]
        sizes[pair] = sizes.get(pair, 0) + message.size_bytes
    ends = np.array(list(sizes), dtype=np.int64)
    ways = paths.hashed(ends[:, 0], ends[:, 1])
    each = np.broadcast_to(np.array(list(sizes.values()))[:, None], ways.shape)
    on = ways < paths.links
    np.add.at(carried, ways[on], each[on])


def _links(
    run: Run, groups: Mapping[tuple[int, ...], MeasuredCollective], mine: Ints, hosts: Ints
) -> Iterator[TreeLink]:
    """The links of the trees of these groups, each with a collective, from the child that it has
    first."""
    pairs: dict[tuple[str, str], None] = {}
    for members, collective in groups.items():
        record = next(iter(collective.by_rank.values()))
        of_run = section_of_record(run, record).aggregation
        assert of_run is not None, "switches took part"
        for tree in of_run.of(members):
            names = (*(run.hosts[rank] for rank in members), *tree.switches)
            for child, parent in tree.edges:
                if (names[parent], names[child]) not in pairs:
                    pairs[names[child], names[parent]] = None
    for link in run.fabric.links:
        for here, there in ((link.a, link.b), (link.b, link.a)):
            # The first one of parallel links is the tree's.
            if (here.node, there.node) in pairs:
                del pairs[here.node, there.node]
                up = 2 * link.index + (here is link.b)
                down = 2 * link.index + (here is link.a)
                sent = [int(of[way]) for of in (mine, hosts) for way in (up, down)]
                yield TreeLink(link, here.node, there.node, *sent)
