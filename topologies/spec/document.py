"""YAML and JSON texts of users -> plain data, with the line of every key; and which of our files it
is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import yaml

from topologies.spec.errors import Key, Problem, SpecError

_MOST_LEVELS = 100
"""A spec has at most 6; far below what Python's stack lets the parser nest."""
_MOST_REPEATED = 100_000
"""So many values may aliases stand for, beside those that are written out. Aliases of aliases
multiply: twelve lines can stand for more values than any memory holds."""


@dataclass(frozen=True)
class Document:
    """A YAML document: its plain data, and its nodes for where each key stands."""

    data: Any
    root: yaml.Node | None

    def line_of(self, key: Key) -> int | None:
        """1-based line of a key, or of the nearest section around it that is in the text."""
        node, line = self.root, None
        for part in key:
            if isinstance(node, yaml.MappingNode):
                entry = next((kv for kv in node.value if kv[0].value == str(part)), None)
                if entry is None:
                    break
                line, node = entry[0].start_mark.line + 1, entry[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                if part >= len(node.value):
                    break
                node = node.value[part]
                line = node.start_mark.line + 1
            else:
                break
        return line


def read_document(text: str, source: str) -> Document:
    """Parses one YAML document. Raises SpecError for bad syntax (with its line), a key written
    twice, a value that its tag does not allow, a value that contains itself, and aliases that stand
    for too much."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is not None:
            _Nodes(source).check(root)
        return Document(yaml.safe_load(text), root)
    except SpecError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else None
        reason = " ".join(filter(None, (error.context, error.problem)))
        raise SpecError(
            source, (Problem((), f"YAML that does not parse ({reason})", "expected YAML", line),)
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        raise SpecError(
            source, (Problem((), f"YAML that does not parse ({error})", "expected YAML"),)
        ) from error
    except RecursionError as error:
        raise SpecError(source, (_too_deep(None),)) from error


def read_json(text: str | bytes, source: str) -> Any:
    """The value of a JSON text. Raises SpecError for bad syntax (with its line), numbers that JSON
    does not have (NaN, Infinity) or Python does not read, and values nested too deeply."""

    def refuse(name: str) -> object:
        problem = Problem((), name, "expected a finite number, as JSON has no others")
        raise SpecError(source, (problem,))

    try:
        return json.loads(text, parse_constant=refuse)
    except SpecError:
        raise
    except json.JSONDecodeError as error:
        problem = Problem((), f"no JSON ({error.msg})", "expected JSON", error.lineno)
        raise SpecError(source, (problem,)) from error
    except (UnicodeDecodeError, ValueError) as error:
        raise SpecError(source, (Problem((), f"no JSON ({error})", "expected JSON"),)) from error
    except RecursionError as error:
        problem = Problem((), "JSON nested too deeply", "expected a few levels of nesting")
        raise SpecError(source, (problem,)) from error


def _too_deep(line: int | None) -> Problem:
    return Problem(
        (), "YAML nested too deeply", f"expected at most {_MOST_LEVELS} levels of nesting", line
    )


class _Nodes:
    """The nodes of a document, each checked once, however many aliases lead to it."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._constructor = yaml.constructor.SafeConstructor()
        self._known: dict[int, tuple[int, int]] = {}

    def check(self, root: yaml.Node) -> None:
        """Raises SpecError."""
        self._check(root, (), ())

    def _check(self, node: yaml.Node, key: Key, around: tuple[yaml.Node, ...]) -> tuple[int, int]:
        """How many values the node stands for, and how deeply they are nested."""
        if any(node is outer for outer in around):
            raise self._wrong(
                key, "an alias inside its own anchor", "expected a finite value", node
            )
        known = self._known.get(id(node))
        if known is None:
            if len(around) > _MOST_LEVELS:
                raise SpecError(self._source, (_too_deep(node.start_mark.line + 1),))
            known = self._known[id(node)] = self._measured(node, key, around)
        values, levels = known
        if len(around) + levels > _MOST_LEVELS:
            raise SpecError(self._source, (_too_deep(node.start_mark.line + 1),))
        if values > len(self._known) + _MOST_REPEATED:
            expected = f"expected aliases that stand for at most {_MOST_REPEATED:,} values"
            found = "an alias of more" if values > 10**9 else f"{values:,} values"
            raise self._wrong(key, found, expected, node)
        return known

    def _measured(
        self, node: yaml.Node, key: Key, around: tuple[yaml.Node, ...]
    ) -> tuple[int, int]:
        around = (*around, node)
        if isinstance(node, yaml.SequenceNode):
            inside = [
                self._check(child, (*key, index), around) for index, child in enumerate(node.value)
            ]
        elif isinstance(node, yaml.MappingNode):
            inside = list(self._entries(node, key, around))
        else:
            self._check_scalar(node, key)
            inside = []
        return 1 + sum(values for values, _ in inside), 1 + max((n for _, n in inside), default=0)

    def _entries(
        self, node: yaml.MappingNode, key: Key, around: tuple[yaml.Node, ...]
    ) -> Iterator[tuple[int, int]]:
        seen: dict[str, int] = {}
        for name, child in node.value:
            line = name.start_mark.line + 1
            if isinstance(name, yaml.ScalarNode) and name.value != "<<":
                if name.value in seen:
                    expected = f"expected it once; first on line {seen[name.value]}"
                    raise self._wrong((*key, name.value), "this key twice", expected, name)
                seen[name.value] = line
                yield self._check(child, (*key, name.value), around)
            else:
                yield self._check(child, key, around)
            if name.tag != _MERGE:
                yield self._check(name, key, around)

    def _check_scalar(self, node: yaml.Node, key: Key) -> None:
        try:
            self._constructor.construct_object(node)
        except yaml.MarkedYAMLError as error:
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            found = f"a value of the tag {tag} ({error.problem})"
            raise self._wrong(key, found, "expected plain YAML", node) from error
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # PyYAML lets through what Python says of such a text.
            name = node.tag.rpartition(":")[2]
            what = _KINDS.get(name, name)
            text = str(node.value)
            short = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
            expected = f"expected {what}, or a text in quotes"
            raise self._wrong(key, f"{short!r}, which is no {name}", expected, node) from error

    def _wrong(self, key: Key, found: str, expected: str, node: yaml.Node) -> SpecError:
        return SpecError(self._source, (Problem(key, found, expected, node.start_mark.line + 1),))


_MERGE = "tag:yaml.org,2002:merge"
_SHOWN = 60
_KINDS = {
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number of at most 4,300 digits",
    "timestamp": "a date such as 2026-01-31",
}


class FileKind(StrEnum):
    """Each with the command that takes it."""

    SPEC = "run"
    STUDY = "study"
    DESIGN = "design"

    @property
    def in_words(self) -> str:
        return "the spec of a run" if self is FileKind.SPEC else f"a {self.value}"


def file_kind(raw: object) -> FileKind | None:
    """None where the keys do not tell."""
    if not isinstance(raw, Mapping):
        return None
    if "factors" in raw:
        return FileKind.STUDY
    design = raw.get("design")
    if isinstance(design, Mapping) and "dimensions" in design:
        return FileKind.DESIGN
    return FileKind.SPEC if "fabric" in raw else None


def refuse_other_kind(raw: object, wanted: FileKind, source: str) -> None:
    """Raises SpecError for a file of another kind, with the command that takes it."""
    found = file_kind(raw)
    if found not in (None, wanted):
        command = f"groundwire {found.value} {source}"
        problem = Problem((), found.in_words, f"expected {wanted.in_words}; try {command}")
        raise SpecError(source, (problem,))
