"""A rank's turns: which phases of which chunks may use a dimension now."""

from __future__ import annotations

from threading import Condition

from collectives.schedule.program import ProgramSchedule
from collectives.turns import Turn


class RankTurns:
    """Lets phases in, in the order of a schedule; at most `active_per_dimension` in a dimension."""

    def __init__(self, schedule: ProgramSchedule) -> None:
        self._active = schedule.active_per_dimension
        self._turns = schedule.turns
        self._place = {
            turn: (dimension, place)
            for dimension, order in schedule.turns.items()
            for place, turn in enumerate(order)
        }
        self._over: set[Turn] = set()
        # How many at the beginning of each order are all over.
        self._first = dict.fromkeys(schedule.turns, 0)
        self._changed = Condition()

    def enter(self, chunk: int, phase: int) -> None:
        """Wait for the turn of a phase; phases that use no dimension have none."""
        found = self._place.get(Turn(chunk, phase))
        if found is None:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._may_enter(*found))

    def leave(self, chunk: int, phase: int) -> None:
        """A phase is over."""
        turn = Turn(chunk, phase)
        if turn not in self._place:
            return
        dimension, _ = self._place[turn]
        with self._changed:
            self._over.add(turn)
            order = self._turns[dimension]
            while self._first[dimension] < len(order) and (
                order[self._first[dimension]] in self._over
            ):
                self._first[dimension] += 1
            self._changed.notify_all()

    def _may_enter(self, dimension: int, place: int) -> bool:
        first = self._first[dimension]
        before = self._turns[dimension][first:place]
        return sum(turn not in self._over for turn in before) < self._active
