"""The parts of ranks in a collective, as the engine is told of them."""

from __future__ import annotations

from dataclasses import dataclass

from collectives.carried import CarriedSection
from collectives.kinds import Kind, Shape
from collectives.schedule.operations import Await, CompiledPrograms, Start
from simulation.driven_engine import DrivenEngine
from simulation.parts import SENDS_FIRST, WAITS, PartsOfRanks, part_words


class UnknownPost(ValueError):
    """A rank has posted something that cannot be carried; the words are for its program."""


@dataclass(frozen=True, slots=True)
class Post:
    """A rank's post: its part in a collective, or an end of a message.

    `name` tells it from all others of the `group`. `member` is the rank's position among the
    `ranks`, `root` that of the root, or of a message's other end. An all-to-all of unequal parts
    has what the rank sends to each and receives from each, in bytes."""

    group: str
    name: str
    kind: str
    size_bytes: int
    element_bytes: int
    root: int
    member: int
    ranks: tuple[int, ...]
    sends: tuple[int, ...]
    receives: tuple[int, ...]

    @property
    def is_message(self) -> bool:
        """Whether two ranks take part: one that sends, one that receives."""
        return self.kind in ("send", "recv")

    @property
    def alike(self) -> tuple[object, ...]:
        """All that those who take part must agree on."""
        if self.is_message:
            return ("message", self.ranks)
        sized = () if self.sends else (self.size_bytes, self.element_bytes)
        return (self.kind, self.root, self.ranks, *sized)

    @property
    def members(self) -> int:
        """How many take part."""
        return 2 if self.is_message else len(self.ranks)


@dataclass(frozen=True, slots=True)
class _Parts:
    """A collective as the engine knows it: the part of each member, and how many tags its messages
    take. `told` are the keys of its record that say how it ran."""

    numbers: list[int]
    tags: int
    told: dict[str, object]


class PartsOfCollectives:
    """The numbers by which an engine knows parts, each told once; collectives run by a section."""

    def __init__(self, engine: DrivenEngine, section: CarriedSection) -> None:
        self._engine = engine
        self._section = section
        self._known: dict[tuple[object, ...], _Parts] = {}

    def told(self, post: Post) -> dict[str, object]:
        """The keys of a post's record that say how it runs; none for Gloo's own way."""
        return {} if post.is_message or post.sends else self._of(post).told

    def tags(self, post: Post) -> int:
        """How many tags its messages take."""
        if post.is_message:
            return 1
        if post.sends:
            return len(post.ranks) ** 2
        return self._of(post).tags

    def number(self, post: Post) -> int:
        """The part of a post's member. Raises UnknownPost."""
        if post.is_message:
            return self._single(post)
        if post.sends:
            return self._uneven(post)
        return self._of(post).numbers[post.member]

    def _of(self, post: Post) -> _Parts:
        many = len(post.ranks)
        sizes = post.size_bytes, post.element_bytes
        key = (post.kind, *sizes, post.root, self._section.of(post.ranks))
        if key not in self._known:
            try:
                kind = Kind(post.kind)
                shape = Shape(kind, post.size_bytes, many, post.element_bytes, post.root)
                found = self._section.collective(shape, post.ranks)
                parts = PartsOfRanks.of(found.schedule, shape)
            except ValueError:  # CollectiveError is one
                raise UnknownPost(f"the simulated network carries no {post.kind}") from None
            numbers = [self._engine.part(each) for each in parts.words]
            self._known[key] = _Parts(numbers, parts.tags, found.told)
        return self._known[key]

    def _single(self, post: Post) -> int:
        """The end of a message: posted, and waited for."""
        sends = post.kind == "send"
        key = ("message", sends, post.member, post.root, post.size_bytes)
        if key not in self._known:
            ends = (post.member, post.root) if sends else (post.root, post.member)
            programs = CompiledPrograms()
            programs.message(*ends, post.size_bytes)
            own, none = [0], list[int]()
            operations = Start(own, none), Await(own, none)
            if not sends:
                operations = Start(none, own), Await(none, own)
            programs.program(post.member, [*operations])
            words = part_words(programs, [0], {end: end for end in ends})
            self._known[key] = _Parts([self._engine.part(words)], 1, {})
        return self._known[key].numbers[0]

    def _uneven(self, post: Post) -> int:
        """A rank's part of an all-to-all of unequal parts: as of equal ones (gloo/alltoallv.cc).
        The other ranks number the same messages alike."""
        many, member = len(post.ranks), post.member
        key = ("uneven", member, post.sends, post.receives)
        if key not in self._known:
            words, steps = list[int](), list[int]()
            for shift in range(1, many):
                to, come = (member + shift) % many, (member - shift) % many
                words += (member, to, member * many + to, post.sends[to])
                words += (come, member, come * many + member, post.receives[come])
                steps += (SENDS_FIRST, 1, 1, 2 * shift - 2, 2 * shift - 1)
            for message in range(0, 2 * (many - 1), 2):
                steps += (WAITS, 1, 1, message, message + 1)
            part = self._engine.part([2 * (many - 1), *words, 0, 0, 2 * (many - 1), *steps])
            self._known[key] = _Parts([part], many**2, {})
        return self._known[key].numbers[0]
