"""The groups of ranks in which a workload's collectives run, and the class of traffic of each.

FRED gives model-parallel collectives, the pipeline and data-parallel ones virtual circuits of their
own, of which the first pre-empt the last (Rashidi et al., ISCA 2025). Here each has a class that
ports serve by strict priority, or by weight: what has begun to be sent is one frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from topologies.spec.errors import Problem, shown
from topologies.spec.sections import Sections
from topologies.spec.workload_section import WorkloadSpec
from topologies.spec.workload_types import GroupName

_SORTS = {"tensor": "model", "model": "model", "data": "data"}
"""The purposes of the groups of `collectives.classes`."""


def groups_of(workload: WorkloadSpec) -> dict[GroupName, list[list[int]]]:
    """The groups of ranks of a step's collectives; each kind of group covers all ranks."""
    return {"world": [list(range(workload.ranks))], **workload.groups_of_ranks()}


def used_groups(workload: WorkloadSpec) -> tuple[tuple[int, ...], ...]:
    """The groups of two ranks and more that have collectives, each once, in the order in which
    ranks make them: all ranks where these are not divided."""
    groups = groups_of(workload)
    if len(groups) > 1:
        del groups["world"]
    found = [tuple(part) for parts in groups.values() for part in parts if len(part) > 1]
    return tuple(dict.fromkeys(found))


def sort_of(members: Sequence[int]) -> tuple[int, int]:
    """The form of groups that run the same collectives at once: size and stride."""
    return len(members), members[1] - members[0]


def selectors_of_groups(spec: Sections) -> dict[tuple[int, ...], int]:
    """The DSCP class selector of what groups send, by their ranks; of groups that have one of their
    own. Empty for several jobs."""
    found: dict[tuple[int, ...], int] = {}
    if spec.jobs:
        return found
    given = dict(spec.collectives.classes)
    for sort, members in _groups(spec.workload):
        if given[sort] is not None:
            found[members] = spec.selector(given[sort])
    return found


def _groups(workload: WorkloadSpec) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The purpose of each group of ranks. All ranks come first: where they are a group of another
    sort, too, they are of that."""
    groups = groups_of(workload)
    if workload.whole is not None:
        yield workload.whole, tuple(range(workload.ranks))
    for name, parts in groups.items():
        if name in _SORTS:
            yield from ((_SORTS[name], tuple(part)) for part in parts if len(part) > 1)


def class_problems(spec: Sections) -> Iterator[Problem]:
    """Classes of groups that the workload does not have, and of queue pairs."""
    sorts = sorted({sort for sort, _ in _groups(spec.workload)})
    for sort, name in spec.collectives.classes:
        if name is None:
            continue
        key = ("collectives", "classes", sort)
        if spec.transport.of_programs:
            yield Problem(key, shown(name), "expected transport.kind: tcp")
        if sort not in sorts:
            has = ", ".join(sorts) or "none: expected a workload of kind layers or training"
            yield Problem(key, shown(name), f"groups of this workload: {has}")
