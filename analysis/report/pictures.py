"""The drawings of a report as pictures of their own: SVG files that load nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from markupsafe import Markup

from analysis.report.page import page_environment
from analysis.report.run_figures import RunFigures, run_figures
from analysis.report.sections import ReportSection, sections
from analysis.runs.run import Run

_WIDTH = 960
_MARGIN = 16
_TOP = 40
_KEY_HEIGHT = 20
_CHARACTER = 7  # of the legend's font, in the mean
_TIPS = re.compile(r' data-tip="[^"]*"')
_SIZE = re.compile(r'<svg viewBox="0 0 ([\d.]+) ([\d.]+)"[^>]*aria-label="([^"]*)">')


@dataclass(frozen=True)
class Picture:
    """A drawing with its title and legend: an SVG document, and the name that it is known by, such
    as `timeline` or `fabric-over-time`."""

    name: str
    svg: str

    def _repr_svg_(self) -> str:
        """The picture in a notebook."""
        return self.svg

    def __repr__(self) -> str:
        return f"<Picture {self.name}, {len(self.svg):,} characters of SVG>"


@dataclass(frozen=True)
class _Key:
    x: int
    y: int
    text: str
    swatch: Markup


def pictures(run: Run) -> dict[str, Picture]:
    """The pictures of a run by their names, such as `pictures(run)["timeline-iteration-0"]`; of a
    run of several jobs with the job's name after that.

    Raises RunError for a damaged run directory.
    """
    return {picture.name: picture for picture in draw(run_figures([run.directory]))}


def draw(runs: Sequence[RunFigures]) -> tuple[Picture, ...]:
    """The drawings of all sections that have any, of each run.

    Raises RunError for a damaged run directory, ValueError for no runs.
    """
    if not runs:
        raise ValueError("pictures need at least one run")
    found = []
    for section in sections(runs, _WIDTH - 2 * _MARGIN):
        for panel in section.panels:
            for view, drawing in panel.views:
                parts = [section.key, view, panel.run.label if len(runs) > 1 else ""]
                words = "-".join(part for part in parts if part)
                name = re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-")
                what = ", ".join(part for part in (section.title, view) if part)
                title = f"{panel.run.run.spec.name}: {what[0].lower()}{what[1:]}"
                found.append(Picture(name, _document(title, section, drawing)))
    return tuple(found)


def write_pictures(runs: Sequence[RunFigures], directory: Path) -> tuple[Path, ...]:
    """A file per drawing in `directory`, which is made where needed; returns their paths.

    Raises what `draw` raises, and OSError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for picture in draw(runs):
        path = directory / f"{picture.name}.svg"
        path.write_text(picture.svg, encoding="utf-8", errors="backslashreplace")
        paths.append(path)
    return tuple(paths)


def _document(title: str, section: ReportSection, drawing: Markup) -> str:
    plain = _TIPS.sub("", drawing)
    found = _SIZE.match(plain)
    assert found is not None, "a drawing begins with its size"
    height = _TOP + ceil(float(found[2])) + _MARGIN
    keys = tuple(_keys(section, height))
    template = page_environment().get_template("picture.svg")
    return template.render(
        title=title,
        label=Markup(found[3]),
        width=_WIDTH,
        height=keys[-1].y + _MARGIN if keys else height,
        margin=_MARGIN,
        top=_TOP,
        drawing=Markup(plain[found.end() :].removesuffix("</svg>")),
        keys=keys,
    )


def _keys(section: ReportSection, height: int) -> Iterator[_Key]:
    """The legend in lines below the drawing."""
    shades = (
        (name, Markup('<rect class="s{}" width="12" height="12"/>').format(number))
        for number, name in enumerate(section.scale)
    )
    x, y = _MARGIN, height + _MARGIN
    for name, swatch in (*section.legend, *shades):
        text = str(name)
        needed = 17 + _CHARACTER * len(text) + 18
        if x + needed > _WIDTH and x > _MARGIN:
            x, y = _MARGIN, y + _KEY_HEIGHT
        yield _Key(x, y, text, Markup(swatch))
        x += needed
