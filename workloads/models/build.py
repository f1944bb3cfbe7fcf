"""The actions of a rank and the files that it reads, whichever workload it has: found by
`topologies.spec.workloads`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import cast

from topologies.registration import function_at
from topologies.spec.spec import Spec
from topologies.spec.workload_section import WorkloadSpec
from topologies.spec.workloads import WORKLOADS, named_parts
from workloads.models.step import Action

Actions = Callable[[WorkloadSpec, int], Iterator[Action]]

_ACTIONS = cast(Mapping[str, Actions], named_parts("actions", FunctionType))


def has_actions(workload: WorkloadSpec) -> bool:
    """Whether its ranks do actions: it is no list, no replay and no program."""
    return workload.kind in _ACTIONS


def step_of(workload: WorkloadSpec, rank: int) -> Iterator[Action]:
    """One iteration of a rank. Raises KeyError for a workload without actions."""
    return _ACTIONS[workload.kind](workload, rank)


def inputs_of(spec: Spec) -> dict[str, str]:
    """The files that a workload's ranks read, made here: their contents, by their place below the
    run directory. Raises what the workload raises for files that it reads itself."""
    place = WORKLOADS[spec.workload.kind].inputs
    if place is None:
        return {}
    return cast(Callable[[Spec], dict[str, str]], function_at(place))(spec)
