from __future__ import annotations

import re
from pathlib import Path

import pytest
from synthetic_capture import make_captured_run
from synthetic_run import make_run

from analysis.run import load_run

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_examples_of_api_md_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas", reason="pandas (the extra `tables`) is not installed")
    make_run(tmp_path / "runs" / "demo", queues=True)
    make_captured_run(tmp_path / "captured")
    (tmp_path / "captured" / "capture").rename(tmp_path / "runs" / "demo" / "capture")
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

    from emulator.commands.report import ReportFormat, ReportStyle, report

    text = (DOCS / "report.md").read_text()
    assert set(re.findall(r"--format (\w+)", text)) == {f.value for f in ReportFormat} - {"html"}
    assert set(re.findall(r"--style ([\w-]+)", text)) == {ReportStyle.nccl_tests.value}
    assert {"runs", "format_", "out", "style", "as_json"} == set(signature(report).parameters)


def test_every_key_of_a_result_is_in_the_architecture(tmp_path: Path) -> None:
    section = (DOCS / "architecture.md").read_text().partition("## result.json")[2]
    named = set(re.findall(r"`(\w+)`", section.partition("\n## ")[0]))
    result = load_run(make_run(tmp_path / "run", iterations=1)).result
    (answer,) = result["collectives"][0]["predicted"].values()
    (errors,) = result["summary"]["error"].values()
    parts = (result, result["collectives"][0], result["iterations"][0], result["summary"])
    assert {key for part in (*parts, answer, errors) for key in part} <= named
