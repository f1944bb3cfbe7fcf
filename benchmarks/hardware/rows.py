"""Measurements of others as rows of CSV files, read by the names of a dataclass's fields."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Row = TypeVar("Row", bound="DataclassInstance")


def rows(file: Path, kind: type[Row]) -> tuple[Row, ...]:
    """All rows of a file whose columns are the fields of `kind`, each made by its field's type;
    truths are 0 and 1. Raises ValueError for other columns."""
    made = _made_by(kind)
    with file.open(encoding="utf-8", newline="") as lines:
        read = csv.DictReader(lines)
        if list(read.fieldnames or ()) != list(made):
            raise ValueError(f"{file}: expected the columns {list(made)}, found {read.fieldnames}")
        return tuple(kind(**{name: made[name](row[name]) for name in made}) for row in read)


def _made_by(kind: type[Row]) -> Mapping[str, Callable[[str], Any]]:
    types = get_type_hints(kind)
    found = {one.name: types[one.name] for one in fields(kind)}
    return {name: _truth if made is bool else made for name, made in found.items()}


def _truth(text: str) -> bool:
    return {"0": False, "1": True}[text]


def undated(text: str) -> str:
    """Text without its dates, which the files have and the reference has not."""
    return re.sub(r",? ?\(?\b20\d\d-\d\d-\d\d(?:, \d\d)?\)?", "", text).strip()
