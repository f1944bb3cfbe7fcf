"""`groundwire run --live` in a real browser: the page follows a run, and ends in its view."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from analysis.runs.live import load_live_run
from analysis.runs.run import RunError
from emulator.virtual.building.build import find_kernel
from tests.report.chromium import Page
from tests.report.test_page import complaints
from tests.session.command import ROOT, result_of, run_spec

_SPEC = """
name: live
fabric: {kind: flat, hosts: 4, link: {rate: 10Gbps, delay: 1us, mtu: 1500}}
workload:
  kind: collectives
  ranks: 4
  iterations: 16
  operations: [{kind: all_reduce, size: 1MB}, {kind: all_to_all, size: 1MB}]
capture: {points: []}
predict: [alpha-beta]
"""
_RANKS, _COLLECTIVES = 4, 32
_PATIENCE_S = 800.0

needs_kernel = pytest.mark.skipif(
    find_kernel() is None, reason="needs the virtual kernel (make setup)"
)


@contextmanager
def _running(directory: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A live run, and the address of its page."""
    spec = directory / "spec.yaml"
    spec.write_text(_SPEC)
    command = ["run", spec, "--kernel", "virtual", "--out", directory / "run", "--live"]
    with subprocess.Popen(
        [sys.executable, "-m", "groundwire.cli", *map(str, command)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        try:
            found = re.match(r"http://127\.0\.0\.1:\d+/\S+/", process.stderr.readline())
            assert found is not None
            yield process, found[0]
        finally:
            process.kill()


def _document(url: str) -> dict[str, Any] | None:
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=60)
    try:
        connection.request("GET", parts.path + "runs/0.json")
        found: dict[str, Any] | None = json.loads(connection.getresponse().read())
        return found
    finally:
        connection.close()


@needs_kernel
def test_the_page_follows_a_run_and_ends_in_its_view(page: Page, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    shown: list[tuple[str, str]] = []
    with _running(tmp_path) as (process, url):
        page.open_address(url)
        began = time.monotonic()
        while not (seen and seen[-1]["progress"] is None):
            assert time.monotonic() - began < _PATIENCE_S
            document = _document(url)
            if document is not None:
                seen.append(document)
            told = "[document.getElementById('doing').textContent, "
            shown.append(page.evaluate(told + "document.getElementById('counts').textContent]"))
            time.sleep(0.3)
        while page.evaluate("!document.querySelector('#runs .verdict.valid')"):
            assert time.monotonic() - began < _PATIENCE_S
            time.sleep(0.2)
        # The page is that of a run that is done.
        assert page.evaluate("document.getElementById('live').hidden")
        assert page.evaluate("document.querySelectorAll('#rows tbody tr').length") == _COLLECTIVES
        assert page.evaluate("document.querySelectorAll('#maps .link').length") == 2 * _RANKS
        assert page.evaluate("document.getElementById('path').options.length") > 1
        assert complaints(page) == []
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=_PATIENCE_S)
    assert process.returncode == 0 and "VALID" in output

    going = [each for each in seen if each["progress"] is not None]
    clocks = [each["progress"]["clock_ns"] for each in going if each["progress"]["clock_ns"]]
    assert len(set(clocks)) > 2 and clocks == sorted(clocks)
    done = [min(each["progress"]["over"], default=0) for each in going]
    assert done == sorted(done) and 0 < done[-1] <= _COLLECTIVES
    assert any(0 < each < _COLLECTIVES for each in done)
    # Each port as it is afterwards, but for what had not happened: what counts up is that far.
    last, sampled = seen[-1], [each for each in going if any(p["times_ns"] for p in each["ports"])]
    assert sampled
    finally_sent = {port["port"]: port["sent"][-1] for port in last["ports"]}
    for document in sampled:
        for port in document["ports"]:
            if port["times_ns"]:
                assert port["sent"][-1] <= finally_sent[port["port"]]
                assert list(port["sent"]) == sorted(port["sent"])
    assert any(port["sent"][-1] > 0 for port in sampled[-1]["ports"] if port["times_ns"])
    known = {(each["id"], each["kind"], each["size_bytes"]) for each in last["collectives"]}
    for document in going:
        for each in document["collectives"]:
            assert (each["id"], each["kind"], each["size_bytes"]) in known
    assert any(words.startswith("iteration ") for words, _ in shown)
    assert any("collectives done by every rank" in counts for _, counts in shown)
    assert not (tmp_path / "run" / "live").exists()

    # Nobody that was watched did anything else for it.
    plain = tmp_path / "plain"
    plain.mkdir()
    assert result_of(run_spec(plain, _SPEC)) == result_of(tmp_path / "run")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    assert load_live_run(tmp_path) is None
    (tmp_path / "live").mkdir()
    state = tmp_path / "live" / "state.json"
    for text in ("", "{}", '{"stage": 3}', "null"):
        state.write_text(text)
        with pytest.raises(RunError, match=re.escape(str(state))):
            load_live_run(tmp_path)
