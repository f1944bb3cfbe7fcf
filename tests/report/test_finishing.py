"""Pages are made beside the predictions, by a process of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from groundwire import finishing
from groundwire.finishing import finish
from groundwire.pipeline import silent
from tests.report.synthetic_run import make_run

_MADE = ("result.json", "report.html", "trace.json")


def _finished(directory: Path) -> list[bytes]:
    for name in _MADE:
        (directory / name).unlink(missing_ok=True)
    finish(directory, silent, pages=True)
    return [(directory / name).read_bytes() for name in _MADE]


def test_two_processes_write_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_directory = make_run(tmp_path / "run", queues=True)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    by_two = _finished(run_directory)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert _finished(run_directory) == by_two


def test_what_is_in_the_way_of_pages_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the other process has failed."""

    def fails(*_: object) -> None:
        raise OSError("no room for pages")

    run_directory = make_run(tmp_path / "run")
    (run_directory / "report.html").unlink(missing_ok=True)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(finishing, "finish_run", fails)
    with pytest.raises(OSError, match="no room for pages"):
        finish(run_directory, silent, pages=True)
    assert (run_directory / "result.json").exists()
    assert not (run_directory / "report.html").exists()
