"""A collective call: which kind, over which ranks, of which size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from collectives.kinds import KINDS, Kind, Shape, Traits
from collectives.schedule.gloo import GLOO
from collectives.schedule.schedule import CollectiveError, Post, Schedule

__all__ = ["CollectiveCall", "CollectiveError", "Shaped"]


class Shaped:
    """The fields that make a shape: a call has them, and a measured collective."""

    __slots__ = ()

    kind: str
    size_bytes: int
    ranks: tuple[int, ...]
    element_bytes: int
    root: int
    degree: int | None
    peer: int | None
    shift: int | None

    @property
    def traits(self) -> Traits:
        """The row of its kind in the table of kinds."""
        return Kind(self.kind).traits

    @property
    def shape(self) -> Shape:
        """It without names, members and times."""
        return Shape(
            Kind(self.kind),
            self.size_bytes,
            len(self.ranks),
            self.element_bytes,
            self.root,
            self.degree,
            self.peer,
            self.shift,
        )


@dataclass(frozen=True, slots=True)
class CollectiveCall(Shaped):
    """One collective, by torch's name for it.

    `size_bytes` is what the kind's `size_of` says. `ranks` are the members in group order; `root`
    and `peer` are positions in them, as in ranks/NNN.jsonl. The `degree` members after the root
    send in an incast, all others when None; member r of a permutation sends to r + `shift`, or by
    the setting's seed when None. `schedule` is what its participants send.
    `name` is its id in a run, for predictors that have results by name; calls that differ in it
    only are equal. Raises CollectiveError when these do not fit together.
    """

    kind: str
    size_bytes: int
    ranks: tuple[int, ...]
    element_bytes: int = 4
    root: int = 0
    degree: int | None = None
    peer: int | None = None
    shift: int | None = None
    schedule: Schedule = field(default=GLOO, hash=False, repr=False)
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise CollectiveError(f"unknown collective {self.kind!r}: known are {', '.join(KINDS)}")
        if self.size_bytes < 0 or self.element_bytes < 1:
            raise CollectiveError(f"{self.kind}: size_bytes >= 0 and element_bytes >= 1 expected")
        if not self.ranks or len(set(self.ranks)) != len(self.ranks):
            raise CollectiveError(f"{self.kind}: ranks must be distinct, found {self.ranks}")
        last = len(self.ranks) - 1
        if not 0 <= self.root <= last:
            raise CollectiveError(f"{self.kind}: root {self.root} is not in 0..{last}")
        if self.peer is not None and not 0 <= self.peer <= last:
            raise CollectiveError(f"{self.kind}: peer {self.peer} is not in 0..{last}")
        if self.degree is not None and not 1 <= self.degree <= max(1, last):
            raise CollectiveError(f"{self.kind}: degree {self.degree} is not in 1..{last}")

    @property
    def world(self) -> int:
        return len(self.ranks)

    @property
    def participants(self) -> tuple[int, ...]:
        """The ranks, and after them the switches that take part."""
        return self.schedule.participants(self.ranks)

    def posts(self, seed: int = 1) -> Iterator[Post]:
        """All messages between participants. Raises CollectiveError."""
        return self.schedule.posts(self.shape, seed)
