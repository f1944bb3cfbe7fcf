"""A participant's place in the aggregation tree of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from topologies.aggregation_tree import children
from workloads.execution.copies.place import CopiesPlace
from workloads.execution.traffic_class import NO_CLASS, TrafficClass


@dataclass(frozen=True, slots=True)
class TreePlace:
    """`me` is the participant's number, `parents` are by participant (below 0: of the root, and of
    those that are outside of the tree). `directory` is one that all participants see, for what
    they agree on before anything is sent: the addresses of connections, and which collective comes
    next. `traffic` is the class of what it sends. The tree is one `part` of so many `parts` that
    its group has. A node of it is `losable` where ranks go on without it. `beside` are further
    edges, each a child and its parent, of participants with several parents. Where messages between
    hosts and their server's switch are copies, `copies` is where the participant finds its ends,
    and `nodes` has the host or switch of each participant."""

    me: int
    parents: tuple[int, ...]
    interface: str
    directory: Path
    traffic: TrafficClass = NO_CLASS
    part: int = 0
    parts: int = 1
    losable: bool = False
    beside: tuple[tuple[int, int], ...] = ()
    nodes: tuple[str, ...] = ()
    copies: CopiesPlace | None = None

    @property
    def parent(self) -> int | None:
        """The participant above; None at the root."""
        return self.parents[self.me] if self.parents[self.me] >= 0 else None

    @property
    def above(self) -> tuple[int, ...]:
        """All participants above."""
        further = (parent for child, parent in self.beside if child == self.me)
        return (*(() if self.parent is None else (self.parent,)), *further)

    @property
    def children(self) -> tuple[int, ...]:
        further = (child for child, parent in self.beside if parent == self.me)
        return (*children(self.parents, self.me), *further)

    @property
    def switches(self) -> tuple[int, ...]:
        """All participants that have somebody below."""
        further = {parent for _, parent in self.beside}
        return tuple(sorted({parent for parent in self.parents if parent >= 0} | further))

    def requests_of(self, participant: int) -> Path:
        """The pipe in which a switch is told what comes next."""
        return self.directory / f"requests.{participant}"


def rescue_pipe(directory: Path, member: int) -> Path:
    """The pipe in which a member of a group is told that a node has died, and how far the others
    have come; `directory` is that of the group's first tree."""
    return directory / f"rescue.{member}"
