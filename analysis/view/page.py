"""One file that shows documents of runs and loads nothing, or that fetches them from its server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from analysis.view.document import ViewDocument


def render_page(labels: Sequence[str], documents: Sequence[ViewDocument] = ()) -> str:
    """The page of the runs with these labels. With their documents it is complete; without them it
    asks the place that it came from for `runs/NUMBER.json`.

    Raises ValueError for no runs, or documents that are not those of the labels.
    """
    if not labels or (documents and [each.label for each in documents] != list(labels)):
        raise ValueError("a page needs at least one run, and the documents of all or of none")
    held = _json([each.as_dict() for each in documents]) if documents else "null"
    template = _environment().get_template("view.html")
    return template.render(labels=_json(list(labels)), documents=held, title=" · ".join(labels[:4]))


def document_json(document: ViewDocument) -> str:
    """The text of a document as the page fetches it."""
    return json.dumps(document.as_dict(), separators=(",", ":"))


def _json(value: Any) -> Markup:
    # Inside <script>: no name of a spec ends it.
    return Markup(json.dumps(value, separators=(",", ":")).replace("<", "\\u003c"))


@cache
def _environment() -> Environment:
    loader = ChoiceLoader([PackageLoader("analysis.view"), PackageLoader("analysis.report")])
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
