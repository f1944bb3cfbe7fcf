"""Variables of a design that are chosen from a list: one value is a list of one."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

Value = TypeVar("Value")

MOST_CHOICES = 64


def _listed(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else [value]


def _once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(values)) != len(values):
        raise ValueError("expected each value once")
    return values


Choices = Annotated[
    tuple[Value, ...],
    BeforeValidator(_listed),
    AfterValidator(_once),
    Field(min_length=1, max_length=MOST_CHOICES),
]
"""A value, or a list of those from which the search chooses."""


def range_or_rate(value: object) -> str:
    """The tag of a bandwidth: its bounds, or one that is fixed."""
    return "<rate>" if isinstance(value, (str, int, float)) else "<range>"


def word_or_list(value: object) -> str:
    """The tag of degrees: a word for all, or those to choose from."""
    return "<word>" if isinstance(value, str) else "<list>"
