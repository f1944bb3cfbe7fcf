"""Sections of result.json that a workload has of its own, found by `topologies.spec.workloads`; and
those that are told beside them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal

from analysis.results.placement import KEY as PLACEMENT
from analysis.results.placement import placement_in_words
from analysis.runs.collectives import MeasuredCollective
from topologies.spec.spec import Spec
from topologies.spec.workloads import named_parts

Predicted = Mapping[str, Mapping[str, Any]]
"""The predictions of a collective, by the predictors' names."""


@dataclass(frozen=True, slots=True)
class RowFigure:
    """A figure for a run's summary: `amount` of a unit, and a remark whose `{}` stands for
    `beside`, of the same unit."""

    title: str
    amount: float
    unit: Literal["bytes", "share"]
    remark: str
    beside: float


class ResultRow(ABC):
    """The section of a workload. `key` is its name in result.json."""

    key: ClassVar[str]

    @abstractmethod
    def row(
        self,
        spec: Spec,
        collectives: Sequence[MeasuredCollective],
        predicted: Sequence[Predicted],
    ) -> dict[str, Any]:
        """Its figures; `collectives` are those that were measured, and `predicted` what predictors
        say of each (`predicted` of result.json)."""

    @abstractmethod
    def in_words(self, row: Mapping[str, Any]) -> str:
        """The section as a sentence, without its full stop."""

    def responses(self, row: Mapping[str, Any]) -> Mapping[str, float]:
        """Its figures that studies can analyse (`analysis.studies.cases.RESPONSES`)."""
        return {}

    def figures(self, row: Mapping[str, Any]) -> tuple[RowFigure, ...]:
        """Its figures for a run's summary."""
        return ()


def rows_of(
    spec: Spec, collectives: Sequence[MeasuredCollective], predicted: Sequence[Predicted]
) -> dict[str, dict[str, Any]]:
    """The sections of a run of a spec, by key."""
    part = _rows().get(spec.workload.kind)
    return {} if part is None else {part.key: part.row(spec, collectives, predicted)}


def rows_in_words(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The key of each such section of a result, and what it says; of a searched placement, too."""
    for part, row in _found(result):
        yield part.key, part.in_words(row)
    if PLACEMENT in result:
        yield PLACEMENT, placement_in_words(result[PLACEMENT])


def row_figures(result: Mapping[str, Any]) -> tuple[RowFigure, ...]:
    """The figures of all such sections of a result."""
    return tuple(figure for part, row in _found(result) for figure in part.figures(row))


def row_responses(result: Mapping[str, Any]) -> dict[str, float]:
    """The figures of all such sections that studies can analyse, by name."""
    return {
        name: value for part, row in _found(result) for name, value in part.responses(row).items()
    }


def _found(result: Mapping[str, Any]) -> Iterator[tuple[ResultRow, Mapping[str, Any]]]:
    for part in _rows().values():
        if part.key in result:
            yield part, result[part.key]


@cache
def _rows() -> Mapping[str, ResultRow]:
    return named_parts("row", ResultRow)
