"""Numbers that runs of a lab come to."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from groundwire.labs.errors import LabError
from groundwire.labs.formula import Number
from groundwire.labs.lab import Fact

_MOST_BYTES = 50_000_000
_NUMBER = r"(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)"


def facts_of(facts: Mapping[str, Fact], directories: Mapping[str, Path]) -> dict[str, Number]:
    """The facts that these runs (name -> run directory) have; others are left out, such as what a
    program did not print. Raises LabError for files that are no run directory's."""
    found: dict[str, Number] = {}
    for name, fact in facts.items():
        if fact.run in directories:
            number = _fact(fact, directories[fact.run])
            if number is not None:
                found[name] = number
    return found


def _fact(fact: Fact, directory: Path) -> Number | None:
    if fact.printed is not None:
        text = _read(directory / "ranks" / "000.out")
        said = re.findall(rf"^{re.escape(fact.printed)} {_NUMBER}\s*$", text, re.M)
        return _plain(float(said[-1])) if said else None
    if fact.summary is not None:
        return _as_number(_json(directory / "result.json").get("summary", {}).get(fact.summary))
    if fact.spec is not None:
        return _as_number(_inside(yaml.safe_load(_read(directory / "spec.yaml")), fact.spec))
    if fact.rows == "links":
        rows = [json.loads(line) for line in _read(directory / "links.jsonl").splitlines()]
    else:
        rows = _json(directory / "result.json").get(str(fact.rows)) or []
        rows = [rows] if isinstance(rows, dict) else rows
    assert fact.key is not None
    chosen = [row for row in rows if all(_holds(row.get(k), v) for k, v in fact.where.items())]
    values = [_as_number(_inside(row, fact.key)) for row in chosen]
    return _taken(fact.take, [each for each in values if each is not None])


def _holds(found: Any, wanted: str | int | tuple[str | int, ...]) -> bool:
    return found in wanted if isinstance(wanted, tuple) else bool(found == wanted)


def _taken(how: str, values: list[Number]) -> Number | None:
    if how == "count":
        return len(values)
    if not values:
        return None
    if how in ("first", "last"):
        return values[0 if how == "first" else -1]
    if how == "mean":
        return sum(values) / len(values)
    if how == "sum":
        return sum(values)
    return max(values) if how == "max" else min(values)


def _inside(row: Any, key: str) -> Any:
    for part in key.split("."):
        row = row.get(part) if isinstance(row, dict) else None
    return row


def _as_number(found: Any) -> Number | None:
    if isinstance(found, bool):
        return int(found)
    return found if isinstance(found, int | float) and math.isfinite(found) else None


def _plain(number: float) -> Number:
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _json(path: Path) -> dict[str, Any]:
    found = json.loads(_read(path))
    return found if isinstance(found, dict) else {}


def _read(path: Path) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_BYTES)
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}; expected a run directory") from error
