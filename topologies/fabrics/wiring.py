"""From nodes and wires to a `Fabric`: rates, queues, interface names and MACs of every port."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topologies.fabrics.fabric import Fabric, Link, Node, NodeKind, Port
from topologies.spec.fabric_section import FabricSpec, LinkSpec, RegularSection
from topologies.spec.queue_section import (
    Cells,
    Classes,
    Credits,
    QueueSpec,
    queue_at_host,
    queues_in,
)
from topologies.spec.routing_section import choice_of, mode_of

MAX_INTERFACE_NAME = 15
"""IFNAMSIZ - 1 (linux/if.h)."""


class FabricError(ValueError):
    """A fabric section that names what the fabric does not have. `key` is relative to `fabric`."""

    def __init__(self, key: tuple[str | int, ...], found: object, expected: str) -> None:
        super().__init__(f"fabric.{'.'.join(map(str, key))}: found {found}, expected {expected}")
        self.key = key
        self.found = found
        self.expected = expected


@dataclass(frozen=True, slots=True)
class Wire:
    """A link before its ports have names. `queue` overrides that of both ports, `queue_a` that of
    the port at `a`."""

    a: str
    b: str
    link_class: str
    link: LinkSpec | None = None
    queue: QueueSpec | None = None
    queue_a: QueueSpec | None = None


def assemble(
    section: FabricSpec,
    nodes: Sequence[Node],
    wires: Sequence[Wire],
    link_classes: Sequence[str],
    link_costs: Mapping[str, int] | None = None,
    cheapest_first: bool = False,
) -> Fabric:
    """The fabric of these nodes and wires; wires get link indices in their order.

    Raises FabricError when `section.links` or `section.queues` names something that is not there,
    or an interface name would be longer than Linux allows.
    """
    by_class = _by_class(section, link_classes)
    kinds = {node.name: node.kind for node in nodes}
    forwards = {node.name: node.forwards for node in nodes}
    degree = dict.fromkeys(kinds, 0)
    links: list[Link] = []
    for index, wire in enumerate(wires):
        ports: list[Port] = []
        for end, (name, peer) in enumerate(((wire.a, wire.b), (wire.b, wire.a))):
            interface = _interface(name, degree[name])
            degree[name] += 1
            group = "hosts" if kinds[name] is NodeKind.HOST else "switches"
            # `fabric.queue` is the queue of switches; between two hosts it can only mean their
            # ports.
            nic = not forwards[name] and kinds[peer] is NodeKind.SWITCH
            own = wire.queue_a if end == 0 and wire.queue_a is not None else wire.queue
            queue = own or (queue_of_nic(section.queue) if nic else section.queue)
            for selector in (group, wire.link_class, name, f"{name}:{peer}", interface):
                queue = section.queues.get(selector, queue)
            serial = 2 * index + end
            mac = f"02:47:57:{serial >> 16 & 255:02x}:{serial >> 8 & 255:02x}:{serial & 255:02x}"
            ports.append(Port(name, interface, mac, queue))
        speed = wire.link or by_class[wire.link_class]
        of_link = (speed.rate_bps, speed.delay_ns, speed.mtu_bytes, wire.link_class)
        links.append(Link(index, ports[0], ports[1], *of_link))
    fabric = Fabric(
        section.kind,
        tuple(nodes),
        tuple(links),
        mode_of(section.routing),
        link_costs or {},
        cheapest_first,
        choice=choice_of(section.routing),
    )
    _check_queues(section, fabric, link_classes)
    return fabric


def queue_of_nic(queue: QueueSpec) -> QueueSpec:
    """The queue at a host's port to a switch whose ports have this queue."""
    return queue.at_host() if isinstance(queue, Classes) else queue_at_host(queue)


def _by_class(section: FabricSpec, link_classes: Sequence[str]) -> dict[str, LinkSpec]:
    overrides = section.links if isinstance(section, RegularSection) else {}
    for name in overrides:
        if name not in link_classes:
            raise FabricError(
                ("links", name), name, "a link class: " + ", ".join(sorted(link_classes))
            )
    return {
        name: section.link.overridden(*([overrides[name]] if name in overrides else []))
        for name in link_classes
    }


def _interface(node: str, number: int) -> str:
    interface = f"{node}-eth{number}"
    if len(interface) > MAX_INTERFACE_NAME:
        raise FabricError(
            ("nodes",),
            node,
            f"a name so short that {interface} has at most {MAX_INTERFACE_NAME} characters",
        )
    return interface


def _check_queues(section: FabricSpec, fabric: Fabric, link_classes: Sequence[str]) -> None:
    known = {"hosts", "switches", *link_classes, *fabric.by_name}
    for link in fabric.links:
        for port, peer in ((link.a, link.b), (link.b, link.a)):
            known |= {port.interface, f"{port.node}:{peer.node}"}
            for queue in queues_in(port.queue):
                if isinstance(queue, Credits) and queue.buffer_bytes < link.frame_bytes:
                    raise FabricError(
                        ("queue", "buffer"),
                        queue.buffer_bytes,
                        f"a frame at least, {link.frame_bytes} bytes on {port.interface}: nothing "
                        "longer than its credits is ever sent",
                    )
    for node in fabric.nodes:
        _check_cells(fabric, node)
    for name in section.queues:
        if name not in known:
            port, peer = fabric.links[0].b, fabric.links[0].a
            raise FabricError(
                ("queues", name),
                name,
                f"hosts, switches, a link class ({', '.join(sorted(link_classes))}), a node such "
                f"as {fabric.nodes[-1].name}, a port such as {port.node}:{peer.node}, or an "
                f"interface such as {port.interface}",
            )


def _check_cells(fabric: Fabric, node: Node) -> None:
    """The ports of a switch have one fabric of cells, or none; it carries what its cards do."""
    links = fabric.links_of[node.name]
    queues = [link.port(node.name).queue for link in links]
    cells = next((queue for queue in queues if isinstance(queue, Cells)), None)
    if cells is None:
        return
    for link, queue in zip(links, queues, strict=True):
        if queue != cells:
            interface = link.port(node.name).interface
            raise FabricError(
                ("queues",),
                f"{queue.kind} at {interface}",
                f"the cells that other ports of {node.name} have: its ports share one fabric",
            )
    for first in range(0, len(links), cells.ports):
        card_bps = sum(link.rate_bps for link in links[first : first + cells.ports])
        if card_bps > cells.carries_bps():
            raise FabricError(
                ("queue", "links"),
                cells.links,
                f"links that carry what the ports of a card do, {card_bps / 1e9:g} Gb/s on "
                f"{node.name}: {cells.links} of {cells.link_rate_bps / 1e9:g} Gb/s carry "
                f"{cells.carries_bps() / 1e9:g} Gb/s without headers",
            )
