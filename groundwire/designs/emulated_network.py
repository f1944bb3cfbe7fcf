"""A network of dimensions as a fabric that can be emulated, and the rule by which it is shrunk.

A host has a port in each dimension. Hosts that differ in one coordinate only share a switch there,
whatever the dimension's kind: what counts in the model is what a host sends into a dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from collectives.dimensions import lines

_LEAST_DELAY_NS = 100
_HOST_BUFFER = "1GB"
_SWITCH_BUFFER = "64MB"


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
    """The `fabric` section. `latencies_ns` are those of a message; a message crosses two links.
    The buffers hold what windows let through, so that nothing but the rates decides."""
    nodes: list[dict[str, Any]] = [
        {"name": f"h{rank}", "kind": "host", "forwards": True} for rank in range(prod(sizes))
    ]
    links: list[dict[str, Any]] = []
    for dimension, (rate_bps, latency_ns) in enumerate(zip(rates_bps, latencies_ns, strict=True)):
        if sizes[dimension] < 2:
            continue
        delay_ns = max(_LEAST_DELAY_NS, round(latency_ns / 2))
        for number, members in enumerate(lines(sizes, dimension)):
            switch = f"d{dimension}s{number}"
            nodes.append({"name": switch, "kind": "switch"})
            links += [
                {
                    "ends": [f"h{rank}", switch],
                    "class": f"dimension{dimension}",
                    "rate": f"{rate_bps}bps",
                    "delay": f"{delay_ns}ns",
                }
                for rank in members
            ]
    return {
        "kind": "graph",
        "link": {"mtu": 9000},
        "queue": {"kind": "droptail", "buffer": _SWITCH_BUFFER},
        "queues": {"hosts": {"kind": "droptail", "buffer": _HOST_BUFFER}},
        "nodes": nodes,
        "links": links,
    }
