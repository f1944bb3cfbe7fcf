"""The streams into the wafer and out of it: weights from 18 controllers to all endpoints, and sums
of gradients from all endpoints to the controllers.

The controllers are one host here, rank 0, with 128 GB/s (a 240th of it) for each of them. On the
mesh it has links to the endpoints along the rim, of two channels to the corners. At a tree of
switches it has one link, of all channels, to the upper one. On C, where switches do not copy,
endpoints hand on to each other what comes in, in a chain.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.fred.fabrics import (
    ENDPOINTS,
    IN_SWITCH,
    LINK,
    MESH_GBPS,
    NEAR_GBPS,
    PER_SWITCH,
    ROWS,
    SCALE,
    UPLINK_GBPS,
    settings,
)
from benchmarks.fred.table import Case

SIZE_BYTES = 4_500_000
CONTROLLERS = 2 * (PER_SWITCH + ROWS)
CHANNEL_MBPS = 128 * 8000 // SCALE
NAMES = ("weights in", "gradients out")
RANKS = ENDPOINTS + 1
HOT_CHANNELS = 2 * ROWS - 1
"""Channels that meet on a link of a column of the mesh."""
MESH_SHARE = MESH_GBPS * 1000 / (HOT_CHANNELS * CHANNEL_MBPS)
"""The mesh's share of the channels' rate: 0.65, as published."""


def fabric_with_controllers(variant: str) -> str:
    """A spec's `fabric` and `placement`: rank 0 is outside, the others are in order."""
    forwards = str(variant == "mesh").lower()
    nodes = ["{name: io, kind: host, forwards: false}"]
    nodes += [f"{{name: h{i}, kind: host, forwards: {forwards}}}" for i in range(ENDPOINTS)]
    if variant == "mesh":
        links = _mesh()
    else:
        nodes += [f"{{name: group{i}, kind: switch}}" for i in range(ROWS)]
        nodes.append("{name: outer, kind: switch}")
        links = [(f"h{i}", f"group{i // PER_SWITCH}", NEAR_GBPS * 1000) for i in range(ENDPOINTS)]
        links += [(f"group{i}", "outer", UPLINK_GBPS[variant] * 1000) for i in range(ROWS)]
        links.append(("io", "outer", CONTROLLERS * CHANNEL_MBPS))
    lines = "".join(f"\n    - {node}" for node in nodes)
    ends = "".join(f"\n    - {{ends: [{a}, {b}], rate: {mbps}Mbps}}" for a, b, mbps in links)
    places = ", ".join(f"{rank}: {'io' if not rank else f'h{rank - 1}'}" for rank in range(RANKS))
    return f"""
fabric:
  kind: graph
  link: {{rate: {NEAR_GBPS}Gbps, {LINK.replace("}, queue", "}" + chr(10) + "  queue")[:-1]}}}
  nodes:{lines}
  links:{ends}
placement: {{{places}}}"""


def _mesh() -> list[tuple[str, str, int]]:
    links = []
    for row in range(ROWS):
        for column in range(PER_SWITCH):
            here = f"h{row * PER_SWITCH + column}"
            if column + 1 < PER_SWITCH:
                links.append((here, f"h{row * PER_SWITCH + column + 1}", MESH_GBPS * 1000))
            if row + 1 < ROWS:
                links.append((here, f"h{(row + 1) * PER_SWITCH + column}", MESH_GBPS * 1000))
            channels = (column in (0, PER_SWITCH - 1)) + (row in (0, ROWS - 1))
            if channels:
                links.append(("io", here, channels * CHANNEL_MBPS))
    return links


def stream_program(variant: str) -> str:
    """The program of a broadcast from outside, and of a reduce to it."""
    if variant in IN_SWITCH:
        return "{algorithm: aggregation}"
    if variant == "mesh":
        dimensions = f"[{PER_SWITCH}, {ROWS}]"
        return f"{{algorithm: edge-streams, dimensions: {dimensions}, chunks: 16}}"
    return "{algorithm: ring, chunks: 8}"


def stream_section(variant: str) -> str:
    """The section's other keys: on the mesh the first chunks are through before the last begin."""
    return "in_flight: 4" if variant == "mesh" else ""


def cases(name: str) -> Iterator[Case]:
    """Streams in or out on the mesh, C and D."""
    line_rate = CONTROLLERS * 128
    for variant in ("mesh", "C", "D"):
        share = MESH_SHARE if variant == "mesh" else 1.0
        spec = stream_spec(name, variant)
        yield Case(name, variant, spec, 1 / MESH_SHARE, {}, SIZE_BYTES, share * line_rate)


def stream_spec(name: str, variant: str, size_bytes: int = SIZE_BYTES) -> str:
    """A stream in, or out, twice."""
    kind = {"weights in": "broadcast", "gradients out": "reduce"}[name]
    return f"""
name: fred-streams
{fabric_with_controllers(variant)}
workload:
  kind: collectives
  ranks: {RANKS}
  iterations: 2
  operations:
    - {{kind: {kind}, size: {size_bytes}, program: {stream_program(variant)}}}
collectives: {{{stream_section(variant)}}}
{settings(variant, RANKS)}"""
