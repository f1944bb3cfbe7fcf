"""What a spec's `aggregation` means: its tree, and whether a collective gets it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from collectives.algorithms import algorithm
from collectives.algorithms.aggregation import Aggregation
from collectives.algorithms.base import DoesNotFit, Refused
from collectives.in_network.node import Aggregator
from topologies.aggregation_tree import NoTree, aggregating_switches, aggregation_tree
from topologies.fabrics.build import build_fabric
from topologies.fabrics.wiring import FabricError
from topologies.plan import Plan
from topologies.spec.aggregation.section import AggregationSection, class_of
from topologies.spec.checks import register
from topologies.spec.collectives_section import (
    AggregationOfRun,
    CollectivesOfRun,
    CollectivesSection,
)
from topologies.spec.errors import Problem
from topologies.spec.sections import Sections
from topologies.spec.spec import Spec
from topologies.spec.workload_section import (
    CollectiveOperation,
    CollectivesWorkload,
    RootedCollective,
    WorkloadSpec,
)


@register
def aggregation_problems(spec: Sections) -> Iterator[Problem]:
    """Selectors that name no switch, and specs whose ranks cannot use an aggregation node."""
    section = spec.aggregation
    if section is None:
        return
    try:
        fabric = build_fabric(spec.fabric)
    except FabricError:  # told by the checks of the fabric
        return
    switches = [node.name for node in fabric.switches]
    classes = sorted({class_of(name) for name in switches})
    known = {"all", *switches, *classes}
    allowed = (
        f"all, a class ({', '.join(classes)}), or a switch"
        if switches
        else "a fabric with switches"
    )
    for index, selector in enumerate(section.switches):
        if selector not in known or not switches:
            yield Problem(("aggregation", "switches", index), selector, f"allowed: {allowed}")
    for selector in section.nodes:
        if selector not in known:
            yield Problem(("aggregation", "nodes", selector), selector, f"allowed: {allowed}")
    if section.root is not None and section.root not in switches:
        yield Problem(("aggregation", "root"), section.root, "expected a switch of this fabric")


def aggregation_of_run(spec: Sections) -> AggregationOfRun | None:
    """The tree of a spec's ranks; with a reason where there is none. None where switches do not
    aggregate, or where the spec has mistakes that are told elsewhere."""
    if spec.aggregation is None:
        return None
    assert isinstance(spec, Spec)
    try:
        plan = spec.plan
    except (ValueError, KeyError):
        return None
    dtype = getattr(spec.workload, "dtype", None)
    ops = tuple(sorted({*_ops(spec.workload)}))
    return _of_plan(plan, spec.aggregation.model_dump_json(by_alias=True), dtype, ops)


def _ops(workload: WorkloadSpec) -> Iterator[str]:
    """How its collectives reduce."""
    if isinstance(workload, CollectivesWorkload):
        for each in workload.operations:
            if isinstance(each, CollectiveOperation | RootedCollective):
                yield each.op
    else:
        yield "sum"


@lru_cache(maxsize=64)
def _of_plan(plan: Plan, given: str, dtype: str | None, ops: tuple[str, ...]) -> AggregationOfRun:
    section = AggregationSection.model_validate_json(given)
    switches = aggregating_switches(plan.fabric, section.switches)
    try:
        tree = aggregation_tree(plan.fabric, plan.hosts, switches, section.root)
    except NoTree as error:
        return AggregationOfRun(section=section, reason=str(error))
    for switch in tree.switches:
        node = section.of(switch)
        types = () if dtype is None else (dtype,)
        for does, known, asked in (
            ("reduces", node.dtypes, types),
            ("reduces by", node.operations, ops),
        ):
            for one in asked:
                if one not in (known or ()):
                    known_ones = ", ".join(known or ()) or "nothing"
                    reason = f"{switch} {does} {known_ones}, and not {one}"
                    return AggregationOfRun(section=section, reason=reason)
    of_all = {node.name: number for number, node in enumerate(plan.fabric.switches)}
    return AggregationOfRun(
        section=section,
        switches=tree.switches,
        parents=tree.parents,
        numbers=tuple(len(plan.hosts) + of_all[name] for name in tree.switches),
    )


def _of_section(section: CollectivesSection) -> AggregationOfRun | None:
    return section.aggregation if isinstance(section, CollectivesOfRun) else None


def nodes_of(section: CollectivesSection) -> tuple[Aggregator, ...]:
    """The aggregation nodes that take part in a run: those of its tree, where collectives may run
    on it. Empty where none do."""
    of_run = _of_section(section)
    if of_run is None or of_run.reason:
        return ()
    nodes = {switch: of_run.section.of(switch) for switch in of_run.switches}
    return tuple(
        Aggregator(name, number, nodes[name].rate_bps or 0, nodes[name].latency_ns or 0)
        for name, number in zip(of_run.switches, of_run.numbers, strict=True)
    )


def aggregation(section: CollectivesSection, options: Mapping[str, Any]) -> Aggregation:
    """The algorithm on the tree of a run. Raises Refused for what the switches do not have room
    for, DoesNotFit for other mistakes."""
    found = algorithm(Aggregation.name, **options)
    assert isinstance(found, Aggregation)
    of_run = _of_section(section)
    if of_run is None:
        allowed = "with a section aggregation, which says what switches reduce"
        raise DoesNotFit("algorithm", Aggregation.name, allowed)
    if of_run.reason:
        raise Refused("algorithm", Aggregation.name, f"by hosts: {of_run.reason}")
    nodes = {switch: of_run.section.of(switch) for switch in of_run.switches}
    fewest = min(nodes, key=lambda switch: nodes[switch].slots or 0)
    free = nodes[fewest].slots or 0
    if not free or found.slots > free:
        wanted = str(found.slots or "a slot")
        raise Refused("slots", wanted, f"at most {free}: all that {fewest} has")
    return replace(
        found,
        mode=found.mode or of_run.section.mode,
        slots=found.slots or free,
        parents=of_run.parents,
        nodes=nodes_of(section),
        payload_bytes=min(node.payload_bytes or 0 for node in nodes.values()),
        piece_bytes=of_run.section.piece_bytes,
        stream_window=of_run.section.window,
    )
