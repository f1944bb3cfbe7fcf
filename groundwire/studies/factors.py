"""The factors of a study: each with its levels, or with the range that its values are from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from analysis.report.tables.table import Unit
from analysis.studies.cases import FactorOfStudy
from groundwire.studies.axes import AXES, LevelOf, Overrides
from topologies.spec.errors import Key, Problem, shown, suggestion
from topologies.units import (
    format_rate,
    format_time,
    parse_rate_bps,
    parse_size_bytes,
    parse_time_ns,
)

MOST_STEPS = 10_000
"""As many as a study can have cases."""
_RANGE_KEYS = ("range", "scale", "steps", "key")


@dataclass(frozen=True, slots=True)
class Level:
    """One level: its name, or its number in a range, and what it sets for so many ranks."""

    name: str | float
    overrides: LevelOf


@dataclass(frozen=True, slots=True)
class Range:
    """Values of one key of the spec from `low` to `high`, both included, evenly spread on a linear
    or a logarithmic scale. `steps` is how many of them a grid has."""

    key: str
    low: float
    high: float
    scale: Literal["linear", "log"]
    unit: Unit
    steps: int | None
    whole: bool

    def at(self, share: float) -> Level:
        """The level at this share (0 to 1) of the scale."""
        if self.scale == "log":
            value = math.exp(
                math.log(self.low) + share * (math.log(self.high) - math.log(self.low))
            )
        else:
            value = self.low + share * (self.high - self.low)
        if self.whole:
            value = round(value)
        text = {Unit.RATE: format_rate, Unit.DURATION: format_time}.get(self.unit)
        written: object = value if text is None else text(int(value))
        overrides: Overrides = {self.key: written}
        return Level(float(value), lambda ranks: overrides)


@dataclass(frozen=True, slots=True)
class StudyFactor:
    """A factor: its levels, or the range that they are taken from."""

    name: str
    levels: tuple[Level, ...] = ()
    range: Range | None = None

    @property
    def in_grid(self) -> tuple[Level, ...]:
        """The levels of a grid."""
        if self.range is None or self.range.steps is None:
            return self.levels
        steps = self.range.steps
        return tuple(self.range.at(step / max(1, steps - 1)) for step in range(steps))

    @property
    def grid_levels(self) -> int:
        """How many levels a grid has."""
        if self.range is None or self.range.steps is None:
            return len(self.levels)
        return self.range.steps

    def at(self, share: float) -> Level:
        """The level at this share (from 0, below 1) of the factor."""
        if self.range is not None:
            return self.range.at(share)
        return self.levels[min(len(self.levels) - 1, int(share * len(self.levels)))]

    @property
    def described(self) -> FactorOfStudy:
        """The factor as analysis knows it."""
        if self.range is None:
            return FactorOfStudy(self.name)
        return FactorOfStudy(self.name, True, self.range.scale == "log", self.range.unit)


def read_factors(raw: Mapping[str, Any]) -> tuple[list[StudyFactor], list[Problem]]:
    """The factors of a study file, and every mistake in them."""
    factors: list[StudyFactor] = []
    problems: list[Problem] = []
    for name, given in raw.items():
        key: Key = ("factors", name)
        if isinstance(given, list):
            levels = list(_listed(name, given, problems))
            if levels or not given:
                factors.append(StudyFactor(name, tuple(levels)))
            if not given:
                problems.append(Problem(key, "[]", "expected at least one level"))
        elif isinstance(given, dict) and "range" in given:
            found = _range(name, given, problems)
            if found is not None:
                factors.append(StudyFactor(name, range=found))
        elif isinstance(given, dict) and given:
            levels = list(_named(name, given, problems))
            factors.append(StudyFactor(name, tuple(levels)))
        else:
            expected = "expected a list of levels, levels by name, or a range"
            problems.append(Problem(key, shown(given), expected))
    return factors, problems


def _listed(name: str, given: list[Any], problems: list[Problem]) -> Iterator[Level]:
    """Levels of a ready axis by their names, or values of one key of the spec."""
    axis = AXES.get(name)
    if axis is None and "." not in name and name not in ("seed", "placement", "scale"):
        expected = (
            f"{suggestion(name, list(AXES))}expected a ready axis ({', '.join(AXES)}) or a key of "
            "the spec such as fabric.link.rate; other factors name the keys that each level sets"
        )
        problems.append(Problem(("factors", name), name, expected))
        return
    seen: set[str] = set()
    for index, value in enumerate(given):
        title = value if isinstance(value, str) else shown(value)
        if title in seen:
            found = Problem(("factors", name, index), title, "expected each level once")
            problems.append(found)
            continue
        seen.add(title)
        if axis is None:
            yield Level(title, _same({name: value}))
        elif title in axis:
            yield Level(title, axis[title])
        else:
            known = list(axis)
            expected = f"{suggestion(title, known)}allowed: {', '.join(known)}"
            problems.append(Problem(("factors", name, index), title, expected))


def _named(name: str, given: Mapping[Any, Any], problems: list[Problem]) -> Iterator[Level]:
    """Levels of one's own: name -> what it sets; of a ready axis, too, nothing stands for its own
    level of that name."""
    axis = AXES.get(name, {})
    for level, sets in given.items():
        title = str(level)
        if sets is None:
            yield Level(title, axis.get(title, _same({})))
        elif isinstance(sets, dict) and all(isinstance(key, str) for key in sets):
            yield Level(title, _same(sets))
        else:
            expected = "expected keys of the spec with their values, or nothing for no change"
            problems.append(Problem(("factors", name, title), shown(sets), expected))


def _same(overrides: Overrides) -> LevelOf:
    return lambda ranks: overrides


def _range(name: str, given: Mapping[str, Any], problems: list[Problem]) -> Range | None:
    here: Key = ("factors", name)
    before = len(problems)
    for key in given:
        if key not in _RANGE_KEYS:
            hint = suggestion(str(key), list(_RANGE_KEYS))
            expected = f"unknown key; {hint}allowed: {', '.join(_RANGE_KEYS)}"
            problems.append(Problem((*here, key), shown(given[key]), expected))
    scale, steps, ends = given.get("scale", "linear"), given.get("steps"), given["range"]
    if scale not in ("linear", "log"):
        problems.append(Problem((*here, "scale"), shown(scale), "allowed: linear, log"))
    if steps is not None and (type(steps) is not int or not 2 <= steps <= MOST_STEPS):
        expected = f"expected a whole number from 2 to {MOST_STEPS}"
        problems.append(Problem((*here, "steps"), shown(steps), expected))
    parsed = _ends(ends)
    if parsed is None:
        expected = "expected [LOW, HIGH]: two numbers, rates, times or sizes, the lower first"
        problems.append(Problem((*here, "range"), shown(ends), expected))
        return None
    low, high, unit, whole = parsed
    if scale == "log" and low <= 0:
        expected = "expected more than 0 on a logarithmic scale"
        problems.append(Problem((*here, "range", 0), shown(ends[0]), expected))
    if len(problems) > before:
        return None
    return Range(str(given.get("key", name)), low, high, scale, unit, steps, whole)


_PARSERS: tuple[tuple[Unit, Callable[[object], int]], ...] = (
    (Unit.RATE, parse_rate_bps),
    (Unit.DURATION, parse_time_ns),
    (Unit.SIZE, parse_size_bytes),
)


def _ends(ends: object) -> tuple[float, float, Unit, bool] | None:
    """Both ends in base units, what they are, and whether values between are whole."""
    if not isinstance(ends, list) or len(ends) != 2:
        return None
    if all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends):
        whole = all(isinstance(end, int) for end in ends)
        low, high = float(ends[0]), float(ends[1])
        return (low, high, Unit.NUMBER, whole) if low < high else None
    for unit, parse in _PARSERS:
        try:
            low, high = (float(parse(end)) for end in ends)
        except ValueError:
            continue
        return (low, high, unit, True) if low < high else None
    return None
