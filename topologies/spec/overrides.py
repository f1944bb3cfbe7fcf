"""Dotted-key overrides of a spec, as sweeps and command lines make them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from topologies.spec.document import read_document
from topologies.spec.errors import Key, Problem, SpecError, common_keys, shown


def apply_overrides(
    model: type[BaseModel], raw: Mapping[str, Any], overrides: Mapping[str, str], source: str
) -> dict[str, Any]:
    """A copy of `raw` with each dotted key (list entries by number: `faults.0.at`) set to a YAML
    value; what it needs around it is made.

    `kind`s are set first. Changing a section's `kind` keeps of it only what all kinds have
    (`common_keys`).
    Raises SpecError for text that is no YAML and keys that lead through a value; whether the result
    is a valid spec is for the caller to check.
    """
    result: dict[str, Any] = _plain(raw)
    in_order = sorted(overrides, key=lambda dotted: not dotted.endswith("kind"))
    for dotted in in_order:
        key: Key = tuple(int(p) if p.isdecimal() else p for p in dotted.split("."))
        try:
            value = read_document(overrides[dotted], source).data
        except SpecError as error:
            problems = tuple(_in_override(p, key, overrides[dotted]) for p in error.problems)
            raise SpecError(source, problems) from error
        _set(model, result, key, value, source)
    return result


def _in_override(problem: Problem, key: Key, text: str) -> Problem:
    """A mistake in the YAML of one override, where it stands in the spec."""
    if problem.key:
        return replace(problem, key=(*key, *problem.key), line=None)
    why = f"{problem.found}; {problem.expected}"
    return Problem(key, shown(text), f"expected a YAML value ({why})")


def _set(model: type[BaseModel], root: dict[str, Any], key: Key, value: Any, source: str) -> None:
    here: Any = root
    for depth, part in enumerate(key[:-1]):
        if isinstance(here, dict):
            here = here.setdefault(_existing_key(here, part), {})
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            here = here[part]
        else:
            raise _missing_key(key[: depth + 1], here, source)
    last = key[-1]
    if isinstance(here, list) and isinstance(last, int) and last < len(here):
        here[last] = value
    elif isinstance(here, dict):
        if last == "kind" and here.get("kind") != value:
            kept = common_keys(model, root, key[:-1], value)
            for name in [name for name in here if name not in kept]:
                del here[name]
        here[_existing_key(here, last)] = value
    else:
        raise _missing_key(key, here, source)


def _existing_key(section: dict[Any, Any], part: str | int) -> str | int:
    """Numbers are keys of a placement; everywhere else keys are texts."""
    return (
        part
        if part in section or not section or isinstance(next(iter(section)), int)
        else str(part)
    )


def _missing_key(key: Key, here: object, source: str) -> SpecError:
    what = f"a list of {len(here)}" if isinstance(here, list) else "a plain value"
    return SpecError(source, (Problem(key, what, "expected a key or entry that exists"),))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value
