"""Paths of many rank pairs at once through a fabric, as directed links, and what they cost.

Directed link 2*i leads from end a to end b of link i, and 2*i + 1 back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from zlib import crc32

import numpy as np
import numpy.typing as npt

from analysis.predict.carrier import Carrier
from analysis.predict.engines.drawn_hops import (
    ChosenNextHop,
    HashedNextHop,
    HopChoice,
    SaidNextHop,
    first_next_hop,
    splitmix64,
)
from analysis.predict.engines.ports.small_queues import queued_segments
from analysis.predict.engines.wire import TCP_IP_BYTES, Floats, Ints
from analysis.predict.interface import PredictorError, Setting
from topologies.ethernet import full_frame_bytes
from topologies.routing.ecmp_hash import TCP, FiveTuple, flow_hop, flow_path, select
from topologies.routing.routes import NextHop
from topologies.routing.segments import outer_bytes
from topologies.spec.queue_section import Dctcp, QueueSpec, queue_of
from topologies.spec.routing_section import Source, Weighted

_U64 = (1 << 64) - 1
_LISTENS_AT = 29_500
"""The port of one end of a connection whose ports are not known."""
_DRAW_STEP = 0xD1B54A32D192ED03
"""Sets the seeds of draws apart: an odd constant, as splitmix64's own steps."""

_VALUE_STEP = 0x9FB21C651E98DF25
"""As much for entropy values."""


class Paths:
    """Routes of a setting, followed for many pairs of ranks at once.

    `rate_bps` and `delay_ns` are by directed link; a path matrix has one row per pair, filled up
    with the number `links`, which no link has. `outer_bytes` wrap each packet. `marked_from_bytes`
    is, by directed link, the backlog from which its port marks, where senders heed each mark
    (DCTCP).
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        fabric = setting.fabric
        self.links = 2 * len(fabric.links)
        self.rate_bps: Floats = np.repeat([float(link.rate_bps) for link in fabric.links], 2)
        self.delay_ns: Floats = np.repeat([float(link.delay_ns) for link in fabric.links], 2)
        self.marked_from_bytes = _marked_from_bytes(setting)
        self.mtu_bytes = min((link.mtu_bytes for link in fabric.links), default=1500)
        self.outer_bytes = outer_bytes(fabric)
        self._nodes = [node.name for node in fabric.nodes]
        self._index = {name: i for i, name in enumerate(self._nodes)}
        # Switches that aggregate are numbered after the ranks (collectives.in_network.node).
        self.ends = (*setting.hosts, *(node.name for node in fabric.routers))
        self._host_of_rank = np.array([self._index[name] for name in self.ends], dtype=np.int64)
        self._root = np.array([self._attachment(name) for name in self._nodes], dtype=np.int64)
        self._kernel_paths: dict[
            tuple[int, int, bool, str | None, int], tuple[int, ...] | None
        ] = {}
        self._buckets: dict[tuple[int, int], tuple[int, ...] | None] = {}
        self._weights: dict[tuple[int, int], tuple[int, ...]] = {}
        # By node * nodes + goal: the number of the equal-cost set, -1 where not asked for yet.
        self._options = np.full(len(self._nodes) ** 2, -1, dtype=np.int32)
        self._option_count: list[int] = []
        self._option_first: list[int] = []
        self._option_links: list[int] = []
        self._option_nodes: list[int] = []
        nothing = np.zeros(0, dtype=np.int64)
        self._known = _Options(nothing, nothing, nothing, nothing)

    def queued_segments(self) -> list[int]:
        """By directed link: full segments that a connection over it has in its host's port, at
        most."""
        segment_bytes = self.mtu_bytes - TCP_IP_BYTES - self.outer_bytes
        return [
            queued_segments(segment_bytes, rate_bps / 8e9, marked)
            for rate_bps, marked in zip(self.rate_bps.tolist(), self.marked_from_bytes, strict=True)
        ]

    def segment_bytes(self, paths: Ints) -> Ints:
        """The most payload of a TCP segment on each path of a path matrix: what the links' MTUs
        leave it. Within a host it is that of the fabric's smallest MTU."""
        mtu_bytes = np.repeat([link.mtu_bytes for link in self.setting.fabric.links], 2)
        of_links = np.append(mtu_bytes, np.iinfo(np.int64).max)[paths]
        smallest = of_links.min(axis=1, initial=np.iinfo(np.int64).max)
        inside = (paths < self.links).sum(axis=1) == 0
        # A host's routes to all others have the fabric's smallest MTU where packets are wrapped.
        alike = inside | (self.outer_bytes > 0)
        found: Ints = np.where(alike, self.mtu_bytes, smallest) - TCP_IP_BYTES - self.outer_bytes
        return found

    def _attachment(self, name: str) -> int:
        """All hosts with one link to the same switch are reached alike from anywhere else."""
        links = self.setting.fabric.links_of[name]
        node = self.setting.fabric.by_name[name]
        if node.forwards or len(links) != 1 or links[0].index in self.setting.routes.down:
            return self._index[name]
        return self._index[links[0].other(name).node]

    def places(self, ranks: Ints) -> Ints:
        """The places of ranks' hosts among the fabric's nodes."""
        found: Ints = self._host_of_rank[ranks]
        return found

    def first_links(self, ranks: Ints) -> Ints:
        """The links by which the first ports of ranks' hosts send, or those of switches."""
        fabric = self.setting.fabric
        first = [
            2 * links[0].index + (links[0].a.node != name)
            if (links := fabric.links_of[name])
            else 0
            for name in self._nodes
        ]
        found: Ints = np.array(first, dtype=np.int64)[self._host_of_rank[ranks]]
        return found

    def place(self, node: str) -> int:
        """The place of a node among the fabric's."""
        return self._index[node]

    def follow(
        self, source: npt.ArrayLike, destination: npt.ArrayLike, choice: HopChoice = first_next_hop
    ) -> Ints:
        """Path matrix of pairs of ranks. Raises PredictorError when a pair has no route."""
        at = self._host_of_rank[np.asarray(source, dtype=np.int64)]
        to = self._host_of_rank[np.asarray(destination, dtype=np.int64)]
        origin = at.copy()
        columns: list[Ints] = []
        moving = np.flatnonzero(at != to)
        while len(moving):
            if len(columns) > len(self._nodes):
                raise PredictorError("the routes loop")
            node, goal = at[moving], to[moving]
            option = self._option_of(node, goal)
            options = self._options_known()
            count = options.count[option]
            if not count.all():
                first = int(np.flatnonzero(count == 0)[0])
                names = (self._nodes[int(each[first])] for each in (node, goal))
                raise PredictorError("no route from {} to {}".format(*names))
            pick = choice(node, origin[moving], goal, count)
            entry = options.first[option] + pick
            column = np.full(len(at), self.links, dtype=np.int64)
            column[moving] = options.link[entry]
            columns.append(column)
            at[moving] = options.node[entry]
            moving = moving[at[moving] != to[moving]]
        if not columns:
            return np.zeros((len(at), 0), dtype=np.int64)
        return np.stack(columns, axis=1)

    def hashed(
        self,
        source: npt.ArrayLike,
        destination: npt.ArrayLike,
        carried: bool = False,
        groups: Sequence[str | None] = (),
        value: int = 0,
    ) -> Ints:
        """Path matrix of pairs of ranks as ECMP routers hash them, of a carrier's packets of one
        of its entropy values.

        As the kernel does for pairs whose ports the setting knows, drawn by its seed for others.
        The packets are TCP's or, `carried`, those of the carrier. Connections and its ends are
        those of all ranks or, where `groups` has a name for a pair, those of that group.
        """
        source, destination = np.asarray(source), np.asarray(destination)
        if not any(groups):
            return self._hashed(source, destination, carried, None, value)
        own = np.array([group or "" for group in groups])
        rows = np.full((len(source), 0), self.links, dtype=np.int64)
        for group in dict.fromkeys(groups):
            of_group = own == (group or "")
            found = self._hashed(source[of_group], destination[of_group], carried, group, value)
            more = max(0, found.shape[1] - rows.shape[1])
            rows = np.pad(rows, ((0, 0), (0, more)), constant_values=self.links)
            rows[of_group, : found.shape[1]] = found
        return rows

    def _hashed(
        self, source: Ints, destination: Ints, carried: bool, group: str | None, value: int
    ) -> Ints:
        drawn = self.follow(source, destination, self._drawn(group, value))
        if not self._known_ports(carried, group):
            return drawn
        for row, pair in enumerate(zip(source.tolist(), destination.tolist(), strict=True)):
            known = self._kernel_path(*pair, carried, group, value)
            if known is not None:
                drawn[row] = known + (self.links,) * (drawn.shape[1] - len(known))
        return drawn

    def _drawn(self, group: str | None, value: int) -> HopChoice:
        """The next hops of flows whose ports are not known."""
        seed = self.setting.seed if group is None else self.setting.seed ^ crc32(group.encode())
        seed ^= self.setting.draw * _DRAW_STEP & _U64
        if isinstance(self.setting.fabric.choice, Source):
            return SaidNextHop(seed, value, self._strides)
        seed = (seed ^ value * _VALUE_STEP) & _U64
        if self.setting.routes.groups is not None:
            return ChosenNextHop(seed, self._by_buckets)
        if isinstance(self.setting.fabric.choice, Weighted):
            return ChosenNextHop(seed, self._by_weights)
        return HashedNextHop(seed)

    def _by_weights(self, node: int, goal: int, drawn: int) -> int | None:
        """As the kernel's thresholds give each next hop its share (`ecmp_hash.select`)."""
        weights = self._weights_of(node, goal)
        return select(drawn >> 33, weights) if min(weights) < max(weights) else None

    def _by_buckets(self, node: int, goal: int, drawn: int) -> int | None:
        """The next hop that a bucket of a resilient group names."""
        buckets = self._hops_of_buckets(node, goal)
        return None if buckets is None else buckets[drawn % len(buckets)]

    def _weights_of(self, node: int, goal: int) -> tuple[int, ...]:
        """The weights of a node's next hops for a host."""
        key = node, goal
        if key not in self._weights:
            self._weights[key] = self.setting.routes.weights(self._nodes[node], self._nodes[goal])
        return self._weights[key]

    def _hops_of_buckets(self, node: int, goal: int) -> tuple[int, ...] | None:
        """The place among a node's next hops that each of its buckets for a host names."""
        key = node, goal
        if key not in self._buckets:
            groups, at, to = self.setting.routes.groups, self._nodes[node], self._nodes[goal]
            buckets = None if groups is None else groups.towards(at, to)
            if buckets is not None:
                hops = self.setting.routes.next_hops(at, to)
                places = {hop.link: place for place, hop in enumerate(hops)}
                buckets = tuple(places[link] for link in buckets)
            self._buckets[key] = buckets
        return self._buckets[key]

    def onward(
        self,
        source: Ints,
        destination: Ints,
        node: Ints,
        carried: bool,
        group: str | None,
        value: int,
    ) -> tuple[Ints, Ints]:
        """Where packets of pairs of ranks (`hashed`) go on from nodes, which are given by their
        place in the fabric: the directed links, `links` where nothing leads on, and the nodes to
        which these lead."""
        at, to = self._host_of_rank[source], self._host_of_rank[destination]
        option = self._option_of(node, to)
        options = self._options_known()
        count = options.count[option]
        pick = self._drawn(group, value)(node, at, to, np.maximum(count, 1))
        link = np.full(len(node), self.links, dtype=np.int64)
        behind = np.full(len(node), -1, dtype=np.int64)
        leads = count > 0
        entry = (options.first[option] + pick)[leads]
        link[leads], behind[leads] = options.link[entry], options.node[entry]
        if self._known_ports(carried, group):
            for row in np.flatnonzero(count > 1).tolist():
                pair = int(source[row]), int(destination[row])
                flow = self._flow(pair, carried, group, value)
                if flow is None:
                    continue
                here, first, last = (self._nodes[int(each[row])] for each in (node, at, to))
                hop = flow_hop(self.setting.routes, here, first, last, flow, self.setting.seed)
                assert hop is not None, "it has several"
                link[row], behind[row] = self._directed(hop, here), self._index[hop.node]
        return link, behind

    def _directed(self, hop: NextHop, node: str) -> int:
        return 2 * hop.link + (self.setting.fabric.links[hop.link].a.node != node)

    @cached_property
    def _strides(self) -> Ints:
        """By node, the stride of its digit, where packets say their paths."""
        strides = self.setting.routes.strides
        layers = [self.setting.fabric.by_name[name].layer for name in self._nodes]
        return np.array([strides.get(layer, 1) for layer in layers], dtype=np.int64)

    def flow_keys(
        self,
        source: npt.ArrayLike,
        destination: npt.ArrayLike,
        carried: npt.ArrayLike,
        groups: Sequence[str | None],
    ) -> npt.NDArray[np.uint64]:
        """The keys by which switches know the flows of pairs of ranks (`gwroute_flow_key` of
        emulator/kernel/gwroute.h): of their ports where the setting knows these, else of drawn
        ones."""
        at, to = np.asarray(source), np.asarray(destination)
        ours = np.asarray(carried, dtype=bool).tolist()
        by_name = self.setting.fabric.by_name
        address = np.array([int(by_name[end].address) for end in self.ends], dtype=np.uint64)
        ports: list[int] = []
        for i, pair in enumerate(zip(at.tolist(), to.tolist(), strict=True)):
            found = self.ports_of(pair, ours[i], groups[i])
            if found is None:
                name = f"{self.setting.seed}/{self.setting.draw}/{min(pair)}/{max(pair)}"
                further = (groups[i] or "").partition("#")[2]  # `connection_key`
                drawn = crc32((f"{name}#{further}" if further else name).encode()) & 0xFFFF
                port = self._carrier.port if ours[i] else _LISTENS_AT
                found = (drawn, port) if ours[i] or pair[0] < pair[1] else (port, drawn)
            ports.append(found[0] << 16 | found[1])
        own = self._carrier.protocol if any(ours) else TCP
        protocol = np.where(ours, own, TCP).astype(np.uint64)
        ends = splitmix64(address[at] << np.uint64(32) | address[to])
        return splitmix64(ends ^ (np.array(ports, dtype=np.uint64) << np.uint64(8) | protocol))

    def ports_of(
        self, pair: tuple[int, int], carried: bool, group: str | None
    ) -> tuple[int, int] | None:
        """From which port to which the first of a pair of ranks sends to the second; None where
        the setting does not know it."""
        if not self._known_ports(carried, group):
            return None
        return self._ports_of(pair, carried, group)

    def _known_ports(self, carried: bool, group: str | None) -> Mapping[tuple[int, int], object]:
        if carried and group is not None:
            return self.setting.group_carrier_ports.get(group, {})
        if carried:
            return self.setting.carrier_ports
        return self.setting.ports if group is None else self.setting.group_ports.get(group, {})

    def _kernel_path(
        self, source: int, destination: int, carried: bool, group: str | None, value: int
    ) -> tuple[int, ...] | None:
        """Directed links of a connection whose ports are known; None for others."""
        key = (source, destination, carried, group, value)
        if key not in self._kernel_paths:
            flow = self._flow((source, destination), carried, group, value)
            self._kernel_paths[key] = None if flow is None else self._hash(key[:2], flow)
        return self._kernel_paths[key]

    def _flow(
        self, pair: tuple[int, int], carried: bool, group: str | None, value: int
    ) -> FiveTuple | None:
        """The flow of what the first of a pair of ranks sends to the second; None where the setting
        does not know its ports, or switches do not choose by them."""
        ports = self._ports_of(pair, carried, group)
        if ports is None or not self.setting.fabric.choice.by_headers:
            return None
        if carried:
            ports = (self._carrier.port_of(ports[0], value), ports[1])
        by_name = self.setting.fabric.by_name
        first, last = (by_name[self.ends[rank]].address for rank in pair)
        return FiveTuple(first, last, *ports, self._carrier.protocol if carried else TCP)

    def _ports_of(
        self, pair: tuple[int, int], carried: bool, group: str | None
    ) -> tuple[int, int] | None:
        """From which port to which the first of a pair of ranks sends to the second."""
        lower_first = (min(pair), max(pair))
        if carried:
            of_pairs = self.setting.carrier_ports
            if group is not None:
                of_pairs = self.setting.group_carrier_ports[group]
            port = of_pairs.get(lower_first)
            return None if port is None else (port, self._carrier.port)
        known = self.setting.ports if group is None else self.setting.group_ports[group]
        ports = known.get(lower_first)
        return ports if ports is None or pair == lower_first else ports[::-1]

    @property
    def _carrier(self) -> Carrier:
        carrier = self.setting.transport.carrier
        assert carrier is not None, "messages are carried"
        return carrier

    def _hash(self, pair: tuple[int, int], flow: FiveTuple) -> tuple[int, ...]:
        setting = self.setting
        node, last = (setting.hosts[rank] for rank in pair)
        links = []
        for hop in flow_path(setting.routes, node, last, flow, setting.seed):
            links.append(self._directed(hop, node))
            node = hop.node
        return tuple(links)

    def _option_of(self, node: Ints, goal: Ints) -> Ints:
        """Number of the equal-cost set of each (node, goal), asking the routes once for each."""
        target = np.where(node == self._root[goal], goal, self._root[goal])
        if self.setting.routes.mode == "static":
            target = goal.copy()  # which of equal ways is taken depends on the host
        # A host with one link has no choice, whatever the goal.
        target = np.where(self._root[node] != node, node, target)
        keys = node * len(self._nodes) + target
        unknown = np.flatnonzero(self._options[keys] < 0)
        distinct, first = np.unique(keys[unknown], return_index=True)
        for key, row in zip(distinct.tolist(), unknown[first].tolist(), strict=True):
            self._options[key] = self._ask(int(node[row]), int(goal[row]))
        found: Ints = self._options[keys].astype(np.int64)
        return found

    def _options_known(self) -> _Options:
        if len(self._known.count) < len(self._option_count):
            self._known = _Options(
                np.array(self._option_count, dtype=np.int64),
                np.array(self._option_first, dtype=np.int64),
                np.array(self._option_links, dtype=np.int64),
                np.array(self._option_nodes, dtype=np.int64),
            )
        return self._known

    def _ask(self, node: int, goal: int) -> int:
        hops = self.next_links(self._nodes[node], self._nodes[goal])
        self._option_first.append(len(self._option_links))
        self._option_count.append(len(hops))
        for link, behind in hops:
            self._option_links.append(link)
            self._option_nodes.append(self._index[behind])
        return len(self._option_count) - 1

    def next_links(self, node: str, goal: str) -> list[tuple[int, str]]:
        """The directed links over which a node may send what is for another one, by its tables, and
        the nodes behind them. A host with one link sends everything over it."""
        fabric, routes = self.setting.fabric, self.setting.routes
        has_one = len(fabric.links_of[node]) == 1 and not fabric.by_name[node].forwards
        hops = routes.neighbours(node) if has_one else routes.next_hops(node, goal)
        return [(self._directed(hop, node), hop.node) for hop in hops]

    def costs(self, source: npt.ArrayLike, destination: npt.ArrayLike) -> PathCosts:
        """The costs of the paths of pairs of ranks, by the first of equal-cost paths."""
        return self.costs_of(self.follow(source, destination))

    def costs_of(self, paths: Ints) -> PathCosts:
        """The costs of the paths of a path matrix."""
        ns_per_byte = np.append(8e9 / self.rate_bps, 0.0)[paths]
        return PathCosts(
            hops=(paths < self.links).sum(axis=1),
            propagation_ns=np.append(self.delay_ns, 0.0)[paths].sum(axis=1),
            ns_per_byte=ns_per_byte.max(axis=1, initial=0.0),
            sum_ns_per_byte=ns_per_byte.sum(axis=1),
            full_frame_bytes=full_frame_bytes(self.mtu_bytes),
        )


@dataclass(frozen=True, slots=True)
class _Options:
    """Equal-cost sets: how many next hops each has, and where they begin among all next hops."""

    count: Ints
    first: Ints
    link: Ints
    node: Ints


@lru_cache(maxsize=16)
def paths_of(setting: Setting) -> Paths:
    """The paths of a setting, shared by all predictors that ask for it."""
    return Paths(setting)


@dataclass(frozen=True)
class PathCosts:
    """The costs of paths for their messages, in nanoseconds, by pair; store and forward at every
    hop.

    `ns_per_byte` is that of the slowest link and `sum_ns_per_byte` the sum over all of them: the
    first frame is serialised on every link, the rest of the message follows at the slowest's pace.
    """

    hops: Ints
    propagation_ns: Floats
    ns_per_byte: Floats
    sum_ns_per_byte: Floats
    full_frame_bytes: int

    def tail_ns(self, wire_bytes: npt.ArrayLike) -> Floats:
        """From the last bit's leaving the slowest link, had it been the only one, to its
        arrival.
        """
        first = np.minimum(float(self.full_frame_bytes), np.asarray(wire_bytes, dtype=np.float64))
        found: Floats = self.propagation_ns + first * (self.sum_ns_per_byte - self.ns_per_byte)
        return found

    def latency_ns(self, wire_bytes: npt.ArrayLike) -> Floats:
        """First bit out to last bit in, on idle paths."""
        wire = np.asarray(wire_bytes, dtype=np.float64)
        found: Floats = self.tail_ns(wire) + wire * self.ns_per_byte
        return found


def _marked_from_bytes(setting: Setting) -> list[int | None]:
    if setting.transport.congestion_control != "dctcp":
        return [None] * (2 * len(setting.fabric.links))
    ports = (port for link in setting.fabric.links for port in (link.a, link.b))
    used = {priority for ranks in setting.priorities for priority in ranks} or {0}
    used |= {*setting.group_priorities.values()}
    return [_threshold(port.queue, used) for port in ports]


def _threshold(queue: QueueSpec, priorities: Iterable[int]) -> int | None:
    """From where on the classes in use mark; None where they differ."""
    queues = (queue_of(queue, priority) for priority in priorities)
    found = {each.k_bytes if isinstance(each, Dctcp) else None for each in queues}
    return found.pop() if len(found) == 1 else None
