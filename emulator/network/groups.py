"""Resilient groups on a fabric: the next hops of a node, and the groups that its routes name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emulator.linux import rtnetlink
from emulator.linux.netlink import Request
from emulator.linux.rtnetlink import Hop
from emulator.ports.arrangement import PortContext
from topologies.fabrics.fabric import Fabric
from topologies.routing.routes import Routes
from topologies.spec.routing_section import Resilient

_FIRST_GROUP = 1 << 16
"""Numbers of groups follow those of next hops, which are those of interfaces."""


def group_numbers(fabric: Fabric) -> dict[str, int]:
    """By place (`topologies.routing.groups`): the number of the group that leads there, at every
    node."""
    return {node.name: number for number, node in enumerate(fabric.nodes, _FIRST_GROUP)}


class GroupNode:
    """A node whose routes go by resilient groups. `ports` are its own, by link; `numbers` are those
    of groups.

    Linux forgets a next hop with its link, and a group with its last next hop, with all routes that
    name it.
    """

    def __init__(
        self,
        node: str,
        fabric: Fabric,
        settings: Resilient,
        ports: Sequence[PortContext],
        numbers: Mapping[str, int],
    ) -> None:
        self._node, self._fabric, self._settings, self._ports = node, fabric, settings, ports
        self._numbers = numbers
        self._number = {port.link.index: port.ifindex for port in ports}

    def number(self, place: str) -> int:
        """That of the group for a place."""
        return self._numbers[place]

    def requests(self, routes: Routes) -> list[Request]:
        """All its next hops and groups, once its links have carriers."""
        return [*map(self.of_port, self._ports), *self.changed(routes)]

    def of_port(self, port: PortContext) -> Request:
        """The next hop at a port."""
        far = self._fabric.by_name[port.link.other(self._node).node]
        return rtnetlink.next_hop(port.ifindex, Hop(port.ifindex, far.address))

    def changed(
        self, routes: Routes, before: Routes | None = None, link: int | None = None
    ) -> list[Request]:
        """The groups that are not what they were `before`; with `link` those alone that have it. A
        group of nobody is left to `gone`."""
        requests = []
        for place in self._places(routes):
            shares = self._shares(routes, place)
            same = before is not None and self._shares(before, place) == shares
            if not shares or same or not (link is None or link in dict(shares)):
                continue
            members = [(self._number[each], weight) for each, weight in shares]
            of = self._settings
            requests.append(
                rtnetlink.resilient_group(
                    self.number(place),
                    members,
                    of.buckets,
                    of.idle_timer_ns,
                    of.unbalanced_timer_ns,
                )
            )
        return requests

    def renewed(self, routes: Routes, before: Routes) -> set[str]:
        """The places whose groups have none of the next hops that they had: Linux may have
        forgotten the group with its routes."""
        return {
            place
            for place in self._places(routes)
            if not {*dict(self._shares(routes, place))} & {*dict(self._shares(before, place))}
        }

    def gone(self, routes: Routes, before: Routes) -> list[Request]:
        """Groups of places that are out of reach now."""
        return [
            rtnetlink.delete_next_hop(self.number(place))
            for place in self._places(routes)
            if self._shares(before, place) and not self._shares(routes, place)
        ]

    def _places(self, routes: Routes) -> Sequence[str]:
        return () if routes.groups is None else tuple(routes.groups.of(self._node))

    def _shares(self, routes: Routes, place: str) -> tuple[tuple[int, int], ...]:
        assert routes.groups is not None, "it has places"
        return routes.groups.shares(self._node, place)
