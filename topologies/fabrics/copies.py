"""Copies of memory between the hosts of a server: the links that they take, and how long.

Each host has a port to its server's scale-up switch, which carries what it sends, and that switch
one to the host, which carries what it receives. A port carries one copy after the other, at its
rate, and the switch holds back none: what has to wait does so before it. A copy of `size_bytes`
from one idle host to another is complete after both links' delays and `size_bytes` at their rate.

    enters the sender's port     when both ends have posted it, and those before it have left
    enters the receiver's port   a link's delay after that, and those before it have left
    is complete                  its bytes at the rate, and a link's delay after that

A port takes them in the order in which they come: of those that come in one nanosecond, first the
one whose other link has the lower number, then the one with the lower slot. `workloads/execution/
copies/` has ranks do so, and simulation/engine/copies.hpp follows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from topologies.fabrics.fabric import Fabric

NO_LINK = -1
"""In place of a directed link: the end is the switch itself."""


@dataclass(frozen=True)
class CopyPaths:
    """The links for copies of a fabric. `links` has those of each host, by name, and `switches` its
    switch. Directed link 2*i leads from end a to end b of link i, and 2*i + 1 back; the host is
    end a."""

    rate_bps: int
    delay_ns: int
    links: Mapping[str, int]
    switches: Mapping[str, str]

    @classmethod
    def of(cls, fabric: Fabric) -> CopyPaths | None:
        """Those of a fabric; None where nothing is copied."""
        if fabric.copied_class is None:
            return None
        links = [link for link in fabric.links if link.link_class == fabric.copied_class]
        return cls(
            links[0].rate_bps,
            links[0].delay_ns,
            {link.a.node: link.index for link in links},
            {link.a.node: link.b.node for link in links},
        )

    def between(self, source: str, destination: str) -> tuple[int, int] | None:
        """The directed links from a host or switch to another, NO_LINK for those of the switch;
        None where what one sends the other is no copy."""
        at, to = self.switches.get(source, source), self.switches.get(destination, destination)
        if at != to or source == destination:
            return None
        out, into = self.links.get(source), self.links.get(destination)
        if out is None and into is None:
            return None
        return (
            NO_LINK if out is None else 2 * out,
            NO_LINK if into is None else 2 * into + 1,
        )

    def occupied_ns(self, size_bytes: int) -> int:
        """How long a port carries a copy: whole nanoseconds, the last one begun."""
        return -(-size_bytes * 8 * 10**9 // self.rate_bps)
