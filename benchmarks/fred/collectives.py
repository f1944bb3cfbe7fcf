"""Collectives over the wafer, and of groups that run at once.

- wafer: an all-reduce over all endpoints.
- DP(5), MP(2), PP(2): of MP(2)-DP(5)-PP(2), with neighbours in a model-parallel group, then a
  pipeline, then the data-parallel ones. The groups of a sort run at once.

Effective bandwidth is the paper's: what an endpoint would send by a ring, over the time; in the
switches it sends the data once.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.fred.fabrics import (
    ENDPOINTS,
    IN_SWITCH,
    PER_SWITCH,
    VARIANTS,
    fabric,
    group_program,
    settings,
    wafer_program,
)
from benchmarks.fred.table import Case

SIZE_BYTES = 2_000_000
ROWS = ("wafer", "DP(5)", "MP(2)", "PP(2)", "PP(2), neighbours")
GAINS: dict[str, dict[str, float]] = {
    "wafer": {"A": 1.23, "B": 1.90, "C": 2.00, "D": 3.80},
    "DP(5)": {"A": 0.50, "B": 0.80, "C": 4.00, "D": 6.40},
    "MP(2)": dict.fromkeys("ABCD", 4.0),
    "PP(2)": dict.fromkeys("ABCD", 4.0),
    "PP(2), neighbours": dict.fromkeys("ABCD", 4.0),
}
"""Over the mesh, from the bandwidths in the paper's text (systems.md, part 5)."""
GBPS: dict[str, dict[str, float]] = {
    "wafer": {"mesh": 1500, "A": 1850, "B": 1500, "C": 3000, "D": 3000},
    "DP(5)": {"mesh": 750, "A": 375, "B": 375, "C": 3000, "D": 3000},
    "MP(2)": {"mesh": 750, "C": 3000, "D": 3000},
    "PP(2)": {"mesh": 750, "D": 3000},
    "PP(2), neighbours": {"mesh": 750, "D": 3000},
}
"""Effective bandwidths of an endpoint in the paper's text, in GB/s."""
RANKS = {"wafer": ENDPOINTS, "DP(5)": 5, "MP(2)": 2}


def cases(name: str) -> Iterator[Case]:
    """A row of the table on its fabrics. Where only endpoints below one switch talk, the trees are
    alike but for in-switch reduction: C and D stand for the others."""
    for variant in VARIANTS if name in ("wafer", "DP(5)") else GBPS[name]:
        spec = spec_of(name, variant)
        published = GAINS[name].get(variant)
        moved = moved_bytes(name, variant)
        yield Case(name, variant, spec, published, {}, moved, GBPS[name][variant])


def moved_bytes(name: str, variant: str) -> int:
    """The bytes that an endpoint sends: the message, all of it up the tree, or a ring's share."""
    ranks = RANKS.get(name)
    if ranks is None or variant in IN_SWITCH:
        return SIZE_BYTES
    return 2 * (ranks - 1) * SIZE_BYTES // ranks


def spec_of(name: str, variant: str) -> str:
    match name:
        case "wafer":
            return wafer_spec(variant)
        case "DP(5)" | "MP(2)":
            return groups_spec(variant, name)
        case _:
            return pipeline_spec(variant, near=name == "PP(2), neighbours")


def wafer_spec(variant: str) -> str:
    """One all-reduce over all endpoints, twice."""
    program, section = wafer_program(variant)
    return f"""
name: fred
fabric: {fabric(variant)}
workload:
  kind: collectives
  ranks: {ENDPOINTS}
  iterations: 2
  operations:
    - {{kind: all_reduce, size: {SIZE_BYTES}, program: {program}}}
collectives: {{{section}}}
{settings(variant, ENDPOINTS)}"""


def groups_spec(variant: str, sort: str) -> str:
    """All groups of a sort at once: of model-parallel neighbours, or of those that cross."""
    innermost, phase = {"DP(5)": (PER_SWITCH, "weight_gradient"), "MP(2)": (2, "forward")}[sort]
    return f"""
name: fred
fabric: {fabric(variant)}
workload:
  kind: layers
  ranks: {ENDPOINTS}
  iterations: 2
  passes: 1
  parallelism: hybrid-data-model
  innermost: {innermost}
  layers: [{{name: layer, {phase}: {{collective: all_reduce, size: {SIZE_BYTES}}}}}]
collectives: {{backend: programs, all_reduce: {group_program(variant)}}}
{settings(variant, ENDPOINTS)}"""


def pipeline_spec(variant: str, near: bool) -> str:
    """Each endpoint sends to its like in the other stage: two places away, as FRED's placement has
    it with a model-parallel group of two between; or to its neighbour."""
    ranks = [(stage, data, model) for stage in range(2) for data in range(5) for model in range(2)]
    inside = {rank: (2 * rank[2] + rank[0] if near else 2 * rank[0] + rank[2]) for rank in ranks}
    hosts = [rank[1] * PER_SWITCH + inside[rank] for rank in ranks]
    placement = ", ".join(f"{rank}: h{host}" for rank, host in enumerate(hosts))
    return f"""
name: fred
fabric: {fabric(variant)}
placement: {{{placement}}}
workload:
  kind: collectives
  ranks: {ENDPOINTS}
  iterations: 2
  operations: [{{kind: permutation, size: {SIZE_BYTES}, shift: {ENDPOINTS // 2}}}]
{settings("C", ENDPOINTS)}"""
