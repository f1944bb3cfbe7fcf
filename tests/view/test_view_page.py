"""The page of `groundwire view`, in a real browser and over its server."""

from __future__ import annotations

import json
from dataclasses import replace
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest

from analysis import load_run
from analysis.runs.run import RunError
from analysis.view import ViewServer, render_page, view_document
from analysis.view.document import ViewPhase
from groundwire.commands.view import ViewRefused, view
from tests.report.chromium import Page
from tests.report.synthetic_run import make_run
from tests.report.test_page import complaints, requests

LINK_LANES = 96
RANKS = 16


def write_page(path: Path, *directories: Path) -> Path:
    found = [view_document(load_run(each), each.name) for each in directories]
    path.write_text(render_page([each.label for each in found], found))
    return path


def test_the_document_has_each_port_over_time_and_each_wait(run_directory: Path) -> None:
    document = view_document(load_run(run_directory), "run")
    assert (len(document.ports), len(document.ranks)) == (LINK_LANES, RANKS)
    sampled = [port for port in document.ports if port.times_ns]
    assert len(sampled) == 3
    for port in sampled:
        assert port.sent == tuple(10_000 * step for step in range(101))
        assert port.peak[-2] == 99 * 2_000 * (sampled.index(port) + 1)
    # Two iterations of two collectives; each rank waits for each of them, and computes twice.
    assert [c.kind for c in document.collectives] == ["all_to_all", "all_reduce"] * 2
    for spans in document.ranks:
        assert sorted(s.collective for s in spans if s.collective is not None) == [0, 1, 2, 3]
    # The origin is the first thing that a rank does.
    assert min(span.start_ns for spans in document.ranks for span in spans) == 0
    assert document.stretches_ns[0][0] == 0


def test_a_path_leads_from_host_to_host(run_directory: Path) -> None:
    run = load_run(run_directory)
    document = view_document(run, "run")
    assert len(document.paths) == RANKS * (RANKS - 1)
    ends = {port.port: (port.node, port.peer) for port in document.ports}
    for path in document.paths:
        hops = [ends[port] for port in path.ports]
        assert hops[0][0] == run.hosts[path.source]
        assert hops[-1][1] == run.hosts[path.destination]
        assert all(a[1] == b[0] for a, b in pairwise(hops))


def test_the_page_follows_its_slider(page: Page, run_directory: Path, tmp_path: Path) -> None:
    page.open(write_page(tmp_path / "view.html", run_directory))
    assert complaints(page) == [] and requests(page) == []
    assert page.evaluate("document.querySelectorAll('#maps .link').length") == LINK_LANES
    page.evaluate(
        "document.getElementById('measure').value = 'queue';"
        "document.getElementById('measure').dispatchEvent(new Event('change'))"
    )
    note = "document.querySelector('#maps .note').textContent"
    shades = "[...document.querySelectorAll('#maps .link')].filter(l => !l.matches('.s0')).length"

    def at(share: float) -> tuple[str, int]:
        page.evaluate(f"setCursor({share}); paint()")
        return page.evaluate(note), page.evaluate(shades)

    # A saw tooth of 100 us begins with 50 us of computing; each iteration takes about 1.2 ms.
    words, coloured = at(0.04)
    assert words.startswith("Most at ") and "queue up to" in words and coloured == 3
    assert at(0.9) == ("Nothing of this at any port now.", 0)


def test_no_port_is_busier_than_always(page: Page, tmp_path: Path) -> None:
    """A packet counts when it begins: samples of one rate more than the port can send in them."""
    directory = make_run(tmp_path / "run", queues=True)
    path = directory / "ports.jsonl"
    samples = [json.loads(line) for line in path.read_text().splitlines()]
    for each in samples:
        if each.get("event") != "meta" and "sent_bytes" in each:
            each["sent_bytes"] = [15_000 * step for step in range(101)]  # 120 Gb/s of 100
    path.write_text("".join(json.dumps(each) + "\n" for each in samples))
    page.open(write_page(tmp_path / "view.html", directory))
    page.evaluate("setCursor(0.04); paint()")
    note = page.evaluate("document.querySelector('#maps .note').textContent")
    assert "100% of its rate" in note


def test_a_collectives_chunks_are_drawn_by_dimension(
    page: Page, run_directory: Path, tmp_path: Path
) -> None:
    document = view_document(load_run(run_directory), "run")
    first, *others = document.collectives
    middle = (first.start_ns + first.end_ns) // 2
    phases = tuple(
        ViewPhase(chunk, name, dimension, start, end)
        for chunk in range(3)
        for name, dimension, start, end in (
            ("inside", 0, first.start_ns, middle),
            ("across", 1, middle, first.end_ns),
        )
    )
    changed = replace(document, collectives=(replace(first, phases=phases), *others))
    path = tmp_path / "view.html"
    path.write_text(render_page(["run"], [changed]))
    page.open(path)
    assert page.evaluate("document.getElementById('chunks').hidden")
    page.evaluate("document.querySelector('#rows tbody tr').click()")
    assert not page.evaluate("document.getElementById('chunks').hidden")
    bars = (
        "[...document.querySelectorAll('#phases-of-chunks rect')].map(r => r.getAttribute('class'))"
    )
    assert page.evaluate(bars) == ["p0", "p1"] * 3
    label = page.evaluate(
        "document.querySelector('#phases-of-chunks svg').getAttribute('aria-label')"
    )
    assert label.startswith(f"3 chunks of {first.id}: dimension 0 in use 50% of the time")
    page.evaluate("document.querySelectorAll('#rows tbody tr')[1].click()")
    assert page.evaluate("document.getElementById('chunks').hidden")
    assert complaints(page) == []


def test_two_runs_stand_beside_each_other(page: Page, tmp_path: Path) -> None:
    first = make_run(tmp_path / "first", queues=True)
    second = make_run(tmp_path / "second", slower=1.25)
    page.open(write_page(tmp_path / "view.html", first, second))
    assert complaints(page) == []
    assert page.evaluate("document.querySelectorAll('#maps svg').length") == 2
    rows = page.evaluate(
        "[...document.querySelectorAll('#changes tbody tr')].map(r => r.innerText)"
    )
    slower = [row for row in rows if "mlp_gradient" in row]
    assert slower and all(
        "+2" in row for row in slower
    )  # 900 us became 1,125, and the ranks' steps
    assert any(row.startswith("counters.interval") for row in rows)


@pytest.mark.parametrize("width", [420, 1240])
def test_it_can_be_used_by_keyboard_and_on_a_phone(
    page: Page, run_directory: Path, tmp_path: Path, width: int
) -> None:
    page.resize(width, 900)
    page.open(write_page(tmp_path / "view.html", run_directory))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # Everything that a pointer does has a control that takes the focus and has a name.
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, input, select, canvas, #rows tbody tr')].filter("
        "e => e.tabIndex < 0 || !(e.textContent.trim() || e.closest('label') || "
        "e.getAttribute('aria-label'))).map(e => e.outerHTML.slice(0, 80))"
    )
    assert unnamed == []
    drawings = page.evaluate(
        "[...document.querySelectorAll('[role=img]')].map(e => e.getAttribute('aria-label'))"
    )
    assert len(drawings) == 3 and all(words.endswith(".") for words in drawings)
    # Names of nodes and figures of ports can be read; the heading is the spec's name.
    heights = (
        "[...document.querySelectorAll('#maps text, #plots text')].map("
        "e => e.getBoundingClientRect().height)"
    )
    assert min(page.evaluate(heights)) >= 10
    assert page.evaluate("document.querySelector('h1').textContent") == "synthetic"


def ask(server: ViewServer, path: str, host: str | None = None) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    try:
        headers = {} if host is None else {"Host": host}
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_the_server_answers_who_knows_its_token_alone(run_directory: Path) -> None:
    made = []

    def document() -> str:
        made.append(1)
        return '{"label": "run"}'

    with ViewServer("the page", [document]) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        own = urlsplit(server.url).path
        assert server.url.startswith("http://127.0.0.1:")
        assert ask(server, own) == (200, "the page")
        assert made == []
        assert json.loads(ask(server, f"{own}runs/0.json")[1]) == {"label": "run"}
        assert ask(server, f"{own}runs/0.json")[0] == 200 and made == [1]
        for wrong in ("/", "/x/", "/x/runs/0.json", own[:-2] + "/"):
            assert ask(server, wrong)[0] == 403, wrong
        assert ask(server, own, host="attacker.example")[0] == 403
        for nothing in ("runs/1.json", "runs/-1.json", "runs/../0.json", "etc/passwd"):
            assert ask(server, own + nothing)[0] == 404, nothing
        server.shutdown()


def test_a_directory_of_runs_is_all_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("rate=1", "rate=2"):
        make_run(tmp_path / "sweep" / name)
    out = tmp_path / "view.html"
    assert view([tmp_path / "sweep"], out=out, port=0, open_=False, as_json=False) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert '["rate=1","rate=2"]' in out.read_text()
    assert view([tmp_path / "sweep"], out=None, port=0, open_=False, as_json=True) == 0
    assert [each["label"] for each in json.loads(capsys.readouterr().out)] == ["rate=1", "rate=2"]


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="found no run; expected a directory"):
        view([tmp_path], out=None, port=0, open_=False, as_json=True)
    run = make_run(tmp_path / "run")
    with pytest.raises(ViewRefused, match="each run once"):
        view([run, run], out=None, port=0, open_=False, as_json=True)
