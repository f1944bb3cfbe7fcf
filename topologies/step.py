"""One iteration of a model's training as a rank's main thread does it, action by action.

Said once, for all who need it: ranks run it, Chakra's export draws it, predictors price it, and a
guest gets memory for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

GroupName: TypeAlias = Literal["world", "tensor", "data"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A computation of `flops` operations that moves `moved_bytes`; it ends before the next
    action begins."""

    name: str
    phase: str
    flops: int
    moved_bytes: int


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective begins. `name` tells it apart from the others of the iteration; `elements` are
    those of a rank's whole array."""

    name: str
    phase: str
    kind: Literal["all_reduce", "all_to_all"]
    elements: int
    group: GroupName


@dataclass(frozen=True, slots=True)
class Message:
    """A message between two ranks of the run begins, on one of the two."""

    name: str
    phase: str
    elements: int
    source: int
    destination: int


@dataclass(frozen=True, slots=True)
class Wait:
    """The rank waits for the collective or message of that name; once for each."""

    name: str


Action: TypeAlias = Kernel | Collective | Message | Wait
