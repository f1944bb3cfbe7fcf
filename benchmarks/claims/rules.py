"""Rules by which kept figures decide on a claim: each says itself in words, and judges figures.

A figure is named by its path in an experiment's figures (`faster.4x4`). It is a number, or a list
of one for each draw of ECMP's ports: a rule must hold in each draw, and says in how many it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

Figures = Mapping[str, Any]

TIME = 0.1
"""The tolerance of a time, or a ratio of times, of an emulation or an engine beside a published or
computed one."""
BYTES = 0.02
"""That of bytes on wires, headers included, beside what a formula has."""
COUNTED = 0.005
"""That of what is counted or computed, beside a figure of three digits."""


class FigureMissing(ValueError):
    """An experiment's file lacks what a rule or a row asks for."""


def figure(figures: Figures, path: str) -> Any:
    """The figure of that path. Raises FigureMissing."""
    found: Any = figures
    for key in path.split("."):
        if not isinstance(found, Mapping) or key not in found:
            raise FigureMissing(f"{path}: found no {key!r} in the kept figures")
        found = found[key]
    return found


def draws(figures: Figures, path: str) -> list[float]:
    """The figure in each draw; one that has no draws is a list of one. Raises FigureMissing."""
    found = figure(figures, path)
    return [float(each) for each in (found if isinstance(found, list) else [found])]


class Rule(Protocol):
    """A condition on figures."""

    def __str__(self) -> str:
        """The rule in words, for the page."""

    def held(self, figures: Figures) -> list[bool]:
        """Whether it holds, draw by draw."""


@dataclass(frozen=True)
class Within:
    """The figure is the published value, but for this share of it."""

    path: str
    published: float
    share: float

    def __str__(self) -> str:
        return f"{self.path} within {self.share:.0%} of {self.published:g}"

    def held(self, figures: Figures) -> list[bool]:
        """By draw."""
        room = self.share * abs(self.published)
        return [abs(each - self.published) <= room for each in draws(figures, self.path)]


@dataclass(frozen=True)
class AtLeast:
    """The figure is as large as this, or larger."""

    path: str
    least: float

    def __str__(self) -> str:
        return f"{self.path} ≥ {self.least:g}"

    def held(self, figures: Figures) -> list[bool]:
        """By draw."""
        return [each >= self.least for each in draws(figures, self.path)]


@dataclass(frozen=True)
class AtMost:
    """The figure is as small as this, or smaller."""

    path: str
    most: float

    def __str__(self) -> str:
        return f"{self.path} ≤ {self.most:g}"

    def held(self, figures: Figures) -> list[bool]:
        """By draw."""
        return [each <= self.most for each in draws(figures, self.path)]


@dataclass(frozen=True)
class Above:
    """One figure is larger than another, draw by draw."""

    larger: str
    smaller: str

    def __str__(self) -> str:
        return f"{self.larger} > {self.smaller}"

    def held(self, figures: Figures) -> list[bool]:
        """By draw."""
        pairs = zip(draws(figures, self.larger), draws(figures, self.smaller), strict=True)
        return [larger > smaller for larger, smaller in pairs]


VERDICTS = ("holds", "under conditions", "does not hold", "not tested")


def verdict(rules: Iterable[Rule], figures: Figures, conditions: str) -> str:
    """`holds`: each rule, in each draw, and no condition is set. `does not hold`: none in any.
    Else `under conditions`. Raises FigureMissing."""
    held = [each for rule in rules for each in rule.held(figures)]
    if not any(held):
        return "does not hold"
    return "holds" if all(held) and not conditions else "under conditions"


class Draws:
    """A figure of several draws: written as its median, with least and most."""

    def __init__(self, values: Iterable[float]) -> None:
        self._values = sorted(values)

    def __format__(self, form: str) -> str:
        least, most = self._values[0], self._values[-1]
        parts = [format(each, form) for each in (median(self._values), least, most)]
        if parts[1] == parts[2]:
            return parts[0]
        return f"{parts[0]} ({parts[1]} to {parts[2]}, {len(self._values)} draws)"
