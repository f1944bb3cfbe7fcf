"""The inside of servers: PCIe switches and root complexes between accelerators and NICs.

Nodes of server s are its switches pcie<s>-<i>, root complexes root<s>-<j>, and NICs nic<s>-<r>, all
of which forward. Accelerators and switches hang on links of class `pcie` and `root-port`, root
complexes are joined by `inter-root`. A packet leaves a server by the NIC of its destination's
number, as that is on the destination's rail, and takes the only way there in the server. Ports
inside neither mark nor drop: PCIe holds back senders by credits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Address
from itertools import combinations

from topologies.fabrics.fabric import Node, NodeKind
from topologies.fabrics.wiring import Wire, queue_of_nic
from topologies.spec.bus_section import BusSpec
from topologies.spec.queue_section import QueueSpec

LINK_CLASSES = ("pcie", "root-port", "inter-root")
_OCTETS = {"pcie": 203, "root": 204, "nic": 205}
"""The second octets of addresses; those of other switches are below."""


class Bus:
    """The inside of all servers of `hosts[server][accelerator]`."""

    def __init__(self, section: BusSpec, queue: QueueSpec, hosts: Sequence[Sequence[str]]) -> None:
        self._section = section
        self._queue = queue_of_nic(queue)
        self._hosts = hosts

    def nodes(self) -> Iterator[Node]:
        """Switches, root complexes and NICs."""
        section = self._section
        counts = {
            "pcie": len(section.roots),
            "root": section.root_complexes,
            "nic": len(section.nics),
        }
        for name, count in counts.items():
            layer = 1 if name == "pcie" else 2
            for server in range(len(self._hosts)):
                for number in range(count):
                    address = IPv4Address(bytes((10, _OCTETS[name], server, 1 + number)))
                    yield Node(
                        f"{name}{server}-{number}",
                        NodeKind.SWITCH,
                        address,
                        True,
                        layer,
                        (server, number),
                    )

    def wires(self) -> Iterator[Wire]:
        """The links inside servers."""
        for server in range(len(self._hosts)):
            for a, b, link_class in self._inside(server):
                yield Wire(a, b, link_class, queue=self._queue)

    def to_rails(self) -> Iterator[Wire]:
        """The links of NICs with their rails."""
        for server in range(len(self._hosts)):
            for number in range(len(self._section.nics)):
                nic = f"nic{server}-{number}"
                yield Wire(nic, f"rail{number}", "nic", queue_a=self._queue)

    def _inside(self, server: int) -> Iterator[tuple[str, str, str]]:
        section = self._section
        for number, switch in enumerate(section.accelerators):
            yield self._hosts[server][number], f"pcie{server}-{switch}", "pcie"
        for number, place in enumerate(section.nics):
            root = section.root_of_nic(number)
            on = f"pcie{server}-{place}" if root is None else f"root{server}-{root}"
            yield f"nic{server}-{number}", on, "pcie"
        for switch, root in enumerate(section.roots):
            yield f"pcie{server}-{switch}", f"root{server}-{root}", "root-port"
        for one, other in combinations(range(section.root_complexes), 2):
            yield f"root{server}-{one}", f"root{server}-{other}", "inter-root"

    def routes(self, by_scale_up: bool) -> Mapping[str, Mapping[str, str]]:
        """Node -> host -> the neighbour towards it. With `by_scale_up` an accelerator sends what
        another rail leads to through the scale-up switch to its neighbour on that rail, who
        forwards it; else through the bus."""
        found: dict[str, dict[str, str]] = {}
        for server, own in enumerate(self._hosts):
            around: dict[str, list[str]] = {}
            for a, b, _ in self._inside(server):
                around.setdefault(a, []).append(b)
                around.setdefault(b, []).append(a)
            for number, local in enumerate(own):
                inwards = _towards(local, around, passing=set(own))
                outwards = _towards(f"nic{server}-{number}", around, passing=set(own))
                for node, peer in inwards.items():
                    if node not in own:
                        found.setdefault(node, {})[local] = peer
                for other, theirs in enumerate(self._hosts):
                    if other == server:
                        continue
                    there = theirs[number]
                    for node, peer in outwards.items():
                        relayed = by_scale_up and node in own and node != local
                        found.setdefault(node, {})[there] = f"server{server}" if relayed else peer
                    found.setdefault(f"nic{server}-{number}", {})[there] = f"rail{number}"
                    if by_scale_up:
                        found.setdefault(f"server{server}", {})[there] = local
        return found


def _towards(goal: str, around: Mapping[str, Sequence[str]], passing: set[str]) -> dict[str, str]:
    """By node of a server, its neighbour on the way to `goal`; ways do not lead through nodes that
    only pass on what is theirs."""
    found: dict[str, str] = {}
    waiting = deque([goal])
    while waiting:
        node = waiting.popleft()
        if node in passing and node != goal:
            continue
        for peer in around[node]:
            if peer != goal and peer not in found:
                found[peer] = node
                waiting.append(peer)
    return found
