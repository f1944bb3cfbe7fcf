"""Waits of messages for others in the queues of ports, told while packet trains pass them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence


class QueueWaits:
    """Waits behind what belongs to somebody else. `owners` has whose each message is.

    A port serves in order, so a train waits for just those before it that are not yet through. The
    part of a message counts that waits longest at a port behind the same owner.
    """

    def __init__(self, owners: Sequence[int]) -> None:
        self._owners = owners
        self._before: dict[int, deque[tuple[int, float, float]]] = defaultdict(deque)
        self._longest: dict[tuple[int, int, int], float] = {}

    def passes(self, link: int, message: int, came: float, begins: float, ends: float) -> None:
        """A train of a message comes to a port, which sends it from `begins` to `ends`. Times in
        ns, in the order in which trains come."""
        owner, before = self._owners[message], self._before[link]
        while before and before[0][2] <= came:
            before.popleft()
        if begins > came:
            waited: dict[int, float] = {}
            for other, other_begins, other_ends in before:
                if other != owner:
                    passed = other_ends - max(other_begins, came)
                    waited[other] = waited.get(other, 0.0) + passed
            for other, took in waited.items():
                key = link, message, other
                self._longest[key] = max(self._longest.get(key, 0.0), took)
        before.append((owner, begins, ends))

    def by_link(self) -> dict[tuple[int, int, int], float]:
        """(link, whose messages waited, behind whose) -> ns, added up over the messages."""
        found: dict[tuple[int, int, int], float] = defaultdict(float)
        for (link, message, other), took in self._longest.items():
            found[link, self._owners[message], other] += took
        return dict(found)
