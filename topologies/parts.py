"""Balanced division: parts that cannot be divided themselves go to kernels, few links cut.

A packet costs the hosts that send and receive it (ranks, sockets, TCP, copies) about five times
what it costs a switch that forwards it. Measured in one kernel, 16 ranks with all-reduces and
all-to-alls of 8 MB, MTU 9000: 7.2 s of CPU on a star, 9.5 s on a fat-tree (k=4), where twice as
many switches more forward each packet: 47 and 9 us. With MTU 1500 and 3 MB it is four times, and
handing a packet over to another kernel was too little to be told from the machine's other load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from topologies.fabric import Fabric, NodeKind
from topologies.traffic import PACKET, uniform_traffic

_SENT_AND_RECEIVED = 20
_FORWARDED = 4
_HANDED_OVER = 1  # by each of the two kernels


@dataclass(frozen=True)
class Parts:
    """Nodes glued together, in order of their first nodes. `cost` is what a part costs its kernel,
    `between` what handing over costs each of two kernels: part -> neighbour -> cost."""

    members: tuple[tuple[str, ...], ...]
    cost: tuple[int, ...]
    has_host: tuple[bool, ...]
    between: tuple[dict[int, int], ...]

    def by_node(self, kernel_of: Sequence[int]) -> dict[str, int]:
        """Node name -> kernel, from the kernel of each part."""
        return {
            name: kernel
            for names, kernel in zip(self.members, kernel_of, strict=True)
            for name in names
        }

    @cached_property
    def rows(self) -> list[int]:
        """The parts with hosts, in order."""
        return [part for part, has_host in enumerate(self.has_host) if has_host]

    @cached_property
    def free(self) -> list[int]:
        """The parts without hosts, those nearest to hosts first."""
        steps = dict.fromkeys(self.rows, 0)
        pending = list(self.rows)
        for part in pending:
            for other in self.between[part]:
                if other not in steps:
                    steps[other] = steps[part] + 1
                    pending.append(other)
        free = [part for part, has_host in enumerate(self.has_host) if not has_host]
        return sorted(free, key=lambda part: (steps.get(part, len(steps)), part))


def glued(fabric: Fabric, hosts: Collection[str], least_delay_ns: int) -> Parts:
    """The parts of a fabric when links with a delay below `least_delay_ns` are not cut; `hosts`
    are those that work."""
    leader = {node.name: node.name for node in fabric.nodes}

    def first(name: str) -> str:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    order = {node.name: i for i, node in enumerate(fabric.nodes)}
    for link in fabric.links:
        if link.delay_ns < least_delay_ns:
            one, other = sorted((first(link.a.node), first(link.b.node)), key=order.__getitem__)
            leader[other] = one
    members: dict[str, list[str]] = {}
    for node in fabric.nodes:
        members.setdefault(first(node.name), []).append(node.name)
    number = {name: i for i, names in enumerate(members.values()) for name in names}
    traffic = uniform_traffic(fabric, hosts)
    between: list[dict[int, int]] = [{} for _ in members]
    for link in fabric.links:
        a, b = number[link.a.node], number[link.b.node]
        if a != b:
            handed_over = _HANDED_OVER * traffic.carried[link.index]
            between[a][b] = between[a].get(b, 0) + handed_over
            between[b][a] = between[b].get(a, 0) + handed_over

    def cost(name: str) -> int:
        own = _SENT_AND_RECEIVED * PACKET if name in hosts else 0
        return own + _FORWARDED * traffic.forwarded[name]

    kinds = {node.name: node.kind for node in fabric.nodes}
    return Parts(
        members=tuple(tuple(names) for names in members.values()),
        cost=tuple(sum(map(cost, names)) for names in members.values()),
        has_host=tuple(
            any(kinds[name] is NodeKind.HOST for name in names) for names in members.values()
        ),
        between=tuple(between),
    )


def divide_parts(parts: Parts, kernels: int) -> tuple[tuple[int, ...], int]:
    """The kernel of each part, and the load of the busiest kernel.

    Parts with hosts are divided into rows of neighbours, of which the ends are moved, by less and
    less, for as long as that lowers the load of the busiest kernel (then of the next). The others
    go where their neighbours are when these are all in one kernel, else where the load is least.
    """
    rows = parts.rows
    ends = _even_ends([parts.cost[part] for part in rows], kernels)
    best = _placed(parts, kernels, ends)
    step = max(1, len(rows) // 2)
    while step:
        moved = False
        for at in range(kernels - 1):
            for end in (ends[at] - step, ends[at] + step):
                low = ends[at - 1] if at else 0
                high = ends[at + 1] if at + 1 < kernels - 1 else len(rows)
                if not low <= end <= high:
                    continue
                tried = [*ends[:at], end, *ends[at + 1 :]]
                placed = _placed(parts, kernels, tried)
                if placed.key() < best.key():
                    ends, best, moved = tried, placed, True
        if not moved:
            step //= 2
    best.fill()
    best.polish()
    return tuple(best.kernel_of[part] for part in range(len(parts.cost))), max(best.loads)


def _even_ends(costs: list[int], kernels: int) -> list[int]:
    """Where all rows but the last end when each costs about as much."""
    total, done, at = sum(costs), 0, 0
    ends = []
    for kernel in range(1, kernels):
        while at < len(costs) and (done + costs[at] / 2) * kernels < total * kernel:
            done += costs[at]
            at += 1
        ends.append(at)
    return ends


def _placed(parts: Parts, kernels: int, ends: list[int]) -> _Placement:
    placement = _Placement(parts, kernels)
    kernel = 0
    for at, part in enumerate(parts.rows):
        while kernel < kernels - 1 and at >= ends[kernel]:
            kernel += 1
        placement.put(part, kernel)
    for part in parts.free:
        around = {placement.kernel_of[n] for n in parts.between[part] if n in placement.kernel_of}
        if len(around) == 1:
            placement.put(part, around.pop())
        else:
            placement.put_best(part)
    return placement


def _key(loads: list[int]) -> tuple[int, list[int]]:
    return loads.count(0), sorted(loads, reverse=True)


class _Placement:
    """Parts in kernels, and what each kernel then has to do."""

    def __init__(self, parts: Parts, kernels: int) -> None:
        self._parts = parts
        self.kernel_of: dict[int, int] = {}
        self.loads = [0] * kernels

    def key(self) -> tuple[int, list[int]]:
        """The lower the better: kernels with nothing to do, then the loads, the busiest first."""
        return _key(self.loads)

    def put(self, part: int, kernel: int) -> None:
        """Gives a part that has no kernel to one."""
        self.kernel_of[part] = kernel
        self._count(part, 1)

    def take(self, part: int) -> None:
        """Takes a part from its kernel."""
        self._count(part, -1)
        del self.kernel_of[part]

    def _count(self, part: int, sign: int) -> None:
        kernel = self.kernel_of[part]
        self.loads[kernel] += sign * self._parts.cost[part]
        for other, cost in self._parts.between[part].items():
            far = self.kernel_of.get(other, kernel)
            if far != kernel:
                self.loads[kernel] += sign * cost
                self.loads[far] += sign * cost

    def put_best(self, part: int) -> None:
        """Gives a part to the kernel where that costs least."""
        towards = [0] * len(self.loads)
        for other, cost in self._parts.between[part].items():
            if other in self.kernel_of:
                towards[self.kernel_of[other]] += cost
        cut = [load + cost for load, cost in zip(self.loads, towards, strict=True)]
        keys = []
        for kernel, load in enumerate(self.loads):
            own = load + self._parts.cost[part] + sum(towards) - towards[kernel]
            keys.append((_key([*cut[:kernel], own, *cut[kernel + 1 :]]), kernel))
        self.put(part, min(keys)[1])

    def fill(self) -> None:
        """Gives each kernel that has nothing to do a part of another, the one that it costs least
        to move. Needs as many parts that cost something as there are kernels."""
        while 0 in self.loads:
            idle = self.loads.index(0)
            busy = [part for part in self.kernel_of if self._parts.cost[part]]
            count = Counter(self.kernel_of[part] for part in busy)
            keys = []
            for part in busy:
                kernel = self.kernel_of[part]
                if count[kernel] > 1:
                    self._move(part, idle)
                    keys.append((self.key(), part))
                    self._move(part, kernel)
            self._move(min(keys)[1], idle)

    def _move(self, part: int, kernel: int) -> None:
        self.take(part)
        self.put(part, kernel)

    def polish(self) -> None:
        """Moves parts without hosts, one by one, for as long as that helps."""
        before = None
        while before is None or self.key() < before:
            before = self.key()
            for part in self._parts.free:
                self.take(part)
                self.put_best(part)
