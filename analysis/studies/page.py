"""study.html: one self-contained page, and every figure as an SVG file of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment

from analysis.report.charts.drawing import Drawing
from analysis.report.page import page_environment
from analysis.report.tables.table import Table
from analysis.studies.cases import RESPONSES, StudyCases
from analysis.studies.charts.agreement import agreement_chart
from analysis.studies.charts.cost import cost_chart
from analysis.studies.charts.interactions import interactions_chart
from analysis.studies.charts.main_effects import main_effects_chart
from analysis.studies.charts.shares import shares_chart
from analysis.studies.effects import Effects, effects_of
from analysis.studies.findings import (
    best_and_worst,
    effects_table,
    findings,
    front_table,
    variance_table,
)
from analysis.studies.table import study_table

_WIDTH = 1080.0
_SHOWN_INTERACTIONS = 6


@dataclass(frozen=True, slots=True)
class _Section:
    """`key` is its anchor, and the name of its figure's file."""

    key: str
    title: str
    caption: str
    drawing: Drawing | None = None
    table: Table | None = None


def write_page(study: StudyCases, directory: Path) -> tuple[Path, ...]:
    """Write study.html and figures/*.svg into `directory`; returns their paths. Figures of an
    earlier version of the study are removed."""
    effects = {response: effects_of(study, response) for response in study.responses}
    sections = tuple(_sections(study, effects))
    first = effects[study.response]
    tables = [study_table(study)]
    for one in effects.values():
        if one is not None and one.mains:
            tables += [effects_table(one), variance_table(one)]
    page = directory / "study.html"
    page.write_text(
        _environment()
        .get_template("study.html")
        .render(
            study=study,
            figures=_figures(study),
            findings=findings(study, first),
            sections=sections,
            tables=tables,
        ),
        encoding="utf-8",
    )
    folder = directory / "figures"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    written = [page]
    for section in sections:
        if section.drawing is not None:
            path = folder / f"{section.key}.svg"
            path.write_text(standalone(section.drawing), encoding="utf-8")
            written.append(path)
    return tuple(written)


def _figures(study: StudyCases) -> Iterator[tuple[str, str, str]]:
    emulated = sum(case.how == "emulated" for case in study.cases)
    yield "cases", str(len(study.cases)), f"{len(study.factors)} factors"
    yield "emulated", str(emulated), "measured in runs"
    yield "predicted", str(len(study.cases) - emulated), f"by {study.predictor}"
    yield "failed", str(sum(case.failure is not None for case in study.cases)), "without an outcome"


def _sections(study: StudyCases, effects: dict[str, Effects | None]) -> Iterator[_Section]:
    for response, one in effects.items():
        if one is None or not one.mains or not one.variance.total:
            continue
        title = RESPONSES[response][0]
        yield _Section(
            f"shares-{response}",
            f"What decides: {title}",
            "The spread of all cases about their mean, as sums of squares: what each factor "
            "explains alone, what two explain only together, and what is left.",
            shares_chart(one, _WIDTH),
        )
        yield _Section(
            f"effects-{response}",
            f"Main effects: {title}",
            "The mean of all cases at each level; the dashed line is the mean of all. Under each "
            "factor's name stands its share of the sum of squares.",
            main_effects_chart(one, _WIDTH),
        )
        shown = one.interactions[:_SHOWN_INTERACTIONS]
        if shown:
            yield _Section(
                f"interactions-{response}",
                f"Interactions: {title}",
                "The pairs of factors that explain most beyond their main effects. Parallel lines "
                "are no interaction.",
                interactions_chart(one, shown, _WIDTH),
            )
    ends = best_and_worst(study)
    if ends.rows:
        yield _Section(
            "best",
            "Best and worst cases",
            f"By {RESPONSES[study.response][0]}, within the limits.",
            table=ends,
        )
    costs, front = cost_chart(study, _WIDTH), front_table(study)
    if costs is not None:
        caption = "The line joins the cases that no other beats in both: the Pareto front."
        yield _Section("cost", "Time against cost", caption, costs, front)
    agreement = agreement_chart(study, _WIDTH)
    if agreement is not None:
        caption = "Iterations that are emulated and predicted, too; on the line both agree."
        yield _Section("agreement", "Predicted against measured", caption, agreement)


@cache
def _environment() -> Environment:
    return page_environment("analysis.studies")


def standalone(drawing: Drawing) -> str:
    """The drawing as a file, with the page's colours in it."""
    environment = _environment()
    style = environment.get_template("style.css").render()
    opening, rest = str(drawing.render()).split(">", 1)
    head = opening.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"')
    return f"{head}><style>{style}</style>{rest}\n"
