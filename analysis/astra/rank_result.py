"""A simulation's figures of one rank."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankResult:
    """A rank's end: its cycles (1 ns each), and those not covered by its own computation."""

    rank: int
    cycles: int
    exposed_cycles: int

    def __str__(self) -> str:
        """ASTRA-sim's closing line."""
        return (
            f"sys[{self.rank}] finished, {self.cycles} cycles, "
            f"exposed communication {self.exposed_cycles} cycles."
        )
