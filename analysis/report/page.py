"""The parts of every page: the templates, and how tables' cells read in them."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from analysis.report.tables.cells import cell, heading, is_numeric
from analysis.report.tables.table import Unit


def page_environment() -> Environment:
    """The pages' templates, with the style and the script."""
    environment = Environment(
        loader=PackageLoader("analysis.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = _cell
    environment.filters["heading"] = heading
    environment.tests["numeric"] = is_numeric
    environment.globals["is_error"] = lambda column: column.unit is Unit.ERROR
    return environment


def _cell(value: Any, column: Any) -> str:
    return cell(column, value)
