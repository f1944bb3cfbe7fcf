"""The algorithms, by name. Each module of this package that defines an `Algorithm` adds it.

They make programs, and neither run nor price them. Three names to know: `Algorithm`, `algorithm`
(one by its name) and `Team` (the participants of a phase).
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, get_args, get_origin, get_type_hints

from collectives.algorithms.base import Algorithm, DoesNotFit


@cache
def algorithms() -> Mapping[str, type[Algorithm]]:
    """Every algorithm of this package, by name."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    found = {one.name: one for one in _below(Algorithm) if hasattr(one, "name")}
    return MappingProxyType(dict(sorted(found.items())))


def algorithm(name: str, **options: object) -> Algorithm:
    """An algorithm with its options, as a spec gives them: an algorithm among the options is a
    name, or a mapping with its name as `algorithm` beside its options. Raises DoesNotFit."""
    known = algorithms()
    if name not in known:
        raise DoesNotFit("algorithm", str(name), ", ".join(known))
    types = get_type_hints(known[name])
    allowed = [field.name for field in fields(known[name]) if field.metadata.get("asked", True)]
    for key in options:
        if key not in allowed:
            raise DoesNotFit(key, f"option of {name}", ", ".join(allowed) or "none")
    for field in fields(known[name]):
        needed = field.default is MISSING and field.default_factory is MISSING
        if needed and field.name not in options:
            raise DoesNotFit(field.name, "nothing", f"an option that {name} needs")
    given = {key: _converted(key, value, types[key]) for key, value in options.items()}
    return known[name](**given)


def _converted(key: str, value: object, wanted: Any) -> Any:
    """The value of an option in the type that its field has."""
    if get_origin(wanted) is tuple:
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise DoesNotFit(key, repr(value), "a list")
        each = get_args(wanted)[0]
        return tuple(_converted(f"{key}.{i}", one, each) for i, one in enumerate(value))
    if issubclass(wanted, Algorithm):
        return _nested(key, value, wanted)
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        names = {int: "a whole number", bool: "true or false"}
        raise DoesNotFit(key, repr(value), names.get(wanted, wanted.__name__))
    return value


def _nested(key: str, value: object, wanted: type[Algorithm]) -> Algorithm:
    if isinstance(value, str):
        value = {"algorithm": value}
    if isinstance(value, Mapping) and "algorithm" in value:
        options = {str(k): v for k, v in value.items() if k != "algorithm"}
        try:
            value = algorithm(value["algorithm"], **options)
        except DoesNotFit as error:
            inner = f"{key}.{error.key}" if error.key else key
            raise DoesNotFit(inner, error.found, error.allowed) from error
    if not isinstance(value, wanted):
        allowed = ", ".join(n for n, one in algorithms().items() if issubclass(one, wanted))
        raise DoesNotFit(key, repr(value), allowed)
    return value


def _below(base: type[Algorithm]) -> Iterator[type[Algorithm]]:
    for one in base.__subclasses__():
        yield one
        yield from _below(one)
