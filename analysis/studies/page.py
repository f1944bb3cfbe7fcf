"""study.html: one self-contained page, and every figure as an SVG file of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from analysis.report.html import PAGE_WIDTH
from analysis.report.summary_page import Section, SummaryPage
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

_SHOWN_INTERACTIONS = 6


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
    page = SummaryPage(
        "study",
        study.name,
        "table.csv",
        tuple(_figures(study)),
        findings(study, first),
        sections,
        tables,
    )
    return page.write(directory)


def _figures(study: StudyCases) -> Iterator[tuple[str, str, str]]:
    emulated = sum(case.how == "emulated" for case in study.cases)
    yield "cases", str(len(study.cases)), f"{len(study.factors)} factors"
    yield "emulated", str(emulated), "measured in runs"
    yield "predicted", str(len(study.cases) - emulated), f"by {study.predictor}"
    yield "failed", str(sum(case.failure is not None for case in study.cases)), "without an outcome"


def _sections(study: StudyCases, effects: dict[str, Effects | None]) -> Iterator[Section]:
    for response, one in effects.items():
        if one is None or not one.mains or not one.variance.total:
            continue
        title = RESPONSES[response][0]
        yield Section(
            f"shares-{response}",
            f"What decides: {title}",
            "The spread of all cases about their mean, as sums of squares: the part that each "
            "factor explains alone, the part that two explain only together, and the rest.",
            shares_chart(one, PAGE_WIDTH),
        )
        yield Section(
            f"effects-{response}",
            f"Main effects: {title}",
            "The mean of all cases at each level; the dashed line is the mean of all. Under each "
            "factor's name stands its share of the sum of squares.",
            main_effects_chart(one, PAGE_WIDTH),
        )
        shown = one.interactions[:_SHOWN_INTERACTIONS]
        if shown:
            yield Section(
                f"interactions-{response}",
                f"Interactions: {title}",
                "The pairs of factors that explain most beyond their main effects. Parallel lines "
                "are no interaction.",
                interactions_chart(one, shown, PAGE_WIDTH),
            )
    ends = best_and_worst(study)
    if ends.rows:
        yield Section(
            "best",
            "Best and worst cases",
            f"By {RESPONSES[study.response][0]}, within the limits.",
            table=ends,
        )
    costs, front = cost_chart(study, PAGE_WIDTH), front_table(study)
    if costs is not None:
        caption = "The line joins the cases that no other beats in both: the Pareto front."
        yield Section("cost", "Time against cost", caption, costs, front)
    agreement = agreement_chart(study, PAGE_WIDTH)
    if agreement is not None:
        caption = "Iterations that are emulated and predicted, too; on the line both agree."
        yield Section("agreement", "Predicted against measured", caption, agreement)
