"""FRED's wafer of 20 endpoints, and the 5x4 mesh: rates are a 240th of the paper's, their ratios
the paper's.

Links lose nothing and senders have no slow start, as credits have it there: queues are as long as
what is under way, and windows begin wide (`initial_window`).
"""

from __future__ import annotations

ENDPOINTS, PER_SWITCH, ROWS = 20, 4, 5
SCALE = 240
MESH_GBPS, NEAR_GBPS = 25, 100
UPLINK_GBPS = {"A": 50, "B": 50, "C": 400, "D": 400}
"""The rate of the link between two switches: 375 GB/s of an endpoint, and 3 TB/s."""
IN_SWITCH = ("B", "D")
VARIANTS = ("mesh", *UPLINK_GBPS)

LINK = "delay: 100ns, mtu: 9000}, queue: {kind: droptail, buffer: 64MB}"
AGGREGATION = """
aggregation: {mode: streaming, streams: any, rate: 6400Gbps, latency: 100ns, piece: 16KiB}
"""


def fabric(variant: str) -> str:
    """A spec's `fabric`."""
    if variant == "mesh":
        dims = f"dims: [{ROWS}, {PER_SWITCH}]"
        return f"{{kind: mesh, {dims}, link: {{rate: {MESH_GBPS}Gbps, {LINK}}}"
    return (
        f"{{kind: hierarchical, groups: {ROWS}, hosts_per_group: {PER_SWITCH}, "
        f"link: {{rate: {NEAR_GBPS}Gbps, {LINK}, "
        f"links: {{outer: {{rate: {UPLINK_GBPS[variant]}Gbps}}}}}}"
    )


def settings(variant: str, ranks: int) -> str:
    """The keys that all specs have alike."""
    return f"""
capture: {{points: []}}
transport: {{congestion_control: cubic, initial_window: 100}}
virtual: {{ranks_per_process: {ranks}}}
predict: [flow]
{AGGREGATION if variant in IN_SWITCH else ""}"""


def wafer_program(variant: str) -> tuple[str, str]:
    """The program of an all-reduce over all endpoints, and what else the section has.

    On the mesh half of the chunks go along rows first and half along columns, along a row both ways
    at once. On A chunks take turns, so that one is on the uplinks while another one is inside."""
    match variant:
        case "mesh":
            lines = "by_dimension: [{algorithm: line}, {algorithm: line}]"
            program = f"algorithm: hierarchical, {lines}, chunks: 16, dimension_order: themis"
            return f"{{{program}}}", "active_per_dimension: 2"
        case "A":
            program = "algorithm: hierarchical, inside: ring, across: ring, chunks: 16"
            return f"{{{program}}}", "active_per_dimension: 2"
        case "C":
            return "{algorithm: hierarchical, inside: ring, across: ring, chunks: 8}", ""
        case _:
            return "{algorithm: aggregation}", ""


def group_program(variant: str) -> str:
    """The program of an all-reduce in a group: a logical ring. On the mesh it is folded, so that no
    message takes more than two hops of a row."""
    if variant in IN_SWITCH:
        return "{algorithm: aggregation}"
    return (
        "{algorithm: ring, folded: true}" if variant == "mesh" else "{algorithm: ring, chunks: 4}"
    )
