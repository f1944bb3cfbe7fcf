"""Things that have a part in several rooms: each kind is registered once, by name, and each room
finds its part of it.

A part is the object that a module declares as `PART`. Its class is that which the room asks for,
whose abstract methods say what has to be there. So a kind that lacks something is an error when the
room is imported, and never a case that somebody forgot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from inspect import isabstract
from types import FunctionType, MappingProxyType
from typing import TypeVar

T = TypeVar("T")


class IncompleteRegistration(ImportError):
    """A registered kind without a part that a room asks for: names the module and what is to be
    there."""


def parts(kinds: Iterable[str], module: str, declared: type[T]) -> Mapping[str, T]:
    """The part of each of `kinds` in one room, by kind: an object of the class `declared`.

    `module` is a module's name in which `{}` stands for the kind. Raises IncompleteRegistration.
    """
    return named({kind: module.format(kind) for kind in kinds}, declared)


def named(places: Mapping[str, str], declared: type[T]) -> Mapping[str, T]:
    """As `parts`, where each kind says where its part is: `module:name`, or a module that has
    `PART`."""
    found = {}
    for kind, name in places.items():
        part = _part(name, declared)
        if not isinstance(part, declared):
            raise IncompleteRegistration(
                f"{name}: found PART = {part!r}; expected a {declared.__name__}"
            )
        found[kind] = part
    return MappingProxyType(found)


def function_at(place: str) -> FunctionType:
    """The function at `module:name`, imported when it is asked for: a command boots a guest sooner
    without. Raises IncompleteRegistration."""
    return named({"": place}, FunctionType)[""]


def section_parts(kinds: Iterable[str], module: str, declared: type[T]) -> Mapping[str, type[T]]:
    """As `parts`, where the part is a section of the spec: a subclass of `declared`."""
    return named_sections({kind: module.format(kind) for kind in kinds}, declared)


def named_sections(places: Mapping[str, str], declared: type[T]) -> Mapping[str, type[T]]:
    """As `named`, where the part is a section of the spec: a subclass of `declared`."""
    found = {}
    for kind, name in places.items():
        part = _part(name, declared)
        if not (isinstance(part, type) and issubclass(part, declared)) or isabstract(part):
            lacks = ", ".join(sorted(getattr(part, "__abstractmethods__", ())))
            raise IncompleteRegistration(
                f"{name}: found PART = {part!r}{f', without {lacks}' if lacks else ''}; expected "
                f"a subclass of {declared.__name__}"
            )
        found[kind] = part
    return MappingProxyType(found)


def complete(kinds: Iterable[str], table: Mapping[str, T], module: str) -> Mapping[str, T]:
    """A table of a module that has small parts of all kinds, by kind. Raises
    IncompleteRegistration where it lacks one."""
    lacks = [kind for kind in kinds if kind not in table]
    if lacks:
        raise IncompleteRegistration(f"{module}: found no part of {', '.join(lacks)}")
    return MappingProxyType(dict(table))


def _part(place: str, declared: type[object]) -> object:
    """The part that a module declares. A class that is made without all of its abstract methods
    raises TypeError while its module is imported."""
    name, _, attribute = place.partition(":")
    attribute = attribute or "PART"
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise IncompleteRegistration(
            f"{name}: found no such module; expected one with {attribute}, a {declared.__name__}"
        ) from error
    except TypeError as error:
        raise IncompleteRegistration(f"{name}: {error}") from error
    if not hasattr(module, attribute):
        raise IncompleteRegistration(
            f"{name}: found no {attribute}; expected one, a {declared.__name__}"
        )
    part: object = getattr(module, attribute)
    return part
