"""One iteration of a model's training as a rank's main thread does it, action by action.

It is defined once for all its users: ranks run it, Chakra's export draws it, predictors price it,
and the estimate of a guest's memory adds it up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from collectives.kinds import Kind
from topologies.spec.workload_types import GroupName


@dataclass(frozen=True, slots=True)
class ComputeKernel:
    """A computation of `flops` operations that moves `moved_bytes`; it ends before the next
    action begins."""

    name: str
    phase: str
    flops: int
    moved_bytes: int


@dataclass(frozen=True, slots=True)
class Pause:
    """A computation whose time is known, whatever the device; it ends before the next action
    begins."""

    name: str
    phase: str
    duration_ns: int


@dataclass(frozen=True, slots=True)
class StartCollective:
    """A collective begins. `name` tells it apart from the others of the iteration; `elements` are
    those of a rank's whole array."""

    name: str
    phase: str
    kind: Kind
    elements: int
    group: GroupName


@dataclass(frozen=True, slots=True)
class StartMessage:
    """A message between two ranks of the run begins, on one of the two."""

    name: str
    phase: str
    elements: int
    source: int
    destination: int


@dataclass(frozen=True, slots=True)
class WaitFor:
    """The rank waits for the collective or message of that name; once for each."""

    name: str


Action: TypeAlias = ComputeKernel | Pause | StartCollective | StartMessage | WaitFor
