"""The cases of a study as plain rows: what was varied, and what came out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from analysis.report.tables.table import Unit

How = Literal["emulated", "predicted"]

RESPONSES: Mapping[str, tuple[str, Unit]] = {
    "iteration_ns": ("iteration time", Unit.DURATION),
    "compute_ns": ("computation", Unit.DURATION),
    "exposed_ns": ("exposed communication", Unit.DURATION),
    "collectives_ns": ("collectives", Unit.DURATION),
    "drops": ("drops", Unit.COUNT),
    "ecn_marks": ("ECN marks", Unit.COUNT),
    "pauses": ("pauses", Unit.COUNT),
    "retransmits": ("retransmits", Unit.COUNT),
    "first_token_ns": ("first token", Unit.DURATION),
    "wait_ns": ("wait for keys and values", Unit.DURATION),
    "token_ns": ("further token", Unit.DURATION),
}
"""The responses of a case: name -> (title, unit). Times are means over a run's iterations: of an
iteration, of the rank that computes most in it, of the rank that is blocked most, and the sum of
its collectives' durations; the last three are means over requests, of workloads that have any. The
others are totals of a run. Less is better in all of them."""

OF_SOME = ("first_token_ns", "wait_ns", "token_ns")
"""The responses that only runs of some workloads have."""

TIME = "iteration_ns"


@dataclass(frozen=True, slots=True)
class FactorOfStudy:
    """A factor by name. `quantity` says that its levels are numbers in an order; `unit` is theirs,
    `logarithmic` how their effect grows."""

    name: str
    quantity: bool = False
    logarithmic: bool = False
    unit: Unit = Unit.NUMBER


@dataclass(frozen=True, slots=True)
class Case:
    """A combination of levels and a seed, with its outcome.

    `key` is the name of its directory. `responses` is by the names of `RESPONSES`; None is "not
    known". `predicted_ns` is the iteration's time by the study's predictor, where it has one.
    `failure` is why there is no outcome, in words.
    """

    number: int
    key: str
    levels: Mapping[str, str | float]
    seed: int
    ranks: int
    how: How
    responses: Mapping[str, float | None] = field(default_factory=dict)
    valid: bool | None = None
    predicted_ns: int | None = None
    cost: float | None = None
    machine: str | None = None
    failure: str | None = None

    @property
    def error(self) -> float | None:
        """The prediction's relative error, where a measurement is beside it."""
        measured = self.responses.get(TIME)
        if self.how != "emulated" or not measured or self.predicted_ns is None:
            return None
        return round(self.predicted_ns / measured - 1, 6)


@dataclass(frozen=True, slots=True)
class StudyCases:
    """A whole study: its factors, its cases in their order, the responses that were asked for (the
    first decides what is best) and what each may be at most."""

    name: str
    factors: tuple[FactorOfStudy, ...]
    cases: tuple[Case, ...]
    responses: tuple[str, ...]
    predictor: str
    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def response(self) -> str:
        return self.responses[0]

    def answered(self, response: str) -> tuple[Case, ...]:
        """The cases that have this response and may be judged by it: valid where they ran."""
        return tuple(
            case
            for case in self.cases
            if case.responses.get(response) is not None and case.valid is not False
        )

    def beyond_limits(self, case: Case) -> tuple[str, ...]:
        """The responses of a case that are more than they may be."""
        found = []
        for name, most in self.limits.items():
            value = case.responses.get(name)
            if value is not None and value > most:
                found.append(name)
        return tuple(found)

    def ranked(self, response: str) -> tuple[Case, ...]:
        """Within the limits, the best first; equals in their order."""
        allowed = [case for case in self.answered(response) if not self.beyond_limits(case)]
        return tuple(sorted(allowed, key=lambda case: (case.responses[response], case.number)))


def value_of(case: Case, response: str) -> float:
    """The response of a case that has it. Raises KeyError for one that has not."""
    value = case.responses.get(response)
    if value is None:
        raise KeyError(response)
    return value


def pareto_front(points: Sequence[tuple[float, float]]) -> tuple[int, ...]:
    """The positions of the points on the Pareto front, in order of the first coordinate; less is
    better. Equal points are all in it."""
    order = sorted(range(len(points)), key=lambda position: points[position])
    front: list[int] = []
    for position in order:
        last = points[front[-1]] if front else None
        if last is None or points[position][1] < last[1] or points[position] == last:
            front.append(position)
    return tuple(front)
