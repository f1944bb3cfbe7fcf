"""Messages of a collective as they were seen, where no algorithm of ours says what its ranks do.

What a rank did is told by the order in which messages left it and came to it: what left after
something had come is taken to have waited for that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """A message between positions in a collective's ranks, and when its first byte left and its
    last one came, on a clock of all ranks."""

    source: int
    destination: int
    size_bytes: int
    sent_ns: int
    come_ns: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """The (source, destination, bytes) of messages, by positions in a collective's ranks. `acts`
    has what each rank did, in order: m is that message m left it, ~m that it came. Messages of up
    to `eager_bytes` leave at once; longer ones are announced, and leave when the receiver has
    answered."""

    messages: tuple[tuple[int, int, int], ...]
    acts: tuple[tuple[int, ...], ...]
    eager_bytes: int

    def begins_by_sending(self, rank: int) -> bool:
        """Whether what a rank (by position) did first was to send."""
        return bool(self.acts[rank]) and self.acts[rank][0] >= 0

    @classmethod
    def of(cls, messages: Iterable[SeenMessage], ranks: int, eager_bytes: int) -> Exchange:
        """What so many ranks did, by when they did it."""
        ordered = sorted(messages, key=lambda one: (one.sent_ns, one.source, one.destination))
        acts: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
        for number, each in enumerate(ordered):
            acts[each.source].append((each.sent_ns, number))
            acts[each.destination].append((each.come_ns, ~number))
        return cls(
            tuple((each.source, each.destination, each.size_bytes) for each in ordered),
            tuple(tuple(act for _, act in sorted(of_rank)) for of_rank in acts),
            eager_bytes,
        )
