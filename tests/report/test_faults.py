"""A fault is told where people look: in the notes, in the trace, in the timeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.exporters.perfetto import write_trace
from analysis.report import render_html
from analysis.report.run_figures import run_figures
from analysis.results.notes import notes_of
from analysis.runs.run import load_run
from tests.report.synthetic_run import START_NS, make_run

_DOWN = "link-down on h0-edge0"


def _event(at_ns: int, what: str, began: bool, **more: Any) -> dict[str, Any]:
    return {"at_ns": START_NS + at_ns, "link": 0, "what": what, "began": began} | more


@pytest.fixture
def run(tmp_path: Path) -> Path:
    directory = make_run(tmp_path / "run")
    file = directory / "environment.json"
    environment = json.loads(file.read_text())
    environment["faults"] = [
        _event(20_000, _DOWN, True),
        _event(20_000, _DOWN, True, link=1),
        _event(70_000, _DOWN, False),
        _event(90_000, _DOWN, False, link=1),
        _event(10**9, "loss 0.5 on h0-edge0", True),
        _event(5_000, "kill rank 1", True, link=None, job="another"),
    ]
    file.write_text(json.dumps(environment))
    return directory


def test_notes_say_when_and_in_which_iterations(run: Path) -> None:
    told, lost, predicted = notes_of(load_run(run))
    begins = "after the first operation began"
    assert told == f"{_DOWN}: from 0.020 ms to 0.090 ms {begins}, during iteration 0"
    assert lost == f"loss 0.5 on h0-edge0: from 1,000.000 ms on {begins}, between iterations"
    assert predicted == "predictions of single collectives are those without faults of links"


def test_the_trace_has_their_begins_and_ends(run: Path) -> None:
    events = json.loads(write_trace(run).read_text())["traceEvents"]
    instants = [(e["name"], e["ts"]) for e in events if e.get("cat") == "fault"]
    assert instants == [
        (f"{_DOWN} begins", 20.0),
        (f"{_DOWN} ends", 90.0),
        ("loss 0.5 on h0-edge0 begins", 10**6),
    ]


def test_the_timeline_of_the_iteration_shows_them(run: Path) -> None:
    page = render_html(run_figures([run]))
    assert page.count('class="fault"') == 2  # one in the drawing, one in its legend
    assert _DOWN in page
