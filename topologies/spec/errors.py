"""Mistakes in a spec, told so that they can be put right."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined

Key = tuple[str | int, ...]

_SHOWN_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where, what was found there, what is allowed. `line` is 1-based, if known."""

    key: Key
    found: str
    expected: str
    line: int | None = None

    def __str__(self) -> str:
        where = f"{key_path(self.key)}: " if self.key else ""
        line = f"line {self.line}: " if self.line is not None else ""
        return f"{line}{where}found {self.found}; {self.expected}"


class SpecError(ValueError):
    """A spec that cannot be used. `problems` has every mistake found; str() is ready to print."""

    def __init__(self, source: str, problems: tuple[Problem, ...]) -> None:
        self.source = source
        self.problems = problems
        if len(problems) == 1:
            text = f"{source}: {problems[0]}"
        else:
            lines = "".join(f"\n  {problem}" for problem in problems)
            text = f"{source}: {len(problems)} mistakes{lines}"
        super().__init__(text)


def key_path(key: Key) -> str:
    """`("faults", 0, "link")` as `faults[0].link`."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def shown(value: object) -> str:
    """A value as YAML in one short line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False)
    text = text.removesuffix("\n").removesuffix("\n...").strip()
    if len(text) > _SHOWN_CHARACTERS:
        return text[: _SHOWN_CHARACTERS - 3] + "..."
    return text


def suggestion(word: str, allowed: list[str]) -> str:
    """`did you mean ...? ` when one of the allowed words is near, else nothing."""
    near = get_close_matches(word, allowed, n=1, cutoff=0.6)
    return f"did you mean {near[0]}? " if near else ""


def problems_of(error: ValidationError, model: type[BaseModel], raw: object) -> list[Problem]:
    """The mistakes in `raw` (plain YAML data) that pydantic found when validating it as `model`."""
    problems = []
    for detail in error.errors(include_url=False):
        carried = detail.get("ctx", {}).get("problems")
        if carried is not None:
            problems += carried
            continue
        key = _without_tags(detail["loc"], raw, model)
        if detail["type"] == "default_factory_not_called":
            # A default that depends on a key that is itself reported.
            continue
        if detail["type"] == "too_short" and detail["ctx"]["min_length"] <= _length(raw, key):
            # Pydantic counts the valid entries only; the invalid ones are reported by themselves.
            continue
        problems.append(_problem(key, detail, model, raw))
    return problems


def _problem(key: Key, detail: Any, model: type[BaseModel], raw: object) -> Problem:
    kind, context = detail["type"], detail.get("ctx", {})
    found = shown(_lookup(raw, key)) if kind != "missing" else "nothing"
    if kind == "extra_forbidden":
        allowed = _allowed_keys(model, raw, key[:-1])
        hint = suggestion(str(key[-1]), allowed)
        expected = f"unknown key; {hint}allowed: {', '.join(allowed)}"
    elif kind == "missing":
        expected = "this key is required"
    elif kind == "value_error":
        expected = str(context["error"])
    elif kind in ("literal_error", "union_tag_invalid"):
        text = context.get("expected") or context["expected_tags"]
        allowed = [word.strip(" '") for word in text.replace(" or ", ", ").split(",")]
        if kind == "union_tag_invalid":
            key, found = (*key, "kind"), shown(context["tag"])
        expected = f"{suggestion(found, allowed)}allowed: {', '.join(allowed)}"
    elif kind == "union_tag_not_found":
        allowed = _kinds(_annotation_at(model, raw, key))
        key, found = (*key, "kind"), "nothing"
        expected = f"this key is required; allowed: {', '.join(allowed)}"
    elif kind in ("model_type", "model_attributes_type", "dict_type"):
        expected = "expected a section with keys of its own"
    elif kind in ("tuple_type", "list_type"):
        expected = "expected a list in brackets"
    elif kind in _BOUNDS:
        expected = f"expected {_BOUNDS[kind]} {context[_BOUND_KEYS[kind]]}"
    else:
        expected = f"expected {_TYPES[kind]}" if kind in _TYPES else detail["msg"]
    return Problem(key, found, expected)


_TYPES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "bool_type": "true or false",
}
_BOUNDS = {
    "greater_than": "more than",
    "greater_than_equal": "at least",
    "less_than": "less than",
    "less_than_equal": "at most",
    "string_pattern_mismatch": "a text that matches",
    "too_short": "a number of entries of at least",
    "too_long": "a number of entries of at most",
    "string_too_short": "a number of characters of at least",
}
_BOUND_KEYS = {
    "greater_than": "gt",
    "greater_than_equal": "ge",
    "less_than": "lt",
    "less_than_equal": "le",
    "string_pattern_mismatch": "pattern",
    "too_short": "min_length",
    "too_long": "max_length",
    "string_too_short": "min_length",
}


def _without_tags(loc: Key, raw: object, model: type[BaseModel]) -> Key:
    """Pydantic's location less the tags of discriminated unions, which are no keys of the spec: a
    section's kind, or `<so>` where the form of a value decides."""
    key: Key = ()
    here = raw
    tag_may_follow = True  # once a section: a key may be spelled as the section's kind
    for part in loc:
        if str(part).startswith("<") and not (isinstance(here, dict) and part in here):
            continue
        if isinstance(here, dict) and tag_may_follow:
            models = _models(_annotation_at(model, raw, key))
            if len(models) > 1 and _kind_of(here, models) == part:
                tag_may_follow = False
                continue
        key = (*key, part)
        here = _step(here, part)
        tag_may_follow = True
    return key


def _step(raw: object, part: str | int) -> object:
    if isinstance(raw, dict):
        return raw.get(part)
    if isinstance(raw, (list, tuple)) and isinstance(part, int) and part < len(raw):
        return raw[part]
    return None


def _lookup(raw: object, key: Key) -> object:
    for part in key:
        raw = _step(raw, part)
    return raw


def _length(raw: object, key: Key) -> int:
    value = _lookup(raw, key)
    return len(value) if isinstance(value, (list, tuple)) else 0


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models that a value of this type can be."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) is Annotated:
        return _models(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [model for part in get_args(annotation) for model in _models(part)]
    return []


def _kinds_of(model: type[BaseModel]) -> tuple[str, ...]:
    field = model.model_fields.get("kind")
    literal = get_origin(field.annotation) is Literal if field else False
    return get_args(field.annotation) if field and literal else ()


def _kind_of(raw: dict[Any, Any], models: list[type[BaseModel]]) -> object:
    """The kind of a section that can be one of these, also where it leaves that to the default."""
    fields = [model.model_fields["kind"] for model in models if "kind" in model.model_fields]
    defaults = [field.default for field in fields if field.default is not PydanticUndefined]
    return raw.get("kind", defaults[0] if defaults else None)


def _kinds(annotation: Any) -> list[str]:
    return [kind for model in _models(annotation) for kind in _kinds_of(model)]


def _model_at(annotation: Any, raw: object) -> type[BaseModel] | None:
    models = _models(annotation)
    if len(models) > 1 and isinstance(raw, dict):
        kind = _kind_of(raw, models)
        models = [model for model in models if kind in _kinds_of(model)]
    return models[0] if models else None


def _annotation_at(model: type[BaseModel], raw: object, key: Key) -> Any:
    annotation: Any = model
    for part in key:
        here = _model_at(annotation, raw)
        raw = _step(raw, part)
        if here is not None:
            fields = {field.alias or name: field for name, field in here.model_fields.items()}
            annotation = fields[str(part)].annotation if str(part) in fields else None
        elif get_origin(annotation) is dict:
            annotation = get_args(annotation)[1]
        else:
            annotation = get_args(annotation)[0] if get_args(annotation) else None
    return annotation


def _allowed_keys(model: type[BaseModel], raw: object, key: Key) -> list[str]:
    here = _model_at(_annotation_at(model, raw, key), _lookup(raw, key))
    if here is None:
        return []
    return [field.alias or name for name, field in here.model_fields.items()]


def common_keys(model: type[BaseModel], raw: object, key: Key, kind: object) -> set[str]:
    """The keys that every kind of the section at `key` has, as far as `kind` has them. A kind that
    shares nothing with any other, as a queue's `classes`, has no say in what the others share."""
    names = {
        m: {f.alias or n for n, f in m.model_fields.items()}
        for m in _models(_annotation_at(model, raw, key))
    }
    sharing = [
        own
        for m, own in names.items()
        if any(own & other > {"kind"} for n, other in names.items() if n is not m)
    ]
    new = [own for m, own in names.items() if kind in _kinds_of(m)]
    common = set.intersection(*sharing or names.values()) if names else set()
    return common.intersection(*new)
