"""The report and the view for who cannot see or aim: rules in CI, Lighthouse's score when long."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.report.chromium import Page, find_chromium
from tests.report.test_page import report_of
from tests.view.accessibility import faults_of
from tests.view.test_view_page import write_page

_LEAST = 0.95


def _pages(run_directory: Path, tmp_path: Path) -> dict[str, Path]:
    return {
        "report": report_of(run_directory),
        "view": write_page(tmp_path / "view.html", run_directory),
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_keep_the_rules(page: Page, run_directory: Path, tmp_path: Path, scheme: str) -> None:
    page.emulate(scheme=scheme)
    for width in (420, 1240):
        page.resize(width, 900)
        for name, path in _pages(run_directory, tmp_path).items():
            page.events.clear()
            page.open(path)
            assert faults_of(page) == [], (name, width)


def test_a_page_that_breaks_them_is_told(page: Page, tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text(
        "<!doctype html><html><head></head><body><main><h1>One</h1><h3 id=a>Three</h3>"
        "<p id=a style='color: #999'>pale</p><img src=data:, width=40 height=40>"
        "<button style='width: 10px; height: 10px'></button>"
        "<table><tr><td>1</td></tr></table></main></body></html>"
    )
    page.open(tmp_path / "bad.html")
    rules = {fault.partition(":")[0] for fault in faults_of(page)}
    assert rules == {
        *("html-lang", "title", "heading-order", "one-id", "contrast", "alt", "name"),
        *("target-size", "table-headers"),
    }


def _lighthouse() -> list[str]:
    """The command of Lighthouse: on the path, or `GROUNDWIRE_LIGHTHOUSE`, the one of a folder into
    which npm has installed it; a skip where there is none."""
    found = os.environ.get("GROUNDWIRE_LIGHTHOUSE") or shutil.which("lighthouse")
    if found is None:
        pytest.skip(
            "needs Lighthouse (npm install -g lighthouse), or GROUNDWIRE_LIGHTHOUSE=PROGRAM"
        )
    return [found]


@pytest.mark.long
@pytest.mark.skipif(find_chromium() is None, reason="chromium is not installed")
def test_lighthouse_gives_95_of_100_at_least(run_directory: Path, tmp_path: Path) -> None:
    lighthouse = _lighthouse()
    pages = _pages(run_directory, tmp_path)
    for name, path in pages.items():
        if path.parent != tmp_path:
            shutil.copyfile(path, tmp_path / f"{name}.html")
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    scores = {}
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        for name in pages:
            done = subprocess.run(
                [*lighthouse, f"http://127.0.0.1:{server.server_port}/{name}.html",
                 "--only-categories=accessibility", "--output=json", "--quiet",
                 "--chrome-flags=--headless --no-sandbox --disable-gpu"],
                capture_output=True, text=True, timeout=600, check=False,
                env=os.environ | {"CHROME_PATH": str(find_chromium())},
            )  # fmt: skip
            assert done.returncode == 0, done.stderr[-2000:]
            scores[name] = json.loads(done.stdout)["categories"]["accessibility"]["score"]
        server.shutdown()
    assert all(score >= _LEAST for score in scores.values()), scores
