"""The claims, by source, in the page's order."""

from benchmarks.claims.claim import Claim
from benchmarks.claims.sources import (
    algorithms,
    congestion,
    designs,
    dlrm,
    fred,
    in_network,
    memory,
    operators,
    partitions,
    paths,
    queues,
    servers,
    themis,
)

PARTS: dict[str, tuple[Claim, ...]] = {
    "The DLRM case study": dlrm.CLAIMS,
    "Themis": themis.CLAIMS,
    "LIBRA and COMET": (*designs.CLAIMS, *memory.CLAIMS),
    "FRED": fred.CLAIMS,
    "Switches that reduce": in_network.CLAIMS,
    "Algorithms of collectives": algorithms.CLAIMS,
    "Congestion, queues, RoCE": (*congestion.CLAIMS, *queues.CLAIMS),
    "Paths": paths.CLAIMS,
    "Servers": servers.CLAIMS,
    "Networks split over workers": partitions.CLAIMS,
    "Operators, simulators, Gloo": operators.CLAIMS,
}
"""Heading of the page -> its claims."""

CLAIMS = tuple(claim for part in PARTS.values() for claim in part)
