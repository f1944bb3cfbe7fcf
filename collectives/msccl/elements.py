"""An XML file as elements that know their lines."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from xml.parsers import expat

from topologies.spec.foreign_files import MSCCL, foreign_file


class MscclError(ValueError):
    """A file that is no MSCCL algorithm, or one that does not do what it says. `line` counts from
    1; `element` is as `tb 3, step 4`."""

    def __init__(self, source: str, line: int, element: str, found: str, allowed: str) -> None:
        where = f"{source}:{line}: {element}: " if element else f"{source}:{line}: "
        super().__init__(f"{where}found {found}, allowed {allowed}")
        self.line = line
        self.element = element
        self.found = found
        self.allowed = allowed


@dataclass(slots=True)
class Element:
    """An element of a file; `path` is its name in messages."""

    source: str
    line: int
    tag: str
    attributes: dict[str, str]
    path: str = ""
    children: list[Element] = field(default_factory=list)

    def wrong(self, found: str, allowed: str) -> MscclError:
        return MscclError(self.source, self.line, self.path or self.tag, found, allowed)

    def text(self, name: str, allowed: Collection[str] = ()) -> str:
        """An attribute. Raises MscclError when it is missing or none of those allowed."""
        if name not in self.attributes:
            raise self.wrong(f"no attribute {name}", f"{name} in every {self.tag}")
        value = self.attributes[name]
        if allowed and value not in allowed:
            raise self.wrong(f'{name}="{value}"', ", ".join(allowed))
        return value

    def number(self, name: str, least: int, below: int | None = None) -> int:
        """An attribute that is a whole number of this range."""
        value = self.text(name)
        allowed = f"{least} and more" if below is None else f"{least} to {below - 1}"
        try:
            number = int(value)
        except ValueError:
            raise self.wrong(f'{name}="{value}"', allowed) from None
        if number < least or (below is not None and number >= below):
            raise self.wrong(f'{name}="{value}"', allowed)
        return number

    def named(self, tag: str) -> list[Element]:
        """Its children of a kind."""
        return [child for child in self.children if child.tag == tag]


def parse(text: str, source: str) -> Element:
    """The root of a document. Raises MscclError."""
    parser = expat.ParserCreate()
    stack: list[Element] = []
    roots: list[Element] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(source, parser.CurrentLineNumber, tag, attributes)
        (stack[-1].children if stack else roots).append(element)
        stack.append(element)

    def refuse(name: str, *rest: object) -> None:
        line = parser.CurrentLineNumber
        raise MscclError(source, line, "", "a DOCTYPE", "an algorithm without one")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: stack.pop()
    parser.StartDoctypeDeclHandler = refuse  # its entities can stand for more than memory holds
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        foreign = foreign_file(text)
        found = str(error) if foreign in (None, MSCCL) else str(foreign)
        raise MscclError(source, error.lineno, "", found, "well-formed XML") from None
    return roots[0]
