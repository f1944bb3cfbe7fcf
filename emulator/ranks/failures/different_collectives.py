"""The words for ranks that have called different collectives, by what each noted of its calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

POSTS = "posts"
"""The folder, beside the logs of ranks, in which each has a file (workloads/observer/posts.py)."""
_ANY_SIZE = -1


@dataclass(frozen=True, slots=True)
class _Call:
    kind: str
    size_bytes: int
    root: int

    def __str__(self) -> str:
        size = "" if self.size_bytes <= 0 else f" of {self.size_bytes:,} B"
        rooted = self.kind in ("broadcast", "reduce", "gather", "scatter")
        return f"{self.kind}{size}" + (f" with root {self.root}" if rooted else "")

    def fits(self, other: _Call) -> bool:
        """Whether the two can be of one collective."""
        sizes = {self.size_bytes, other.size_bytes} - {_ANY_SIZE}
        return (self.kind, self.root) == (other.kind, other.root) and len(sizes) <= 1


def different_collectives(ranks: Path) -> str:
    """A line about the first collective of a group that ranks have called differently, by what is
    below the folder `ranks`; empty where there is none."""
    calls: dict[tuple[int, str], dict[int, _Call]] = defaultdict(dict)
    for file in sorted((ranks / POSTS).glob("*")):
        for line in file.read_text(errors="replace").splitlines():
            words = line.split()
            if len(words) == 5:
                number, label, kind, size, root = words
                call = _Call(kind, int(size), int(root))
                calls[int(number), label][int(file.name)] = call
    for (number_in_group, group), by_rank in sorted(calls.items()):
        first = by_rank[min(by_rank)]
        if not all(call.fits(first) for call in by_rank.values()):
            told = _told(group, number_in_group, by_rank)
            return f"\nRanks have called different collectives: {told}"
    return ""


def _told(label: str, number: int, by_rank: Mapping[int, _Call]) -> str:
    ranks_of: dict[_Call, list[int]] = defaultdict(list)
    for rank, call in sorted(by_rank.items()):
        ranks_of[call].append(rank)
    said = "; ".join(f"{_ranks(ranks)} {call}" for call, ranks in ranks_of.items())
    return f"as number {number} of group {label}, {said}"


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank {shown} called" if len(ranks) == 1 else f"ranks {shown} called"
