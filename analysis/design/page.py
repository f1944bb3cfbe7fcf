"""design.html: one self-contained page of a design."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from analysis.design.charts.front import front_chart
from analysis.design.charts.gains import gains_chart
from analysis.design.charts.sensitivities import sensitivities_chart
from analysis.design.charts.strategies import strategies_chart
from analysis.design.confirmed import Confirmation, confirmation_table, confirmation_words
from analysis.design.findings import (
    best_table,
    clusters_table,
    findings,
    front_table,
    memory_table,
    points_table,
    sensitivity_table,
)
from analysis.design.search import Found
from analysis.report.html import PAGE_WIDTH
from analysis.report.summary_page import Section, SummaryPage
from analysis.report.tables.figures import duration, number


def write_page(found: Found, confirmation: Confirmation | None, directory: Path) -> Path:
    """Write design.html and figures/*.svg into `directory`; returns the page's path."""
    sections = tuple(_sections(found, confirmation))
    said = findings(found)
    if confirmation is not None:
        said = (*confirmation_words(confirmation), *said)
    page = SummaryPage(
        "design",
        found.file.sections.name,
        "points.csv",
        tuple(_figures(found, confirmation)),
        said,
        sections,
        [points_table(found)],
    )
    return page.write(directory)[0]


def _figures(found: Found, confirmation: Confirmation | None) -> Iterator[tuple[str, str, str]]:
    best = found.best
    yield "iteration", duration(best.time_ns), "of the best point, by the model"
    yield "exposed", duration(best.exposed_ns), "communication that ranks wait for"
    yield "cost", number(best.cost), "dollars"
    yield "points", str(found.points), f"{len(found.solved)} solved, {found.pruned} pruned"
    if confirmation is not None:
        yield "emulation", confirmation.verdict.split(":")[0], "of the model's gain"


def _sections(found: Found, confirmation: Confirmation | None) -> Iterator[Section]:
    if confirmation is not None:
        yield Section(
            "confirmation",
            "Predicted and measured",
            f"Gains over {confirmation.baseline}: by the model, and of real ranks on an emulated "
            "network of the size that can be emulated.",
            gains_chart(confirmation, PAGE_WIDTH),
            confirmation_table(confirmation),
        )
    yield Section(
        "best", "The best point", "Bandwidth of a host in each dimension, one direction.",
        table=best_table(found),
    )  # fmt: skip
    rows = sensitivity_table(found)
    if rows.rows:
        yield Section(
            "sensitivities",
            "What it hangs on",
            "Constraints that the best point meets with equality, and their multipliers.",
            sensitivities_chart(found, PAGE_WIDTH),
            rows,
        )
    memory = memory_table(found)
    if memory.rows:
        yield Section(
            "memory",
            "With more memory",
            "Strategies that do not fit into the best point's host, and would be faster on it if "
            "all memory were as fast as the first tier.",
            table=memory,
        )
    strategies = strategies_chart(found, PAGE_WIDTH)
    if strategies is not None:
        yield Section(
            "strategies",
            "Degree of tensor parallelism",
            "The best point of each degree. A line begins at the least degree that fits into the "
            "memory; its large dot is its optimum.",
            strategies,
        )
    clusters = clusters_table(found)
    if clusters is not None:
        caption = "The best strategy of each combination of resources."
        yield Section("clusters", "Clusters", caption, table=clusters)
    front = front_chart(found, PAGE_WIDTH)
    yield Section(
        "front",
        "Time against cost",
        "The line joins the points that no other beats in both: the Pareto front. The large dot is "
        "the best point.",
        front,
        front_table(found),
    )
