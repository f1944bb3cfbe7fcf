"""How long a run will take yet, from the iterations that it has done."""

from __future__ import annotations


class TimeLeft:
    """Fed with the beginnings of iterations; all times are real seconds of one clock."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._last = (0, 0.0)
        self._iterations = 0

    def begin(self, iteration: int, iterations: int, now_s: float) -> None:
        """Iteration `iteration` (from 0) of `iterations` begins."""
        if self._first is None:
            self._first = (iteration, now_s)
        self._last = (iteration, now_s)
        self._iterations = iterations

    def estimate_s(self, now_s: float) -> float | None:
        """Seconds until the last iteration ends, if each to come takes the mean of those that
        ended; None while none has ended."""
        if self._first is None or self._last[0] == self._first[0]:
            return None
        done, began_s = self._last
        each_s = (began_s - self._first[1]) / (done - self._first[0])
        return max(0.0, began_s + each_s * (self._iterations - done) - now_s)
