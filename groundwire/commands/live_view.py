"""The page of a run that goes on: `groundwire run --live`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread

from analysis.runs.live import load_live_run
from analysis.runs.run import load_run
from analysis.view import ViewServer, render_page, view_document
from analysis.view.document import ViewDocument
from analysis.view.live import live_document
from analysis.view.page import document_json
from emulator.progress import PROGRAM_STREAMS, Progress, Report
from groundwire.commands.console.progress_display import iteration_in_words


class LiveView:
    """Serves the page of one run from before it begins until after its end. A context manager."""

    def __init__(self, directory: Path, label: str) -> None:
        self._directory, self._label = directory, label
        self._words = "the run begins"
        self._last: ViewDocument | None = None
        self._finished = False
        self._server = ViewServer(render_page([label]), [self._document], change=True)
        self._thread = Thread(target=self._server.serve_forever, name="view", daemon=True)

    def __enter__(self) -> LiveView:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The address of the page."""
        return self._server.url

    def telling(self, report: Report) -> Callable[[Progress], None]:
        """A report that tells the page, too."""

        def tell(progress: Progress) -> None:
            if progress.stage not in PROGRAM_STREAMS:
                if progress.iteration is not None and progress.iterations is not None:
                    count = progress.iterations
                    self._words = iteration_in_words(progress.iteration, count)
                elif progress.detail:
                    self._words = progress.detail
            report(progress)

        return tell

    def serve_finished(self) -> None:
        """The run is done, and its directory is complete: show that, until an interrupt."""
        self._finished = True
        with suppress(KeyboardInterrupt):
            threading.Event().wait()

    def _document(self) -> str:
        """Raises RunError for a damaged run directory."""
        if self._finished:
            return document_json(view_document(load_run(self._directory), self._label))
        run = load_live_run(self._directory)
        if run is not None:
            self._last = live_document(run, self._label, self._words)
        elif self._last is not None and self._last.progress is not None:  # it is being predicted
            told = replace(self._last.progress, words=self._words)
            self._last = replace(self._last, progress=told)
        if self._last is None:
            return "null"
        return document_json(self._last)
