"""Trees of groups that are made while a program runs, as SHARP's aggregation manager gives them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from collectives.algorithms.aggregation import Aggregation
from collectives.in_network.node import Aggregator
from collectives.in_network.of_run import (
    AskedTree,
    node_of,
    of_one_group,
    switch_numbers,
    tree_of,
)
from collectives.program import PROGRAM_KINDS
from topologies.aggregation_tree import aggregating_switches
from topologies.spec.aggregation.section import AggregationSection
from topologies.spec.collectives_section import AggregationOfRun, CollectivesSection, TreeOfGroup
from topologies.spec.sections import Sections
from topologies.spec.spec import Spec


class TreesOnDemand:
    """The trees and the slots of the switches of a run, first come, first served.

    A job's `quota` is what each tree of it takes of each of its nodes. Without one a tree takes
    half of what its fullest node has left, one slot at least. Trees that are known before the run,
    of other jobs, have theirs already. Roots take turns over all trees.
    """

    def __init__(self, parts: Mapping[str, Spec], fixed: Sequence[tuple[str, TreeOfGroup]]) -> None:
        """`parts` are the jobs, each as a spec with one workload, by name (the one of a spec
        without jobs has none), and `fixed` the trees that are known before, with their jobs."""
        self._parts = parts
        self._turn = len(fixed)
        self._taken: dict[str, Counter[str]] = {}
        self._given: dict[int, list[TreeOfGroup]] = {}
        for job, tree in fixed:
            self._take(job, tree, tree.slots)

    def give(self, job: str, members: Sequence[int]) -> tuple[int, AggregationOfRun]:
        """The trees of a group of a job's ranks, and a number for `take_back`. Where there is none,
        they have the reason."""
        spec = self._parts[job]
        section = spec.aggregation
        assert section is not None, "a job whose programs run on switches"
        hosts = tuple(spec.plan.hosts[rank] for rank in members)
        asked = AskedTree(job, tuple(members), hosts, (), (), section.quota)
        number = len(self._given)
        trees = self._given[number] = []
        for _ in range(section.trees):
            tree = tree_of(spec.plan, section, asked, self._turn)
            self._turn += 1
            trees.append(tree if tree.reason else self._with_slots(job, section, tree))
        found = AggregationOfRun(section=section, trees=tuple(of_one_group(trees)))
        if any(tree.reason for tree in trees):
            self.take_back(job, number)
        return number, found

    def take_back(self, job: str, number: int) -> None:
        """The slots of trees that nobody uses any more."""
        for tree in self._given[number]:
            self._take(job, tree, -tree.slots)
        self._given[number] = []

    def _with_slots(self, job: str, section: AggregationSection, tree: TreeOfGroup) -> TreeOfGroup:
        left = {
            switch: (section.of(switch).slots or 0) - self._taken.get(switch, Counter()).total()
            for switch in tree.switches
        }
        fewest = min(tree.switches, key=left.__getitem__)
        wanted = section.quota or max(1, left[fewest] // 2)
        if left[fewest] < wanted:
            who = [
                f"{f'job {each} has' if each else 'groups before have'} {slots}"
                for each, slots in self._taken.get(fewest, Counter()).items()
                if slots
            ]
            whose = f" ({', '.join(who)})" if who else ""
            reason = (
                f"{fewest} has {left[fewest]} of its {section.of(fewest).slots} slots left{whose}, "
                f"and a tree of this group takes {wanted}"
            )
            return TreeOfGroup(members=tree.members, reason=reason)
        found = tree.model_copy(update={"slots": wanted, "fewest": fewest})
        self._take(job, found, wanted)
        return found

    def _take(self, job: str, tree: TreeOfGroup, slots: int) -> None:
        for switch in tree.switches:
            self._taken.setdefault(switch, Counter())[job] += slots


def by_switches(section: CollectivesSection) -> list[str]:
    """The kinds of collectives that switches do."""
    if section.backend == "gloo":
        return []
    return [
        str(kind)
        for kind in PROGRAM_KINDS
        if getattr(section, kind).get("algorithm") == Aggregation.name
    ]


def makes_trees(spec: Sections) -> bool:
    """Whether the workload is a program whose collectives switches may do."""
    return (
        spec.only_workload is not None
        and spec.only_workload.program is not None
        and spec.aggregation is not None
        and bool(by_switches(spec.collectives))
    )


def nodes_on_demand(spec: Spec) -> tuple[Aggregator, ...]:
    """The nodes that may be in a tree of a group that the program of a spec makes, in the fabric's
    order; none where it makes no trees."""
    section = spec.aggregation
    if section is None or not makes_trees(spec):
        return ()
    numbers = switch_numbers(spec.plan)
    switches = aggregating_switches(spec.plan.fabric, section.switches)
    return tuple(node_of(section, switch, numbers[switch]) for switch in switches)
