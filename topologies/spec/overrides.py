"""Dotted-key overrides of a spec, as sweeps and command lines make them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from topologies.spec.document import read_document
from topologies.spec.errors import Key, Problem, SpecError, common_keys, shown

_ENTRY = re.compile(r"\[(\d+)\]")
_MOST_MEANT = 3


def apply_overrides(
    model: type[BaseModel], raw: Mapping[str, Any], overrides: Mapping[str, str], source: str
) -> dict[str, Any]:
    """A copy of `raw` with each dotted key (list entries by number: `faults.0.at`, or
    `faults[0].at`) set to a YAML value; what it needs around it is made.

    `kind`s are set first. Changing a section's `kind` keeps of it only what all kinds have
    (`common_keys`).
    Raises SpecError for text that is no YAML, keys that lead through a value, and a key without
    dots that only a section has; whether the result is a valid spec is for the caller to check.
    """
    result: dict[str, Any] = _plain(raw)
    in_order = sorted(overrides, key=lambda dotted: not dotted.endswith("kind"))
    for dotted in in_order:
        parts = _ENTRY.sub(r".\1", dotted).split(".")
        key: Key = tuple(int(p) if p.isdecimal() else p for p in parts)
        try:
            value = read_document(overrides[dotted], source).data
        except SpecError as error:
            problems = tuple(_in_override(p, key, overrides[dotted]) for p in error.problems)
            raise SpecError(source, problems) from error
        inner = [] if _is_known(model, dotted) else list(_places_of(dotted, result))
        if inner:
            expected = f"unknown key; did you mean {' or '.join(inner[:_MOST_MEANT])}?"
            raise SpecError(source, (Problem(key, shown(value), expected),))
        _set(model, result, key, value, source)
    return result


def _is_known(model: type[BaseModel], dotted: str) -> bool:
    """Whether a key leads into a section, or is one of the spec's own."""
    names = {field.alias or name for name, field in model.model_fields.items()}
    return "." in dotted or "[" in dotted or dotted in names


def _places_of(name: str, section: Any, above: str = "") -> Iterator[str]:
    """The dotted keys of this name in the sections of a spec."""
    entries = section.items() if isinstance(section, dict) else enumerate(section)
    for key, value in entries:
        if key == name:
            yield f"{above}{key}"
        if isinstance(value, dict | list):
            yield from _places_of(name, value, f"{above}{key}.")


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
