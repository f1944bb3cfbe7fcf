"""`groundwire view`: runs in, a page that is moved about in."""

from __future__ import annotations

import json
import sys
import webbrowser
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from analysis.runs.run import Run, load_run
from analysis.runs.several import labels_of, run_directories
from analysis.view import ViewServer, render_page, view_document
from analysis.view.page import document_json

_MOST_IN_ONE_FILE = 16


class ViewRefused(ValueError):
    """Arguments that no page can be made of."""


def view(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Run directories, or directories with runs in them: of a sweep, a study, `runs/`.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"Write the page into one file that loads nothing (at most {_MOST_IN_ONE_FILE} "
            "runs), and serve none.",
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65_535, metavar="PORT", help="Serve at this port (0: any that is free)."
        ),
    ] = 0,
    open_: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in this machine's browser.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print what the page would show, as JSON, and serve none."),
    ] = False,
) -> int:
    """Look at runs in a browser: the fabric over time, a port, a path, the ranks.

    The page has a slider of time: links show how busy they are at it, how much waits, what is
    marked, dropped or paused, at every port of every switch. Two runs stand side by side, with what
    differs: keys of their specs, collectives, ports. It is served on this machine alone, read-only,
    under an address with a token, until Ctrl-C; with --out it is a file.
    """
    directories = [each for run in runs for each in run_directories(run)]
    if len({each.resolve() for each in directories}) < len(directories):
        raise ViewRefused("expected each run once, found one twice")
    labels = labels_of(directories)
    documents = [partial(_document, *each) for each in zip(directories, labels, strict=True)]
    if as_json or out is not None:
        if len(directories) > _MOST_IN_ONE_FILE:
            raise ViewRefused(
                f"expected at most {_MOST_IN_ONE_FILE} runs in one file, found {len(directories)}: "
                "name some of them, or leave out --out and --json"
            )
        found = [view_document(*document) for document in _loaded(directories, labels)]
        if as_json:
            print(json.dumps([each.as_dict() for each in found], indent=1))
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            page = render_page(labels, found)
            out.write_text(page, encoding="utf-8", errors="backslashreplace")
            print(out)
        return 0
    load_run(directories[0])  # a mistake is told here rather than in the page
    with ViewServer(render_page(labels), documents, port) as server:
        print(f"{server.url}  (Ctrl-C ends it)", flush=True)
        if open_ and not webbrowser.open(server.url):
            print("no browser was found: open the address yourself", file=sys.stderr)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0


def _loaded(directories: Sequence[Path], labels: Sequence[str]) -> list[tuple[Run, str]]:
    return [(load_run(each), label) for each, label in zip(directories, labels, strict=True)]


def _document(directory: Path, label: str) -> str:
    return document_json(view_document(load_run(directory), label))
