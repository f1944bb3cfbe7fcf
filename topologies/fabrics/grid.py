"""2-D and 3-D torus and mesh: hosts on a grid, with a link to the next one along every axis. In a
torus the last one's next is the first."""

from __future__ import annotations

from ipaddress import IPv4Address
from itertools import product

from topologies.fabrics.fabric import Fabric, Node, NodeKind
from topologies.fabrics.wiring import Wire, assemble
from topologies.spec.fabric_section import MeshSpec, TorusSpec

LINK_CLASSES = ("x", "y", "z")
_LAST_OCTET_OFFSET = 64
"""Keeps the last octet off 0 and 255 and, being the longest axis, aligned to a prefix."""


def build(section: TorusSpec | MeshSpec) -> Fabric:
    """Hosts h0.. in row-major order (the last axis varies fastest), coordinates in `dims`.

    A torus's axis that is 2 long has one link between its two hosts, not two parallel ones. Link
    classes
    are the axes' names. Addresses are 10.x.y.(64 + z), in 2-D 10.0.x.(64 + y), so that the hosts
    of a plane or a row share a prefix. Raises FabricError.
    """
    dims = section.dims
    places = list(product(*(range(axis) for axis in dims)))
    names = {place: f"h{index}" for index, place in enumerate(places)}
    nodes = [Node(names[place], NodeKind.HOST, _address(place), True, 0, place) for place in places]
    wires = []
    for place in places:
        for axis, length in enumerate(dims):
            last = place[axis] == length - 1
            if last and (length == 2 or section.kind == "mesh"):
                continue
            neighbour = (*place[:axis], (place[axis] + 1) % length, *place[axis + 1 :])
            wires.append(Wire(names[place], names[neighbour], LINK_CLASSES[axis]))
    return assemble(section, nodes, wires, LINK_CLASSES[: len(dims)])


def _address(place: tuple[int, ...]) -> IPv4Address:
    x, y, z = (0, *place) if len(place) == 2 else place
    return IPv4Address(bytes((10, x, y, _LAST_OCTET_OFFSET + z)))
