"""A design beside its emulation: predicted and measured gains of its points, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.report.tables.figures import duration
from analysis.report.tables.table import Column, Table, Unit, Value, table
from topologies.spec.design.document import Objective


@dataclass(frozen=True, slots=True)
class EmulatedPoint:
    """A point at the size at which it is emulated. `predicted_ns` is the design's model there,
    `full_size_ns` for the design itself; costs are in dollars."""

    name: str
    words: str
    predicted_ns: float
    full_size_ns: float
    cost: float = 0.0
    full_size_cost: float = 0.0


@dataclass(frozen=True, slots=True)
class ConfirmedRow:
    """An emulated point beside its prediction. Gains are the baseline's objective over the point's:
    time, or time x cost, with a cost that is known; of the objective cost they are those of time.
    `packet_ns` is Groundwire's own predictor of the emulated run. `failure` is why nothing was
    measured."""

    point: EmulatedPoint
    directory: str
    predicted_gain: float
    full_size_gain: float
    measured_ns: float | None = None
    measured_gain: float | None = None
    packet_ns: float | None = None
    valid: bool | None = None
    failure: str | None = None

    @property
    def error(self) -> float | None:
        """How far the measured gain is from the predicted one, relative."""
        if self.measured_gain is None:
            return None
        return self.measured_gain / self.predicted_gain - 1


@dataclass(frozen=True, slots=True)
class Confirmation:
    """All emulated points, the winner first and the baseline second, and the rules by which they
    were scaled, in words."""

    rows: tuple[ConfirmedRow, ...]
    baseline: str
    tolerance: float
    rules: tuple[str, ...]
    objective: Objective = "time"

    @property
    def gained(self) -> str:
        """The quantity of the gains, in words."""
        return "gain in time x cost" if self.objective == "time-x-cost" else "gain"

    @property
    def refutations(self) -> tuple[str, ...]:
        """Why the design is refuted; empty when its gain holds.

        It is refuted when the winner's measured gain falls short of the predicted one by more than
        the tolerance, or when another point is measured better than the winner by more than that,
        and is not predicted so at this size. Where the cost counts, it is refuted when the winner
        takes longer than predicted by more than that: it would not keep the time.
        """
        winner = self.rows[0]
        if winner.measured_gain is None or winner.measured_ns is None:
            return ()
        if self.objective == "cost":
            if winner.measured_ns <= winner.point.predicted_ns * (1 + self.tolerance):
                return ()
            took, told = duration(winner.measured_ns), duration(winner.point.predicted_ns)
            return (f"the winner takes {took} and not {told}",)
        found = []
        if winner.measured_gain < winner.predicted_gain * (1 - self.tolerance):
            found.append(
                f"the {self.gained} over {self.baseline} is {winner.measured_gain:.3f}x and not "
                f"{winner.predicted_gain:.3f}x"
            )
        for row in self.rows[1:]:
            fair = row.predicted_gain <= winner.predicted_gain / (1 - self.tolerance)
            if row.measured_gain is None or not fair:
                continue
            if row.measured_gain > winner.measured_gain / (1 - self.tolerance):
                better = row.measured_gain / winner.measured_gain
                how = "as fast" if self.objective == "time" else "as good"
                found.append(f"{row.point.name} is measured {better:.3f}x {how} as the winner")
        return tuple(found)

    @property
    def verdict(self) -> str:
        """Confirmed, refuted, or why it cannot be said."""
        winner = self.rows[0]
        invalid = [row.point.name for row in self.rows if row.valid is False]
        missing = [row.point.name for row in self.rows if row.measured_ns is None]
        if winner.measured_gain is None:
            return f"not judged: nothing is measured of {', '.join(missing)}"
        if invalid:
            return f"not judged: runs are not valid: {', '.join(invalid)}"
        if self.refutations:
            return f"refuted: {'; '.join(self.refutations)}"
        if self.objective == "cost" and winner.measured_ns is not None:
            took, told = duration(winner.measured_ns), duration(winner.point.predicted_ns)
            return f"confirmed: the winner takes {took}, {told} predicted"
        return (
            f"confirmed: the {self.gained} over {self.baseline} is {winner.measured_gain:.3f}x, "
            f"{winner.predicted_gain:.3f}x predicted"
        )


def confirmation_table(found: Confirmation) -> Table:
    """A row for each emulated point."""
    with_cost = found.objective != "time"
    columns = [
        Column("point", "point"),
        Column("what", "what it is"),
        Column("full_size_gain", f"{found.gained}, full size", Unit.NUMBER),
        *([Column("cost", "cost, emulated size", Unit.NUMBER)] if with_cost else []),
        Column("predicted_ns", "predicted, emulated size", Unit.DURATION),
        Column("measured_ns", "measured", Unit.DURATION),
        Column("packet_ns", "packet", Unit.DURATION),
        Column("predicted_gain", f"{found.gained}, predicted", Unit.NUMBER),
        Column("measured_gain", f"{found.gained}, measured", Unit.NUMBER),
        Column("error", "error of the gain", Unit.ERROR),
        Column("run", "run"),
    ]
    rows: list[tuple[Value, ...]] = [
        (
            row.point.name,
            row.point.words,
            round(row.full_size_gain, 6),
            *([round(row.point.cost, 6)] if with_cost else []),
            round(row.point.predicted_ns),
            None if row.measured_ns is None else round(row.measured_ns),
            None if row.packet_ns is None else round(row.packet_ns),
            round(row.predicted_gain, 6),
            None if row.measured_gain is None else round(row.measured_gain, 6),
            None if row.error is None else round(row.error, 6),
            "failed" if row.failure is not None else row.directory,
        )
        for row in found.rows
    ]
    return table("confirmation", "Predicted and measured gains", columns, rows)


def confirmation_words(found: Confirmation) -> tuple[str, ...]:
    """The verdict and the rules of scaling, in sentences."""
    winner = found.rows[0]
    told = [f"Emulation: {found.verdict}."]
    if winner.measured_ns is not None:
        told.append(
            f"The winner takes {duration(winner.measured_ns)} on the wire, "
            f"{duration(winner.point.predicted_ns)} predicted."
        )
    failed = [f"{row.point.name} failed: {row.failure}" for row in found.rows if row.failure]
    return (*told, *failed, *found.rules)
