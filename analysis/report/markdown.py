"""Reports as GitHub-flavoured markdown: summary, findings and the tables."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from analysis.report.overview import findings, key_figures
from analysis.report.run_figures import RunFigures
from analysis.report.tables.cells import cell, heading, is_numeric
from analysis.report.tables.table import Table

MAX_ROWS = 200
_MARKS = re.compile(r"[\\`*\[\]|]|(?<!\w)_|_(?!\w)")


def render_markdown(runs: Sequence[RunFigures]) -> str:
    """One document for all runs. Raises RunError for a damaged run directory."""
    parts = ["# Groundwire report"]
    for run in runs:
        parts += _run(run)
    return "\n\n".join(parts) + "\n"


def _run(run: RunFigures) -> list[str]:
    result = run.result
    parts = [f"## {_escape(run.label)}"]
    if result["valid"]:
        simulated = ", simulated network" if result.get("network") == "simulated" else ""
        if "scale_payload" in result:
            simulated += f", {result['scale_payload']} of the payload"
        parts.append(f"**Valid** ({result['kernel']} kernel{simulated}).")
    else:
        reasons = "".join(f"\n- {_escape(reason)}" for reason in result["invalid_reasons"])
        parts.append(f"**Invalid**: do not use these figures.\n{reasons}")
    lines = ["| figure | value | remark |", "|---|---:|---|"]
    lines += [
        f"| {_escape(f.title)} | {_escape(f.value)} | {_escape(f.remark)} |"
        for f in key_figures(run)
    ]
    parts.append("\n".join(lines))
    told = findings(run)
    if told:
        parts.append("\n".join(f"- {_escape(text)}" for text in told))
    for name, each in run.tables.items():
        if name != "traffic" and each.rows:
            parts.append(_table(each))
    return parts


def _table(table: Table) -> str:
    lines = [f"### {_escape(table.title)}", ""]
    lines.append("| " + " | ".join(_escape(heading(c)) for c in table.columns) + " |")
    lines.append("|" + "|".join("---:" if is_numeric(c) else "---" for c in table.columns) + "|")
    for row in table.rows[:MAX_ROWS]:
        cells = (cell(c, value) for c, value in zip(table.columns, row, strict=True))
        lines.append("| " + " | ".join(_escape(text) for text in cells) + " |")
    if len(table.rows) > MAX_ROWS:
        lines += ["", f"{len(table.rows) - MAX_ROWS} more rows: `--format csv` has all."]
    return "\n".join(lines)


def _escape(text: str) -> str:
    """Text as markdown shows it: names of programs and files may hold HTML, links and marks of
    markdown's own."""
    escaped = html.escape(text, quote=False)
    return _MARKS.sub(r"\\\g<0>", escaped).replace("\n", " ")
