"""The operations that ranks have called last, as each has noted them while it ran
(workloads/observer/posts.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from workloads.observer import POSTS
from workloads.observer.posts import ANY, GROUPS

State = Literal["posted", "queued", "waits", "left", "over", "failed"]
_ROOTED = ("broadcast", "reduce", "gather", "scatter")


@dataclass(frozen=True, slots=True)
class Call:
    """An operation of a rank. `number` counts those of its group, or the messages between two ranks
    of one tag. `root` is the other end of a message (-1: anybody), `at_ns` when it came into its
    state and `posted_ns` when it was posted (monotonic clock), and a size of -1 is not known."""

    number: int
    group: str
    kind: str
    size_bytes: int
    root: int
    state: State
    at_ns: int
    tag: int
    posted_ns: int = 0

    @property
    def is_message(self) -> bool:
        """Whether it has another end, and no group of ranks that all call it."""
        return self.kind in ("send", "recv")

    @property
    def what(self) -> str:
        """Its kind and size, and its root where it has one."""
        size = "" if self.size_bytes <= 0 else f" of {self.size_bytes:,} B"
        if self.is_message:
            other = "anybody" if self.root == ANY else f"rank {self.root}"
            way = "to" if self.kind == "send" else "from"
            return f"{self.kind}{size} {way} {other}"
        return f"{self.kind}{size}" + (f" with root {self.root}" if self.kind in _ROOTED else "")

    def __str__(self) -> str:
        group, _, name = self.group.partition("/")
        if name:
            return f"{self.what} ({name} of group {group})"
        tag = f", tag {self.tag}" if self.is_message else ""
        return f"{self.what} (number {self.number} of group {group}{tag})"

    def fits(self, other: Call) -> bool:
        """Whether the two can be of one collective."""
        sizes = {self.size_bytes, other.size_bytes} - {ANY}
        return (self.kind, self.root) == (other.kind, other.root) and len(sizes) <= 1


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of each rank that has noted any, in order, and the ranks of groups. A group without
    ranks there is everybody's. `counts` has how many operations a rank has posted in all, and how
    many of these are over."""

    by_rank: Mapping[int, Sequence[Call]]
    members: Mapping[str, Sequence[int]]
    counts: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def everybody(self) -> Sequence[int]:
        """All ranks that are known, of whichever group."""
        return sorted({*self.by_rank, *(rank for each in self.members.values() for rank in each)})

    def members_of(self, call: Call, everybody: Sequence[int]) -> Sequence[int]:
        """The ranks that are to call what `call` is a part of."""
        group = call.group.partition("/")[0]
        if group in self.members:
            return self.members[group]
        ends = group.rpartition(":")[2].split("-")
        if ":" in group and all(end.isdigit() for end in ends):
            return tuple(int(end) for end in ends)
        return everybody


def read_calls(ranks: Path) -> Calls:
    """The calls that are noted below the folder `ranks`. A line that a rank has left half written
    says nothing."""
    by_rank: dict[int, Sequence[Call]] = {}
    members: dict[str, Sequence[int]] = {}
    counts: dict[int, tuple[int, int]] = {}
    for file in sorted((ranks / POSTS).glob("*")):
        text = file.read_text(errors="replace")
        if file.name.endswith(GROUPS):
            for line in text.splitlines():
                name, _, listed = line.rpartition(" ")
                numbers = listed.split(",")
                if name and all(number.isdigit() for number in numbers):
                    members[name] = tuple(int(number) for number in numbers)
        elif file.name.isdigit():
            by_rank[int(file.name)] = tuple(sorted(_calls(text), key=lambda each: each.at_ns))
            counts[int(file.name)] = _count(text)
    return Calls(by_rank, members, counts)


def _calls(text: str) -> Iterator[Call]:
    for line in text.split("\n"):
        words = line.strip("\0 ").split()
        if len(words) != 9 or words[5] not in get_args(State):
            continue
        number, group, kind, size, root, state, at_ns, tag, posted_ns = words
        try:
            yield Call(
                int(number),
                group,
                kind,
                int(size),
                int(root),
                _state(state),
                int(at_ns),
                int(tag),
                int(posted_ns),
            )
        except ValueError:
            continue


def _count(text: str) -> tuple[int, int]:
    """The counts of the last line of a file; zeros where it does not."""
    for line in reversed(text.split("\n")):
        words = line.strip("\0 ").split()
        if len(words) == 3 and words[0] == "posted" and words[1].isdigit() and words[2].isdigit():
            return int(words[1]), int(words[2])
    return 0, 0


def _state(word: str) -> State:
    return next(state for state in get_args(State) if state == word)
