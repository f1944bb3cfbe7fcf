"""The slots of one rank for chunks of one group's collectives, as its engine fills them."""

from __future__ import annotations

from collectives.schedule.operations import Runner
from collectives.start_order import StartOrder


class RankSlots:
    """Starts chunks by marks, in the order that ranks keep to (`collectives.start_order`)."""

    def __init__(self, order: StartOrder) -> None:
        self.order = order
        self._marks: list[list[int]] = []

    def post(self, priority: int, marks: list[int]) -> tuple[int, int]:
        """A collective whose chunks start with these marks. Its number here, and what the rank
        proposes for it."""
        self._marks.append(marks)
        return len(self._marks) - 1, self.order.post(priority, len(marks))

    def agree(self, collective: int, start: int, programs: Runner, now: float) -> None:
        """The ranks' highest proposal is known here."""
        self.order.agree(collective, start)
        self.start(programs, now)

    def complete(self, programs: Runner, now: float) -> None:
        """A chunk is complete."""
        self.order.complete()
        self.start(programs, now)

    def start(self, programs: Runner, now: float) -> None:
        """Start what there are slots for."""
        while (start := self.order.next()) is not None:
            programs.mark(self._marks[start.collective][start.chunk], now)
