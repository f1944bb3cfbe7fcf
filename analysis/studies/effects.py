"""Effects: the mean response at each level of a factor, and at each pair of levels of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from analysis.report.tables.figures import number, rate
from analysis.report.tables.table import Unit
from analysis.studies.cases import Case, FactorOfStudy, StudyCases, value_of
from analysis.studies.variance import Factor, Variance, analyse_variance

_BINS = 4
"""A quantity that has more values than this is shown by quarters of its range."""


@dataclass(frozen=True, slots=True)
class LevelMean:
    """The cases at one level of a factor: how many, their mean response, the least and the most."""

    level: str
    cases: int
    mean: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class MainEffect:
    """A factor's levels with their means, in the order in which they first occur, or ascending."""

    factor: str
    levels: tuple[LevelMean, ...]
    share: float
    """The share of the total sum of squares."""

    @property
    def best(self) -> LevelMean:
        return min(self.levels, key=lambda level: level.mean)

    @property
    def range(self) -> float:
        """From the best level's mean to the worst one's."""
        return max(level.mean for level in self.levels) - self.best.mean


@dataclass(frozen=True, slots=True)
class Interaction:
    """Two factors' means by pair of levels: `means[row][column]`, None where there is no case."""

    row: str
    column: str
    row_levels: tuple[str, ...]
    column_levels: tuple[str, ...]
    means: tuple[tuple[float | None, ...], ...]
    share: float


@dataclass(frozen=True, slots=True)
class Effects:
    """Everything that a study says of one response. Factors that were not varied are left out."""

    response: str
    cases: int
    mean: float
    variance: Variance
    mains: tuple[MainEffect, ...]
    interactions: tuple[Interaction, ...]
    """Those that explain most first."""


def effects_of(study: StudyCases, response: str) -> Effects | None:
    """The effects on a response; None where fewer than two cases have it."""
    cases = study.answered(response)
    if len(cases) < 2:
        return None
    values = [value_of(case, response) for case in cases]
    varied = [f for f in study.factors if len({case.levels[f.name] for case in cases}) > 1]
    variance = analyse_variance([_factor(f, cases) for f in varied], values)
    names = {f.name: level_names(f, cases) for f in varied}
    mains = tuple(
        MainEffect(f.name, _means(names[f.name], values), variance.main(f.name).share)
        for f in varied
    )
    pairs = [term for term in variance.by_share if len(term.names) == 2]
    interactions = tuple(
        _interaction(names, term.names[0], term.names[1], values, term.share) for term in pairs
    )
    return Effects(response, len(cases), fmean(values), variance, mains, interactions)


def level_names(factor: FactorOfStudy, cases: Sequence[Case]) -> tuple[str, ...]:
    """The name of each case's level: for a quantity with many values, the part of its range."""
    levels = [case.levels[factor.name] for case in cases]
    quantities = sorted({level for level in levels if not isinstance(level, str)})
    if not quantities:
        return tuple(str(level) for level in levels)
    if len(quantities) <= _BINS:
        return tuple(quantity(factor, float(level)) for level in levels)
    edges = [quantities[len(quantities) * part // _BINS] for part in range(_BINS)]
    edges.append(quantities[-1])
    labels = [
        f"{quantity(factor, low)} to {quantity(factor, high)}" for low, high in pairwise(edges)
    ]
    return tuple(
        labels[max(part for part in range(_BINS) if float(level) >= edges[part])]
        for level in levels
    )


def range_between_levels(
    factor: FactorOfStudy, cases: Sequence[Case], values: Sequence[float]
) -> float:
    """From the least mean of a factor's levels to the largest, of one value for each case."""
    means = [level.mean for level in _means(level_names(factor, cases), values)]
    return max(means) - min(means)


def quantity(factor: FactorOfStudy, value: float) -> str:
    """A quantity's value with its unit."""
    return rate(value) if factor.unit is Unit.RATE else number(value)


def _factor(factor: FactorOfStudy, cases: Sequence[Case]) -> Factor:
    levels = [case.levels[factor.name] for case in cases]
    if factor.quantity:
        return Factor(factor.name, tuple(float(v) for v in levels), factor.logarithmic)
    return Factor(factor.name, tuple(str(v) for v in levels))


def _means(names: Sequence[str], values: Sequence[float]) -> tuple[LevelMean, ...]:
    found: dict[str, list[float]] = {}
    for name, value in zip(names, values, strict=True):
        found.setdefault(name, []).append(value)
    return tuple(
        LevelMean(name, len(mine), fmean(mine), min(mine), max(mine))
        for name, mine in found.items()
    )


def _interaction(
    names: dict[str, tuple[str, ...]], row: str, column: str, values: Sequence[float], share: float
) -> Interaction:
    rows, columns = (tuple(dict.fromkeys(names[factor])) for factor in (row, column))
    cells: dict[tuple[str, str], list[float]] = {}
    for a, b, value in zip(names[row], names[column], values, strict=True):
        cells.setdefault((a, b), []).append(value)
    means = tuple(
        tuple(fmean(cells[a, b]) if (a, b) in cells else None for b in columns) for a in rows
    )
    return Interaction(row, column, rows, columns, means, share)
