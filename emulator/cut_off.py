"""Ranks that faults cut off from each other for good: why a run waits for ever."""

from __future__ import annotations

from topologies.fabrics.selectors import links_between
from topologies.spec.run_sections import LinkDown, LinkUp
from topologies.spec.spec import Spec

_NAMED = 4


def cut_off_by_faults(spec: Spec) -> str | None:
    """The links that a spec's faults leave down to the end, and which ranks cannot reach each other
    then, in words. None where all ranks can."""
    fabric = spec.plan.fabric
    down: dict[int, LinkDown] = {}
    for fault in spec.faults:
        if isinstance(fault, LinkDown) and fault.duration_ns is None:
            down |= {link.index: fault for link in links_between(fabric, fault.link)}
        elif isinstance(fault, LinkUp):
            for link in links_between(fabric, fault.link):
                down.pop(link.index, None)
    if not down:
        return None
    import networkx as nx  # not on top: each command would wait for it

    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(node.name for node in fabric.nodes)
    kept = [link for link in fabric.links if link.index not in down]
    graph.add_edges_from((link.a.node, link.b.node) for link in kept)
    parts = [
        [rank for rank, host in enumerate(spec.plan.hosts) if host in part]
        for part in nx.connected_components(graph)
    ]
    parts = sorted((part for part in parts if part), key=len)
    if len(parts) < 2:
        return None
    links = ", ".join(
        dict.fromkeys(
            f"link {fault.link} is down from {fault.begins} on" for fault in down.values()
        )
    )
    alone, others = (_named(spec, part) for part in (parts[0], parts[-1]))
    return f"{links}, and nothing brings it back: {alone} cannot reach {others}, and each waits"


def _named(spec: Spec, ranks: list[int]) -> str:
    named = ", ".join(f"rank {rank} on {spec.plan.hosts[rank]}" for rank in ranks[:_NAMED])
    return named + (f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else "")
