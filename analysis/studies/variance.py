"""Analysis of variance: how much of a response's spread each factor explains.

Sums of squares are sequential (type I): each term, main effects first and then interactions of two,
gets what it explains beyond those before it. With what is left they add up to the total, whatever
the design. In a balanced design they depend on no order, and are those of the textbooks
(Montgomery, Design and Analysis of Experiments, chapter 5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

_SAME = 1e-9
"""Columns of length 1 are dependent on others when less than this is left of them."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor's level in each observation: texts are levels without an order, numbers a quantity
    whose effect is taken to be linear, in its logarithm when `logarithmic`."""

    name: str
    levels: tuple[str, ...] | tuple[float, ...]
    logarithmic: bool = False

    @property
    def is_quantity(self) -> bool:
        return bool(self.levels) and not isinstance(self.levels[0], str)


@dataclass(frozen=True, slots=True)
class Term:
    """A main effect (one name) or an interaction (two).

    `sum_of_squares` is in the response's unit squared, `share` of the total. `aliased` are the
    degrees of freedom that terms before it have already taken, as the design does not tell them
    apart.
    """

    names: tuple[str, ...]
    sum_of_squares: float
    degrees_of_freedom: int
    aliased: int
    share: float

    @property
    def label(self) -> str:
        return " × ".join(self.names)


@dataclass(frozen=True, slots=True)
class Variance:
    """The spread of a response about its mean, taken apart. `rest` is what no term explains:
    interactions of three factors and more, and seeds. `balanced` says that the order of factors
    decides nothing."""

    observations: int
    total: float
    terms: tuple[Term, ...]
    rest: float
    rest_degrees_of_freedom: int
    balanced: bool

    @property
    def rest_share(self) -> float:
        return self.rest / self.total if self.total else 0.0

    @property
    def by_share(self) -> tuple[Term, ...]:
        """The terms, those that explain most first."""
        return tuple(sorted(self.terms, key=lambda term: -term.share))

    def main(self, name: str) -> Term:
        """The main effect of a factor. Raises KeyError."""
        for term in self.terms:
            if term.names == (name,):
                return term
        raise KeyError(name)


def analyse_variance(factors: Sequence[Factor], response: Sequence[float]) -> Variance:
    """Take the spread of a response apart by factors and their interactions of two.

    Raises ValueError when a factor has another number of observations than the response.
    """
    values = np.asarray(response, dtype=np.float64)
    for factor in factors:
        if len(factor.levels) != len(values):
            raise ValueError(
                f"{factor.name}: {len(factor.levels)} levels for {len(values)} observations"
            )
    if not len(values):
        return Variance(0, 0.0, (), 0.0, 0, True)
    # Large means would leave too few digits for the differences.
    spread = values - values.mean()
    total = float(spread @ spread)
    ones = np.ones((len(values), 1)) / math.sqrt(len(values))
    mains = {factor.name: _columns(factor) for factor in factors}
    basis, terms, balanced = ones, [], True
    for names in (*((f.name,) for f in factors), *combinations(mains, 2)):
        raw = mains[names[0]] if len(names) == 1 else _products(*(mains[n] for n in names))
        own = ones if len(names) == 1 else _basis(np.hstack([ones, *(mains[n] for n in names)]))
        alone, new = _basis(raw, own), _basis(raw, basis)
        part = new.T @ spread
        explained = float(part @ part)
        balanced &= _same_space(alone, new)
        aliased = alone.shape[1] - new.shape[1]
        share = explained / total if total else 0.0
        terms.append(Term(names, explained, new.shape[1], aliased, share))
        basis = np.hstack([basis, new])
    left = spread - basis @ (basis.T @ spread)
    return Variance(
        len(values),
        total,
        tuple(terms),
        float(left @ left),
        len(values) - basis.shape[1],
        balanced,
    )


def _columns(factor: Factor) -> Matrix:
    """A column for each level that occurs; of a quantity, the quantity itself."""
    if factor.is_quantity:
        numbers = np.array([float(level) for level in factor.levels])
        if factor.logarithmic:
            numbers = np.log(numbers)
        return numbers[:, None]
    known = {level: index for index, level in enumerate(dict.fromkeys(factor.levels))}
    columns = np.zeros((len(factor.levels), len(known)))
    columns[range(len(factor.levels)), [known[level] for level in factor.levels]] = 1.0
    return columns


def _products(a: Matrix, b: Matrix) -> Matrix:
    product: Matrix = (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)
    return product


def _basis(columns: Matrix, beyond: Matrix | None = None) -> Matrix:
    """An orthonormal basis of what `columns` span beyond the orthonormal `beyond`."""
    lengths = np.linalg.norm(columns, axis=0)
    left = columns[:, lengths > 0] / lengths[lengths > 0]
    if beyond is not None:
        for _ in range(2):  # once leaves rounding errors of the size of what was there
            left = left - beyond @ (beyond.T @ left)
    if not left.shape[1]:
        return np.zeros((len(columns), 0))
    found, sizes, _ = np.linalg.svd(left, full_matrices=False)
    basis: Matrix = found[:, sizes > _SAME]
    return basis


def _same_space(a: Matrix, b: Matrix) -> bool:
    if a.shape != b.shape:
        return False
    return bool(np.allclose(a @ (a.T @ b), b, atol=1e-6))
