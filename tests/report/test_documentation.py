from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from analysis.runs.run import load_run
from tests.report.synthetic_capture import make_captured_run
from tests.report.synthetic_run import make_run

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
RESULTS = ROOT / "benchmarks" / "results"
GUEST_CLOCK = "2026-01-01"
NO_SUCH_NAME = "utils.py"
"""CONTRIBUTING.md forbids it."""


def test_the_examples_of_api_md_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas", reason="pandas (the extra `tables`) is not installed")
    make_run(tmp_path / "runs" / "demo", queues=True)
    make_captured_run(tmp_path / "captured")
    (tmp_path / "captured" / "capture").rename(tmp_path / "runs" / "demo" / "capture")
    (tmp_path / "topologies").mkdir()
    shutil.copy(ROOT / "topologies" / "two-hosts.yaml", tmp_path / "topologies")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "api.md").read_text(), re.S)
    assert len(blocks) >= 4
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/api.md", "exec"), names)
    assert len(names["slowest"]) == 3  # type: ignore[arg-type]
    assert names["bytes_from_0_to_1"] == 2 * 1_048_576 // 16
    assert "<svg" in str(names["page"]) and str(names["metrics"]).endswith("# EOF\n")
    assert (tmp_path / "runs" / "demo" / "trace.json").exists()


def test_the_commands_of_report_md_are_the_command_s() -> None:
    from inspect import signature

    from groundwire.commands.console.report_style import ReportStyle
    from groundwire.commands.report import ReportFormat, report

    text = (DOCS / "report.md").read_text()
    assert set(re.findall(r"--format (\w+)", text)) == {f.value for f in ReportFormat} - {"html"}
    assert set(re.findall(r"--style ([\w-]+)", text)) == {ReportStyle.nccl_tests.value}
    assert {"runs", "format_", "out", "style", "as_json"} == set(signature(report).parameters)


def test_every_key_of_a_result_is_in_the_formats(tmp_path: Path) -> None:
    section = (DOCS / "formats.md").read_text().partition("## result.json")[2]
    named = set(re.findall(r"`(\w+)`", section.partition("\n## ")[0]))
    result = load_run(make_run(tmp_path / "run", iterations=1)).result
    (answer,) = result["collectives"][0]["predicted"].values()
    (errors,) = result["summary"]["error"].values()
    parts = (result, result["collectives"][0], result["iterations"][0], result["summary"])
    assert {key for part in (*parts, answer, errors) for key in part} <= named


@cache
def files_of_the_clone() -> tuple[str, ...]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    ours = [name for name in listed.splitlines() if (ROOT / name).exists()]
    patches = [path.read_text() for path in (ROOT / "emulator/kernel/patches").glob("*.patch")]
    # Files of Linux that our patches make or change are there, too.
    linux = [name for text in patches for name in re.findall(r"^\+\+\+ [^/\s]+/(\S+)", text, re.M)]
    return tuple(f"/{name}" for name in (*ours, *linux))


@pytest.mark.parametrize("page", [*PAGES, *sorted(RESULTS.glob("*.md"))], ids=lambda p: p.stem)
def test_links_and_names_of_files_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []
    there = files_of_the_clone()
    named = re.findall(r"`([\w./-]+\.(?:py|c|h|cc|lua)|\w+(?:/\w+)+/)`", text)
    missing = [
        name
        for name in named
        if name != NO_SUCH_NAME
        and not any(f.endswith(f"/{name}") or (name[-1] == "/" and f"/{name}" in f) for f in there)
    ]
    assert missing == [] or page.is_relative_to(RESULTS)  # those are of their day


def test_the_indices_list_every_page() -> None:
    for index in (DOCS / "README.md", RESULTS / "README.md"):
        linked = {index.parent / link for link in re.findall(r"\]\(([^)#]+)\)", index.read_text())}
        assert set(index.parent.rglob("*.md")) - {index} <= linked


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_reference_has_no_dates(page: Path) -> None:
    text = page.read_text().replace(GUEST_CLOCK, "")
    text = re.sub(r"2026-[\w-]+\.md", "", text)  # measurements, linked
    assert re.findall(r"20\d\d-\d\d-\d\d|\b\d+ (?:Nov|Dec)\w* 20\d\d", text) == []


def test_the_map_has_every_room() -> None:
    text = (DOCS / "rooms.md").read_text()
    rooms = [d for d in ROOT.iterdir() if (d / "__init__.py").exists()]
    assert rooms
    shipped = [d for d in rooms if d.name != "tests"]
    inner = [d for room in shipped for d in room.iterdir() if d.is_dir() and any(d.glob("*.py"))]
    assert [d for d in [*rooms, *inner] if f"{d.name}/" not in text] == []
