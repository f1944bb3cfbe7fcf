"""YAML text -> plain data, with the line of every key; and which of our files it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import yaml

from topologies.spec.errors import Key, Problem, SpecError

_MOST_LEVELS = 100
"""A spec has at most 6; far below what Python's stack lets the parser nest."""


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
    twice, and a value that contains itself."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is not None:
            _check_nodes(root, source, ())
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
        # ValueError: SafeLoader lets bad dates and over-long integers through to Python.
        raise SpecError(
            source, (Problem((), f"YAML that does not parse ({error})", "expected YAML"),)
        ) from error
    except RecursionError as error:
        raise SpecError(source, (_too_deep(None),)) from error


def _too_deep(line: int | None) -> Problem:
    return Problem(
        (), "YAML nested too deeply", f"expected at most {_MOST_LEVELS} levels of nesting", line
    )


def _check_nodes(node: yaml.Node, source: str, around: tuple[yaml.Node, ...]) -> None:
    if any(node is outer for outer in around):
        problem = Problem(
            (),
            "an alias inside its own anchor",
            "expected a finite value",
            node.start_mark.line + 1,
        )
        raise SpecError(source, (problem,))
    if len(around) > _MOST_LEVELS:
        raise SpecError(source, (_too_deep(node.start_mark.line + 1),))
    around = (*around, node)
    if isinstance(node, yaml.SequenceNode):
        for child in node.value:
            _check_nodes(child, source, around)
    elif isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, child in node.value:
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    problem = Problem(
                        (key.value,),
                        "this key twice",
                        f"expected it once; first on line {seen[key.value]}",
                        line,
                    )
                    raise SpecError(source, (problem,))
                seen[key.value] = line
            _check_nodes(child, source, around)


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
