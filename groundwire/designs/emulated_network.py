"""A network of dimensions as a fabric that can be emulated, and the rule by which it is shrunk.

The model counts the bytes that a host sends into a dimension, whatever the dimension's kind. Hosts
that differ in one coordinate only are on a ring there: each has a link to the next, on which its
bytes go one way and nothing but acknowledgements and Gloo's rendezvous the other. A switch instead
would make each step of a ring wait for a packet more, and the rendezvous for the host's own data.
An all-to-all is no matter of rings: where there is one, all hosts of a line are connected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import Any

from collectives.dimensions import lines

_LEAST_DELAY_NS = 100
_HOST_BUFFER = "1GB"


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a design's dimension that one degree of parallelism takes: what it exchanges goes
    by links of its own when emulated."""

    dimension: int
    degree: int
    size: int

    @property
    def key(self) -> tuple[int, int]:
        """Its kind, whatever its size."""
        return self.dimension, self.degree


def parts_of(degrees: Sequence[Sequence[int]]) -> tuple[Part, ...]:
    """The parts larger than 1 of degrees of parallelism, the innermost first. `degrees` has what
    each takes of each dimension."""
    dimensions = len(degrees[0])
    return tuple(
        Part(dimension, degree, degrees[degree][dimension])
        for dimension in range(dimensions)
        for degree in range(len(degrees))
        if degrees[degree][dimension] > 1
    )


def degrees_of(parts: Sequence[Part], dimensions: int, degrees: int) -> tuple[tuple[int, ...], ...]:
    """The part of each degree in each dimension: `parts_of` backwards."""
    found = [[1] * dimensions for _ in range(degrees)]
    for part in parts:
        found[part.degree][part.dimension] = part.size
    return tuple(tuple(one) for one in found)


def shrunk(sizes: Sequence[int], most_ranks: int) -> tuple[int, ...]:
    """The sizes with the largest halved, the outermost of those alike first, until there are at
    most so many ranks. No dimension becomes smaller than 2. Raises ValueError where that is not
    enough."""
    found = list(sizes)
    while prod(found) > most_ranks:
        at = max(range(len(found)), key=lambda i: (found[i], i))
        if found[at] <= 2:
            raise ValueError(f"{len(sizes)} dimensions of 2 are more than {most_ranks} ranks")
        found[at] = max(2, found[at] // 2)
    return tuple(found)


def shrunk_alike(
    parts: Sequence[Part], divided: Mapping[tuple[int, int], int], most_ranks: int
) -> tuple[Part, ...]:
    """Parts of another point, each divided as the winner's of the same key; then shrunk further
    where they are still too many ranks. Raises ValueError."""
    sizes = [max(2, part.size // divided.get(part.key, 1)) for part in parts]
    return resized(parts, shrunk(sizes, most_ranks))


def resized(parts: Sequence[Part], sizes: Sequence[int]) -> tuple[Part, ...]:
    """The parts with these sizes."""
    pairs = zip(parts, sizes, strict=True)
    return tuple(Part(part.dimension, part.degree, size) for part, size in pairs)


def dimension_fabric(
    sizes: Sequence[int],
    rates_bps: Sequence[int],
    latencies_ns: Sequence[float],
    *,
    connected: bool = False,
) -> dict[str, Any]:
    """The `fabric` section, link classes `dimension0` and on. `latencies_ns` are those of a
    message. Hosts along a dimension are on a ring of links of its rate; `connected`, each has a
    link to each of the others, which share the rate. The buffers hold what windows let through, so
    that nothing but the rates decides."""
    ranks = prod(sizes)
    nodes = [{"name": f"h{rank}", "kind": "host", "forwards": True} for rank in range(ranks)]
    links: list[dict[str, Any]] = []
    for dimension, (rate_bps, latency_ns) in enumerate(zip(rates_bps, latencies_ns, strict=True)):
        size = sizes[dimension]
        each_bps = max(1, round(rate_bps / (size - 1))) if connected and size > 1 else rate_bps
        of_link = {
            "class": f"dimension{dimension}",
            "rate": f"{each_bps}bps",
            "delay": f"{max(_LEAST_DELAY_NS, round(latency_ns))}ns",
        }
        for members in lines(sizes, dimension) if size > 1 else []:
            following = zip(members, (*members[1:], members[0]), strict=True)
            around = list(following) if size > 2 else [(members[0], members[1])]
            for a, b in combinations(members, 2) if connected else around:
                links.append({"ends": [f"h{a}", f"h{b}"], **of_link})
    return {
        "kind": "graph",
        "link": {"mtu": 9000},
        "queues": {"hosts": {"kind": "droptail", "buffer": _HOST_BUFFER}},
        "nodes": nodes,
        "links": links,
    }
