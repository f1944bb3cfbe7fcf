"""How far hosts of a fabric are apart: what windows and telemetry are sized by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from topologies.fabrics.fabric import Fabric
from topologies.routing.segments import outer_bytes


@dataclass(frozen=True, slots=True)
class Extent:
    """The longest of the shortest paths between two hosts: how many links it has, the sum of their
    propagation delays, and the rate of the slowest link of the fabric. `outer_bytes` wrap each
    packet."""

    links: int
    delay_ns: int
    slowest_bps: int
    outer_bytes: int = 0

    def base_rtt_ns(self, frame_wire_bytes: int, ack_wire_bytes: int) -> int:
        """A frame there, and its acknowledgement back, without queues, each stored and forwarded by
        every node; all links as slow as the slowest, so that it is no less than any path's."""
        both_bytes = frame_wire_bytes + ack_wire_bytes + 2 * self.outer_bytes
        bits = 8 * both_bytes * self.links
        return 2 * self.delay_ns + -(-bits * 10**9 // self.slowest_bps)


def longest_path(fabric: Fabric) -> Extent:
    """The extent of a fabric: paths are the shortest by links, of those the slowest by delay."""
    delays_ns: dict[str, dict[str, int]] = {}
    for link in fabric.links:
        a, b = link.a.node, link.b.node
        delay_ns = max(link.delay_ns, delays_ns.get(a, {}).get(b, 0))
        delays_ns.setdefault(a, {})[b] = delays_ns.setdefault(b, {})[a] = delay_ns
    most_links = most_ns = 0
    hosts = [host.name for host in fabric.hosts if host.name in delays_ns]
    for host in hosts:
        links, delays = _from(delays_ns, host)
        most_links = max(most_links, max((links.get(other, 0) for other in hosts), default=0))
        most_ns = max(most_ns, max((delays.get(other, 0) for other in hosts), default=0))
    slowest = min((link.rate_bps for link in fabric.links), default=1)
    return Extent(most_links, most_ns, slowest, outer_bytes(fabric))


def _from(
    delays_ns: Mapping[str, Mapping[str, int]], start: str
) -> tuple[dict[str, int], dict[str, int]]:
    """Nodes -> how many links away, and the largest delay over so many links."""
    links, delays = {start: 0}, {start: 0}
    layer = [start]
    while layer:
        following: list[str] = []
        for node in layer:
            for other, own_ns in delays_ns[node].items():
                delay_ns = delays[node] + own_ns
                if other not in links:
                    links[other] = links[node] + 1
                    delays[other] = delay_ns
                    following.append(other)
                elif links[other] == links[node] + 1:
                    delays[other] = max(delays[other], delay_ns)
        layer = following
    return links, delays
