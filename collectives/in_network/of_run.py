"""The meaning of a spec's `aggregation`: the trees of its groups, and whether a collective gets
one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from collectives.algorithms import algorithm
from collectives.algorithms.aggregation import STREAMING, Aggregation
from collectives.algorithms.base import DoesNotFit, Refused
from collectives.groups import sort_of, used_groups
from collectives.in_network.clos_trees import ClosSwitches
from collectives.in_network.node import Aggregator, Hold
from topologies.aggregation_tree import (
    OUTSIDE,
    ROOT,
    AggregationTree,
    NoTree,
    aggregating_switches,
    aggregation_tree,
    given_root,
    given_tree,
)
from topologies.fabrics.build import build_fabric
from topologies.fabrics.wiring import FabricError
from topologies.plan import Plan
from topologies.spec.aggregation.section import AggregationSection, class_of, is_selected
from topologies.spec.collectives_section import (
    AggregationOfRun,
    CollectivesOfRun,
    CollectivesSection,
    TreeOfGroup,
)
from topologies.spec.errors import Problem, shown
from topologies.spec.sections import Sections
from topologies.spec.spec import Spec
from topologies.spec.workload_section import WorkloadSpec


def aggregation_problems(spec: Sections) -> Iterator[Problem]:
    """Selectors that name no switch, and specs whose ranks cannot use an aggregation node."""
    section = spec.aggregation
    if section is None:
        return
    try:
        fabric = build_fabric(spec.fabric)
    except FabricError:  # told by the checks of the fabric
        return
    switches = [node.name for node in fabric.routers]
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
    if section.trees > 1 and (section.parents or section.root):
        given = "parents" if section.parents else "root"
        expected = f"expected 1 with {given}: several trees have different roots"
        yield Problem(("aggregation", "trees"), str(section.trees), expected)
    if not section.parents:
        return
    key = ("aggregation", "parents")
    try:
        root = given_root(fabric, section.parents)
    except NoTree as error:
        yield Problem(key, shown(dict(section.parents)), f"expected a tree: {error}")
        return
    if section.root not in (None, root):
        expected = f"expected {root}, the root of parents, or none"
        yield Problem(("aggregation", "root"), str(section.root), expected)


def aggregation_of_run(spec: Sections) -> AggregationOfRun | None:
    """The trees of a spec's groups; with a reason where there is none. None where switches do not
    aggregate, or where the spec has mistakes that are told elsewhere."""
    if spec.aggregation is None:
        return None
    assert isinstance(spec, Spec)
    try:
        plan = spec.plan
    except (ValueError, KeyError):
        return None
    trees, quota = spec.aggregation.trees, spec.aggregation.quota
    mine = _asked("", spec.workload, plan.hosts, quota, trees)
    ahead, behind = (
        tuple(
            tree
            for other in spec.beside
            if other.ahead is first
            for tree in _asked(other.name, other.workload, other.hosts, other.slots, trees)
        )
        for first in (True, False)
    )
    return _of_plan(plan, spec.aggregation.model_dump_json(by_alias=True), (*ahead, *mine, *behind))


@dataclass(frozen=True, slots=True)
class AskedTree:
    """A group that is to have a tree: of which job ("": the spec's own), its ranks and their hosts,
    what it reduces and how, and how many slots it asks for (None: an even share)."""

    job: str
    members: tuple[int, ...]
    hosts: tuple[str, ...]
    types: tuple[str, ...]
    ops: tuple[str, ...]
    quota: int | None


def _asked(
    job: str, workload: WorkloadSpec, hosts: Sequence[str], quota: int | None, trees: int
) -> tuple[AskedTree, ...]:
    """The trees of a job, in the order in which its groups are made."""
    if workload.reductions is None:
        return ()  # its groups are made as it runs (`on_demand`), or have no collectives
    types = (workload.dtype,)
    ops = tuple(sorted({*workload.reductions}))
    return tuple(
        AskedTree(job, members, tuple(hosts[rank] for rank in members), types, ops, quota)
        for members in used_groups(workload)
        for _ in range(trees)
    )


@lru_cache(maxsize=64)
def _of_plan(plan: Plan, given: str, asked: tuple[AskedTree, ...]) -> AggregationOfRun:
    section = AggregationSection.model_validate_json(given)
    trees = [tree_of(plan, section, each, turn) for turn, each in enumerate(asked)]
    if section.middles is not None:
        trees = list(_without_conflicts(plan, section.middles, trees))
    given_slots = _with_slots(section, asked, trees)
    mine = [tree for each, tree in zip(asked, given_slots, strict=True) if not each.job]
    groups = (mine[i : i + section.trees] for i in range(0, len(mine), section.trees))
    return AggregationOfRun(
        section=section, trees=tuple(tree for group in groups for tree in of_one_group(group))
    )


def of_one_group(trees: Sequence[TreeOfGroup]) -> Iterator[TreeOfGroup]:
    """The trees of a group, which know the switches of all of them; where one has a reason why
    there is none, the first such reason is that of all."""
    if len(trees) == 1:
        yield trees[0]
        return
    members = trees[0].members
    failed = next((tree.reason for tree in trees if tree.reason), "")
    if failed:
        yield from (TreeOfGroup(members=members, reason=failed) for _ in trees)
        return
    known = {
        place: (name, number)
        for tree in trees
        for place, name, number in zip(
            tree.places[len(members) :], tree.switches, tree.numbers, strict=True
        )
    }
    places = sorted(known)
    for part, tree in enumerate(trees):
        moved = {ROOT: ROOT}
        for old, place in enumerate(tree.places[len(members) :], start=len(members)):
            moved[old] = len(members) + places.index(place)
        parents = [OUTSIDE] * (len(members) + len(places))
        for old, parent in enumerate(tree.parents):
            parents[moved.get(old, old)] = moved[parent]
        yield tree.model_copy(
            update={
                "switches": tuple(known[place][0] for place in places),
                "numbers": tuple(known[place][1] for place in places),
                "places": (*tree.places[: len(members)], *places),
                "parents": tuple(parents),
                "part": part,
                "parts": len(trees),
            }
        )


def tree_of(plan: Plan, section: AggregationSection, asked: AskedTree, turn: int) -> TreeOfGroup:
    """The tree of a group, before slots are divided; `turn` chooses among roots that are alike."""
    switches = aggregating_switches(plan.fabric, section.switches)
    members = asked.members
    try:
        if section.parents:
            tree = given_tree(plan.fabric, asked.hosts, switches, section.parents)
        else:
            tree = aggregation_tree(plan.fabric, asked.hosts, switches, section.root, turn)
    except NoTree as error:
        return TreeOfGroup(members=members, reason=str(error))
    reason = unable(section, tree.switches, asked.types, asked.ops)
    if reason:
        return TreeOfGroup(members=members, reason=reason)
    numbers = switch_numbers(plan)
    places = {node.name: number for number, node in enumerate(plan.fabric.nodes)}
    return TreeOfGroup(
        members=members,
        switches=tree.switches,
        parents=tree.parents,
        numbers=tuple(numbers[name] for name in tree.switches),
        places=tuple(places[name] for name in (*asked.hosts, *tree.switches)),
    )


def switch_numbers(plan: Plan) -> dict[str, int]:
    """The numbers of switches where ranks are numbered (`collectives.in_network.node`)."""
    first = len(plan.hosts)
    return {node.name: first + place for place, node in enumerate(plan.fabric.routers)}


def unable(
    section: AggregationSection,
    switches: Sequence[str],
    types: Sequence[str],
    ops: Sequence[str],
) -> str:
    """The first of these switches that does not reduce these types, or by these operations, in
    words; "" where all do."""
    for switch in switches:
        node = section.of(switch)
        for does, known, wanted in (
            ("reduces", node.dtypes or (), types),
            ("reduces by", node.operations or (), ops),
        ):
            for one in wanted:
                if one not in known:
                    return f"{switch} {does} {', '.join(known) or 'nothing'}, and not {one}"
    return ""


def unable_to_reduce(
    section: CollectivesSection, members: Sequence[int], dtype: str, op: str
) -> str:
    """The reason why the switches of a group's trees do not reduce this type by this operation, as
    far as nothing of that is known before; "" where they do."""
    of_run = _of_section(section)
    if of_run is None:
        return ""
    switches = [switch for tree in of_run.of(members) for switch in tree.switches]
    return unable(of_run.section, switches, (dtype,), (op,))


def _without_conflicts(plan: Plan, middles: int, trees: list[TreeOfGroup]) -> Iterator[TreeOfGroup]:
    """Trees that can aggregate at once with those before them of the same sort; the others with the
    conflict as their reason."""
    by_sort: dict[tuple[int, int], ClosSwitches] = {}
    for tree in trees:
        if tree.reason:
            yield tree
            continue
        sort = sort_of(tree.members)
        switches = by_sort.setdefault(sort, ClosSwitches(plan.fabric, middles))
        name = f"ranks {'+'.join(map(str, tree.members))}"
        hosts = [plan.hosts[rank] for rank in tree.members]
        reason = switches.add(name, hosts, AggregationTree(tree.switches, tree.parents))
        yield TreeOfGroup(members=tree.members, reason=reason) if reason else tree


def _with_slots(
    section: AggregationSection, asked: Sequence[AskedTree], trees: Sequence[TreeOfGroup]
) -> Iterator[TreeOfGroup]:
    """The share of each tree in its nodes' slots. A quota is taken first come, first served; those
    without one divide evenly what is left of the node on which they have least."""
    slots = {switch: section.of(switch).slots or 0 for tree in trees for switch in tree.switches}
    left = dict(slots)
    taken: dict[str, Counter[str]] = {switch: Counter() for switch in slots}
    found: list[TreeOfGroup] = []
    for each, tree in zip(asked, trees, strict=True):
        if tree.reason or each.quota is None:
            found.append(tree)
            continue
        fewest = min(tree.switches, key=left.__getitem__)
        if left[fewest] < each.quota:
            others = [f"job {job} has {n}" for job, n in taken[fewest].items() if job != each.job]
            whose = f" ({', '.join(others)})" if others else ""
            reason = (
                f"{fewest} has {left[fewest]} of its {slots[fewest]} slots left{whose}, and the "
                f"quota of a group is {each.quota}"
            )
            found.append(TreeOfGroup(members=tree.members, reason=reason))
            continue
        for switch in tree.switches:
            left[switch] -= each.quota
            taken[switch][each.job] += each.quota
        found.append(tree.model_copy(update={"slots": each.quota, "fewest": fewest}))
    on = Counter(
        switch
        for each, tree in zip(asked, trees, strict=True)
        if each.quota is None
        for switch in tree.switches
    )
    for each, tree in zip(asked, found, strict=True):
        if tree.reason or each.quota is not None:
            yield tree
            continue
        shares = {switch: left[switch] // on[switch] for switch in tree.switches}
        fewest = min(tree.switches, key=shares.__getitem__)
        yield tree.model_copy(update={"slots": shares[fewest], "fewest": fewest})


def of_group(section: CollectivesSection, members: Sequence[int]) -> CollectivesSection:
    """The section with the trees of one group alone."""
    of_run = _of_section(section)
    if of_run is None:
        return section
    mine = of_run.model_copy(update={"trees": of_run.of(members)})
    return section.model_copy(update={"aggregation": mine})


def _of_section(section: CollectivesSection) -> AggregationOfRun | None:
    return section.aggregation if isinstance(section, CollectivesOfRun) else None


def trees_of(section: CollectivesSection) -> tuple[TreeOfGroup, ...]:
    """The trees of a run, where collectives may run on them."""
    of_run = _of_section(section)
    return () if of_run is None else tuple(tree for tree in of_run.trees if not tree.reason)


def nodes_of(section: CollectivesSection) -> tuple[Aggregator, ...]:
    """The aggregation nodes that take part in a run, by number: those of its trees. Empty where
    none do."""
    of_run = _of_section(section)
    if of_run is None:
        return ()
    found = {node.number: node for tree in trees_of(section) for node in _nodes(of_run, tree)}
    return tuple(found[number] for number in sorted(found))


def _nodes(of_run: AggregationOfRun, tree: TreeOfGroup) -> tuple[Aggregator, ...]:
    return tuple(
        replace(
            node_of(of_run.section, name, number),
            pipelined=is_selected(name, of_run.pipelined),
        )
        for name, number in zip(tree.switches, tree.numbers, strict=True)
    )


def node_of(section: AggregationSection, switch: str, number: int) -> Aggregator:
    """The node of a switch, which has this number."""
    own = section.of(switch)
    return Aggregator(switch, number, own.rate_bps or 0, own.latency_ns or 0)


def aggregation(section: CollectivesSection, options: Mapping[str, Any], ranks: int) -> Aggregation:
    """The algorithm on the trees of a group, which are the section's only ones (`of_group`). Raises
    Refused for what the switches do not have room for, DoesNotFit for other mistakes."""
    found = algorithm(Aggregation.name, **options)
    assert isinstance(found, Aggregation)
    of_run = _of_section(section)
    if of_run is None:
        allowed = "with a section aggregation, which says what switches reduce"
        raise DoesNotFit("algorithm", Aggregation.name, allowed)
    if not of_run.trees:
        allowed = "a group in which the workload has collectives: each of these has a tree"
        raise Refused("", f"aggregation for a group of {ranks} ranks", allowed)
    tree = min(of_run.trees, key=lambda each: each.slots)
    if tree.reason:
        raise Refused("algorithm", Aggregation.name, f"by hosts: {tree.reason}")
    if not tree.slots or found.slots > tree.slots:
        wanted = str(found.slots or "a slot")
        all_of_it = tree.slots == of_run.section.of(tree.fewest).slots
        whose = "all that {} has" if all_of_it else "the group's of those of {}"
        allowed = f"at most {tree.slots}: {whose.format(tree.fewest)}"
        raise Refused("slots", wanted, allowed)
    mode = found.mode or of_run.section.mode
    return replace(
        found,
        mode=mode,
        slots=found.slots or tree.slots,
        parents=of_run.trees[0].parents,
        nodes=_nodes(of_run, tree),
        payload_bytes=min(of_run.section.of(name).payload_bytes or 0 for name in tree.switches),
        piece_bytes=of_run.section.piece_bytes,
        stream_window=of_run.section.window,
        turns=tuple(
            (each.parents, _hold(of_run, each) if mode == STREAMING else None)
            for each in of_run.trees
        ),
    )


def _hold(of_run: AggregationOfRun, tree: TreeOfGroup) -> Hold | None:
    """The locks of a group's stream; None where streams do not wait for each other."""
    ranks = len(tree.members)
    links = [(child, parent) for child, parent in enumerate(tree.parents) if parent >= 0]
    locks: list[tuple[int, int]]
    match of_run.section.streams:
        case "one-a-switch":
            inside = tree.parents[ranks:]
            locks = [
                (place, -1)
                for place, parent in zip(tree.places[ranks:], inside, strict=True)
                if parent != OUTSIDE
            ]
        case "one-a-port":
            locks = [(tree.places[parent], tree.places[child]) for child, parent in links]
            locks += [
                (tree.places[child], tree.places[parent])
                for child, parent in links
                if child >= ranks
            ]
        case _:
            return None
    return Hold(tree.parents.index(ROOT), tuple(sorted(locks)))
