"""How many slots of aggregation nodes operations held, over time, from the nodes' logs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from analysis.runs.run import Run, RunError
from collectives.settings import settings_of

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SlotUse:
    """A node with its slots, and when each operation took one and gave it back, on the clock of the
    logs. Shape (operations,)."""

    switch: str
    slots: int
    start_ns: Int64
    end_ns: Int64

    @cached_property
    def _steps(self) -> tuple[Int64, Int64]:
        """When what is held changes, and how many are held from then on."""
        at = np.concatenate([self.end_ns, self.start_ns])
        change = np.repeat(np.array([-1, 1], dtype=np.int64), len(self.start_ns))
        # At one instant slots are given back first: the next operation takes the same one.
        order = np.lexsort((change, at))
        return at[order], np.cumsum(change[order])

    @property
    def most(self) -> int:
        """The most slots held at once."""
        return int(self._steps[1].max(initial=0))

    @property
    def held_ns(self) -> int:
        """The sum of the times for which slots were held."""
        return int((self.end_ns - self.start_ns).sum())

    def most_within(self, edges_ns: Float64) -> Int64:
        """The most slots held at once between each time and the next. Shape (times - 1,)."""
        at, held = self._steps
        known = np.concatenate([np.zeros(1, dtype=np.int64), held])
        # An edge holds what the last change before it left.
        first = np.searchsorted(at, edges_ns[:-1], side="right")
        last = np.searchsorted(at, edges_ns[1:], side="left")
        pairs = zip(first.tolist(), last.tolist(), strict=True)
        return np.array([known[a : max(a, b) + 1].max() for a, b in pairs], dtype=np.int64)


def slot_uses(run: Run) -> tuple[SlotUse, ...]:
    """Every aggregation node of a run that wrote its log; none where switches took no part. Raises
    RunError for a damaged log."""
    directory = run.directory / "switches"
    of_run = settings_of(run.spec).aggregation
    if of_run is None:
        return ()
    found = []
    for path in sorted(directory.glob("*.jsonl")):
        try:
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            times = [(line["start_ns"], line["end_ns"]) for line in lines]
            start_ns, end_ns = np.array(times, dtype=np.int64).reshape(-1, 2).T
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path}: not a log of an aggregation node: {error}") from None
        found.append(SlotUse(path.stem, of_run.section.of(path.stem).slots or 0, start_ns, end_ns))
    return tuple(found)
