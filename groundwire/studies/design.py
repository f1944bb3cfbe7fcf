"""The design of a study: which combinations of its factors' levels are its cases."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from groundwire.studies.factors import Level, StudyFactor

Combination = Mapping[str, Level]
"""Factor -> its level, in the order of the factors."""


def grid(factors: Sequence[StudyFactor], zipped: Sequence[Sequence[str]]) -> Iterator[Combination]:
    """Every combination of levels; factors that are zipped go through their levels together. The
    last factor changes fastest."""
    by_name = {factor.name: factor for factor in factors}
    groups = _groups(factors, zipped)
    choices = [
        list(zip(*(by_name[name].in_grid for name in group), strict=True)) for group in groups
    ]
    for chosen in itertools.product(*choices):
        levels = dict(
            pair
            for group, together in zip(groups, chosen, strict=True)
            for pair in zip(group, together, strict=True)
        )
        yield {factor.name: levels[factor.name] for factor in factors}


def grid_size(factors: Sequence[StudyFactor], zipped: Sequence[Sequence[str]]) -> int:
    """How many combinations `grid` yields."""
    by_name = {factor.name: factor for factor in factors}
    return prod(by_name[group[0]].grid_levels for group in _groups(factors, zipped))


def latin_hypercube(
    factors: Sequence[StudyFactor], zipped: Sequence[Sequence[str]], cases: int, seed: int
) -> Iterator[Combination]:
    """As many combinations as asked for. Each factor's range is cut into as many parts as there are
    cases, and each part is in one case (McKay, Beckman and Conover 1979); the seed draws which, and
    where in its part. Levels without an order are each in as many cases as the others."""
    groups = _groups(factors, zipped)
    by_name = {factor.name: factor for factor in factors}
    shares: dict[str, list[float]] = {}
    for group in groups:
        # random() is the same on every machine and Python; so is sorting by it.
        drawn = random.Random(f"{seed}/{'/'.join(group)}")
        order = sorted(range(cases), key=[drawn.random() for _ in range(cases)].__getitem__)
        for name in group:
            shares[name] = []
        for part in order:
            share = (part + drawn.random()) / cases
            for name in group:
                shares[name].append(share)
    for case in range(cases):
        yield {f.name: by_name[f.name].at(shares[f.name][case]) for f in factors}


def _groups(
    factors: Sequence[StudyFactor], zipped: Sequence[Sequence[str]]
) -> tuple[tuple[str, ...], ...]:
    """The zipped factors together, where the first of them stands; each other one by itself."""
    found: list[tuple[str, ...]] = []
    for factor in factors:
        group = next((tuple(names) for names in zipped if factor.name in names), (factor.name,))
        if group not in found:
            found.append(group)
    return tuple(found)
