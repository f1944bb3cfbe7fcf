"""A network of dimensions as a fabric that can be emulated, and the rule by which it is shrunk.

What counts in the model is what a host sends into a dimension, whatever the dimension's kind. Hosts
that differ in one coordinate only are on a ring there: each has a link to the next, on which its
bytes go one way and nothing but acknowledgements and Gloo's rendezvous the other. A switch instead
would make each step of a ring wait for a packet more, and the rendezvous for the host's own data.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from collectives.dimensions import lines

_LEAST_DELAY_NS = 100
_HOST_BUFFER = "1GB"


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


def dimension_fabric(
    sizes: Sequence[int], rates_bps: Sequence[int], latencies_ns: Sequence[float]
) -> dict[str, Any]:
    """The `fabric` section, link classes `dimension0` and on. `latencies_ns` are those of a
    message. The buffers hold what windows let through, so that nothing but the rates decides."""
    ranks = prod(sizes)
    nodes = [{"name": f"h{rank}", "kind": "host", "forwards": True} for rank in range(ranks)]
    links: list[dict[str, Any]] = []
    for dimension, (rate_bps, latency_ns) in enumerate(zip(rates_bps, latencies_ns, strict=True)):
        of_link = {
            "class": f"dimension{dimension}",
            "rate": f"{rate_bps}bps",
            "delay": f"{max(_LEAST_DELAY_NS, round(latency_ns))}ns",
        }
        for members in lines(sizes, dimension) if sizes[dimension] > 1 else []:
            following = (*members[1:], members[0])
            pairs = list(zip(members, following, strict=True))
            for a, b in pairs if len(members) > 2 else pairs[:1]:
                links.append({"ends": [f"h{a}", f"h{b}"], **of_link})
    return {
        "kind": "graph",
        "link": {"mtu": 9000},
        "queues": {"hosts": {"kind": "droptail", "buffer": _HOST_BUFFER}},
        "nodes": nodes,
        "links": links,
    }
