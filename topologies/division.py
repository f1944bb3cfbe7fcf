"""A fabric divided among several kernels that run at the same time, a core each.

Kernels keep in step with each other: none may be ahead of another by more than the delay of the
links between them, the lookahead (conservative parallel simulation: Chandy and Misra 1979; Bryant
1977). So a link is only ever cut where it has a delay, and a longer one costs less waiting.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from topologies.fabric import Fabric, Link
from topologies.parts import divide_parts, glued

_WORTH = 10
"""A longer lookahead is worth this part (1/10) of the busiest kernel's load, not more."""


class IndivisibleFabric(ValueError):
    """A fabric that cannot be divided among so many kernels; the message says why."""


@dataclass(frozen=True)
class Division:
    """Which kernel has which node. Kernel 0 has the fabric's first host. `lookahead_ns` is the
    least delay of a link that is cut; 0 for a kernel alone, which looks at nobody."""

    kernels: int
    kernel_of: Mapping[str, int]
    lookahead_ns: int

    def is_cut(self, link: Link) -> bool:
        """Whether the ends of a link are in different kernels."""
        return self.kernel_of[link.a.node] != self.kernel_of[link.b.node]


def divide(fabric: Fabric, kernels: int, working: Collection[str] | None = None) -> Division:
    """The fabric divided among `kernels`, so that the busiest has as little to do as possible.

    `working` are the hosts that run ranks (all of them when None): the others cost nothing. Hosts
    are divided in the fabric's order, neighbours together. The same arguments give the same
    division. Raises IndivisibleFabric, and ValueError for less than one kernel.
    """
    if kernels < 1:
        raise ValueError(f"a fabric is divided among at least 1 kernel, not {kernels}")
    names = [node.name for node in fabric.nodes]
    if kernels == 1:
        return Division(1, dict.fromkeys(names, 0), 0)
    hosts = frozenset(h.name for h in fabric.hosts if working is None or h.name in working)
    if len(hosts) < kernels:
        raise IndivisibleFabric(
            f"{kernels} kernels need at least {kernels} hosts that run ranks, and there are "
            f"{len(hosts)}"
        )
    least = min((link.delay_ns for link in fabric.links if link.delay_ns), default=None)
    if least is None:
        raise IndivisibleFabric(
            "no link has a delay, and kernels can only be kept in step across links that have one"
        )
    parts = glued(fabric, hosts, least)
    busy = sum(1 for cost in parts.cost if cost)
    if busy < kernels:
        raise IndivisibleFabric(
            f"links without delay tie the fabric into {busy} "
            f"part{'s' if busy > 1 else ''} that cannot be divided further: not enough for "
            f"{kernels} kernels"
        )
    chosen, least_load = divide_parts(parts, kernels)
    found = parts.by_node(chosen)
    for delay_ns in sorted({link.delay_ns for link in fabric.links if link.delay_ns > least}):
        coarser = glued(fabric, hosts, delay_ns)
        if sum(1 for cost in coarser.cost if cost) < kernels:
            break
        chosen, load = divide_parts(coarser, kernels)
        if load * _WORTH <= least_load * (_WORTH + 1):
            found = coarser.by_node(chosen)
    kernel_of = _in_order(names, found)
    cut = [link for link in fabric.links if kernel_of[link.a.node] != kernel_of[link.b.node]]
    return Division(kernels, kernel_of, min(link.delay_ns for link in cut))


def _in_order(names: list[str], found: Mapping[str, int]) -> dict[str, int]:
    """The same with kernels numbered in the order of their first nodes."""
    number: dict[int, int] = {}
    return {name: number.setdefault(found[name], len(number)) for name in names}


@dataclass(frozen=True)
class Share:
    """What is one kernel's of a divided fabric."""

    fabric: Fabric
    division: Division
    kernel: int

    @cached_property
    def part(self) -> Fabric:
        """See `part_of`."""
        return part_of(self.fabric, self.division, self.kernel)

    def owns(self, node: str) -> bool:
        """Whether a node is this kernel's own."""
        return self.division.kernel_of[node] == self.kernel

    def far_kernel(self, link: Link) -> int | None:
        """The other kernel that has an end of this kernel's link; None when both are here."""
        far = {self.division.kernel_of[port.node] for port in (link.a, link.b)} - {self.kernel}
        return far.pop() if far else None


def part_of(fabric: Fabric, division: Division, kernel: int) -> Fabric:
    """What one kernel has of a fabric: its own nodes, the far nodes of links that are cut, and the
    links with at least one end of its own. All stay as they are, links with their own index."""
    kernel_of = division.kernel_of
    links = tuple(
        link for link in fabric.links if kernel in (kernel_of[link.a.node], kernel_of[link.b.node])
    )
    ends = {port.node for link in links for port in (link.a, link.b)}
    nodes = tuple(n for n in fabric.nodes if kernel_of[n.name] == kernel or n.name in ends)
    return Fabric(fabric.kind, nodes, links, fabric.routing)
