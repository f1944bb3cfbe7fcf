"""The page of many cases or points: figures, findings, sections with drawings, tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment

from analysis.report.charts.drawing import Drawing
from analysis.report.page import page_environment
from analysis.report.tables.table import Table


@dataclass(frozen=True, slots=True)
class Section:
    """`key` is its anchor, and the name of its figure's file."""

    key: str
    title: str
    caption: str
    drawing: Drawing | None = None
    table: Table | None = None


@dataclass(frozen=True, slots=True)
class SummaryPage:
    """The contents of a page. `command` is the one that makes it, and the page's file is named
    after it; `raw_file` has its tables' values. A figure is a title, a value and a remark."""

    command: str
    name: str
    raw_file: str
    figures: Iterable[tuple[str, str, str]]
    findings: Iterable[str]
    sections: Sequence[Section]
    tables: Sequence[Table]

    def write(self, directory: Path) -> tuple[Path, ...]:
        """Write the page and figures/*.svg into `directory`; returns their paths, the page's first.
        Figures of an earlier page there are removed."""
        page = directory / f"{self.command}.html"
        template = _environment().get_template("summary.html")
        text = template.render(page=self, title=self.name, command=self.command)
        page.write_text(text, encoding="utf-8")
        folder = directory / "figures"
        folder.mkdir(exist_ok=True)
        for old in folder.glob("*.svg"):
            old.unlink()
        written = [page]
        for section in self.sections:
            if section.drawing is not None:
                path = folder / f"{section.key}.svg"
                path.write_text(standalone(section.drawing), encoding="utf-8")
                written.append(path)
        return tuple(written)


def standalone(drawing: Drawing) -> str:
    """The drawing as a file, with the page's colours in it."""
    style = _environment().get_template("style.css").render()
    opening, rest = str(drawing.render()).split(">", 1)
    head = opening.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"')
    return f"{head}><style>{style}</style>{rest}\n"


@cache
def _environment() -> Environment:
    return page_environment()
